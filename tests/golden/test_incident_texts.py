"""Reports read as they did: ``UPDATE_GOLDEN=1 pytest tests/golden/test_incident_texts.py`` writes them anew."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from incident_cases import CASES
from safe_vllm.record.incident import Incident
from safe_vllm.record.incident_making import incident_of
from safe_vllm.record.incident_tables import OWNERS, size
from safe_vllm.record.incident_text import as_json, markdown, pasteable
from safe_vllm.record.incident_words import ACTIONS, KINDS

KEPT = Path(__file__).parent / "incidents"
JSON_ONLY = {
    "form": "of use to programs alone",
}
"""Fields that are not in the Markdown, and why."""


SAID_WHERE_TRUE = {
    "caches.is_suspect": "| suspect: ",
    "death.is_suspect_known": "named by the output",
    "environment.is_unread": "(not read by the installed version)",
    "history.has_fresh_caches": "with fresh caches",
    "is_observed": "--observe-only",
}
UNKNOWN = "suspect not known"
WORDS: dict[str, dict[str, str]] = {
    "death.action": ACTIONS,
    "death.evidence.kind": KINDS | {"root": "Root line"},
    "death.suspect": {"none": UNKNOWN, "unknown": UNKNOWN},
    "cores.kind": OWNERS,
}
"""What stands for the names of the JSON."""


@pytest.fixture(autouse=True)
def _without_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("VLLM_", "FLASHINFER_", "CUDA_", "HF_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def told(name: str) -> Incident:
    incident = pasteable(incident_of(CASES[name]()))
    stamp = incident.times.ended.translate(str.maketrans("", "", "-:"))
    place = f"/var/lib/safe-vllm/incidents/{stamp}-{incident.death.fault}"
    return replace(incident, versions=replace(incident.versions, safe_vllm="0.0"), directory=place)


def leaves(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value that is no container, with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, place)
    else:
        yield place, value


def shown(place: str, value: object, text: str) -> bool:
    """Return whether a value of the JSON is in the Markdown, as that writes it."""
    if isinstance(value, bool):
        return SAID_WHERE_TRUE[place] in text if value else True
    words = WORDS.get(place, {}).get(value)  # type: ignore[call-overload]
    if words is not None:
        return words in text
    if place.endswith("_bytes") and isinstance(value, int):
        return size(value) in text
    return value is None or all(line.strip() in text for line in str(value).splitlines())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("kind", "write"), [("md", markdown), ("json", as_json)])
def test_a_report_reads_as_it_did(name: str, kind: str, write: object) -> None:
    expected, found = KEPT / f"{name}.{kind}", write(told(name))  # type: ignore[operator]
    if os.environ.get("UPDATE_GOLDEN"):
        expected.write_text(found, "utf-8")
    assert found == expected.read_text("utf-8")


def test_every_report_that_is_kept_belongs_to_a_case() -> None:
    assert {path.stem for path in KEPT.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_markdown_says_all_that_the_json_says(name: str) -> None:
    incident = told(name)
    text, found = markdown(incident), json.loads(as_json(incident))
    missing = [(place, value) for place, value in leaves(found) if not shown(place, value, text)]
    assert [place for place, _ in missing if place not in JSON_ONLY] == []
    assert set(JSON_ONLY) <= {place for place, _ in leaves(found)}


@pytest.mark.parametrize("name", CASES)
def test_a_report_begins_with_what_died_when_and_the_root_line(name: str) -> None:
    incident = told(name)
    summary = [line for line in markdown(incident).splitlines() if line.startswith("- **")][:3]
    assert [re.findall(r"\*\*(.*?):\*\*", line)[0] for line in summary] == ["What died", "When", "Root line"]
    assert incident.death.reason in summary[0]
    assert ("before it was ready" in summary[1]) == (incident.times.ready_for_s is None)
    assert incident.root is None or str(incident.root.line) in summary[2]


@pytest.mark.parametrize("name", CASES)
def test_the_command_of_a_report_can_be_pasted(name: str) -> None:
    found = CASES[name]()
    words = shlex.split(told(name).command)
    assert words[words.index("vllm") :][:2] == ["vllm", "serve"]
    assert len(words[words.index("vllm") :]) == len(found.command.argv)
    assert "VLLM_CACHE_ROOT=/data/vllm" in words


@pytest.mark.parametrize("name", CASES)
def test_no_secret_of_the_operator_is_in_a_report(name: str) -> None:
    for text in (markdown(told(name)), as_json(told(name))):
        assert "sk-prod" not in text
        assert "aB3dE5" not in text
