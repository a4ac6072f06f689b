"""The tables of the check-up are sound, and a mistake in them is told."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from safe_vllm import known
from safe_vllm.checks.tables import parse_knobs, parse_pins
from safe_vllm.data.strict_yaml import read_data
from safe_vllm.errors import Trouble


def test_every_pin_and_every_knob_leads_to_a_source_of_vllm() -> None:
    entries = [*parse_pins(read_data("pins.yaml")), *parse_knobs(read_data("knobs.yaml"))]
    assert all(entry.link.startswith("https://github.com/vllm-project/vllm/blob/v0.") for entry in entries)


def test_every_known_minor_release_has_its_pins() -> None:
    releases = {release.rpartition(".")[0] for pin in parse_pins(read_data("pins.yaml")) for release in pin.vllm}
    assert releases == {f"0.{minor}" for minor in range(11, 34)}


def test_knobs_stand_for_variables_that_the_dialects_know_and_need_what_the_newest_has() -> None:
    table, newest = known.dialects().table, known.dialects().of("0.33.0")
    for knob in parse_knobs(read_data("knobs.yaml")):
        assert all(table.variable(name) for name in knob.instead_of)
        assert knob.works(newest)


def doubled(pins: Any) -> None:
    pins[1]["vllm"] = pins[0]["vllm"]


def unlinked(pins: Any) -> None:
    del pins[0]["link"]


def misspelled(pins: Any) -> None:
    pins[0]["flashinfr"] = "0.6.12"


def wild(pins: Any) -> None:
    pins[0]["vllm"] = ["0.33.*"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (doubled, "0.11.0 is there twice"),
        (unlinked, "missing required field `link`"),
        (misspelled, "unknown field `flashinfr`"),
        (wild, "'0.33.*' is no release"),
    ],
)
def test_a_mistake_in_the_pins_is_told(change: Callable[[Any], None], said: str) -> None:
    content = copy.deepcopy(read_data("pins.yaml"))
    assert isinstance(content, dict)
    change(content["pins"])
    with pytest.raises(Trouble, match=r"pins\.yaml: ") as trouble:
        parse_pins(content)
    assert said in str(trouble.value)


def test_a_mistake_in_the_knobs_is_told() -> None:
    with pytest.raises(Trouble, match=r"knobs\.yaml: "):
        parse_knobs({"knobs": [{"use": "x"}]})
