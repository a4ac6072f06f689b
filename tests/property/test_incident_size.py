"""Whatever is in a report, it can be pasted into an issue."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from incident_cases import autotune_fault, hang_at_start, segfault_in_service
from safe_vllm.record import incidents
from safe_vllm.record.incident import Incident
from safe_vllm.record.incident_making import incident_of

GITHUB_TAKES = 65_536
LETTERS = ("x", "`", "|", "&", "\n", "ü", "'", "_", "1 ")
WITHIN_US = frozenset({"fault", "phase", "action", "kind", "form"})
"""Names of ours, which nobody else can make long."""


@cache
def reports() -> tuple[Incident, ...]:
    """Return some, made once."""
    return tuple(incident_of(made()) for made in (autotune_fault, segfault_in_service, hang_at_start))


def swollen(value: Any, text: str, times: int) -> Any:
    """Return a value with each text in it longer by another one, and each row of it there many times."""
    if isinstance(value, str):
        return value + text
    if isinstance(value, tuple):
        return tuple(swollen(each, text, times) for each in value) * times
    if is_dataclass(value) and not isinstance(value, type):
        inner = {each.name: getattr(value, each.name) for each in fields(value) if each.name not in WITHIN_US}
        return replace(value, **{name: swollen(each, text, times) for name, each in inner.items()})
    return value


@settings(max_examples=12)
@given(at=st.integers(0, 2), letter=st.sampled_from(LETTERS), length=st.integers(0, 60_000), data=st.data())
def test_a_report_with_anything_in_it_is_short_enough_to_be_pasted(
    at: int, letter: str, length: int, data: st.DataObject
) -> None:
    times = data.draw(st.integers(1, max(1, min(50, 500_000 // (length + 1)))))
    names = data.draw(st.sets(st.sampled_from([each.name for each in fields(Incident) if each.name not in WITHIN_US])))
    text, incident = letter * length, reports()[at]
    changed = {name: swollen(getattr(incident, name), text, times) for name in names | {"command", "sequel"}}
    files = incidents.contents(replace(incident, **changed))
    assert len(files["incident.md"]) <= GITHUB_TAKES
    assert files["command.sh"] == changed["command"] + "\n"


def test_long_sentences_of_a_verdict_are_cut_as_far_as_it_takes() -> None:
    found = reports()[0]
    long = {"command": found.command + "x" * 5745, "death": swollen(found.death, "x" * 5745, 27)}
    assert len(incidents.contents(replace(found, **long))["incident.md"]) <= GITHUB_TAKES
