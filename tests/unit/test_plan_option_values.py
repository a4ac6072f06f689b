"""The values that doctor says are refused are those with which safe-vllm does not start."""

from __future__ import annotations

import click
import pytest

from safe_vllm.cli.main import cli
from safe_vllm.cli.variables import names
from safe_vllm.errors import Trouble
from safe_vllm.plan.option_values import NAMES, NO_OPTIONS, READERS, misspelt, refused, seconds
from safe_vllm.plan.status_address import address

ADDRESS = "SAFE_VLLM_STATUS_ADDRESS"
SAMPLES = (
    *("60", "3e2", "300s", "1_0", " 5 ", "inf", "nan", "-1", "0", "0.5", "1.0", "x", "true", "No", "maybe", "text"),
    *("json", "JSON", "first", "as-asked", "caches", "caches,autotune", "caches autotune", "caches,x"),
)


def is_refused_by_the_command_line(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setenv(name, value)
    try:
        cli.make_context("safe-vllm", ["serve", "m"])
    except click.UsageError:
        return True
    return False


@pytest.mark.parametrize("name", sorted(set(READERS) - {ADDRESS}))
@pytest.mark.parametrize("value", SAMPLES)
def test_what_is_refused_is_what_the_command_line_refuses(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (name in refused({name: value})) == is_refused_by_the_command_line(name, value, monkeypatch)


@pytest.mark.parametrize(
    "value", [":9464", "9464", "unix:/tmp/x", "host:9464", "0.0.0.0:0", "[::]:9464", "127.0.0.1:1"]
)
def test_an_address_is_refused_where_the_launch_refuses_it(value: str) -> None:
    try:
        address(value)
        is_good = True
    except Trouble:
        is_good = False
    assert (refused({ADDRESS: value}) == {}) == is_good


def test_every_variable_of_ours_is_known() -> None:
    assert sorted(NAMES) == sorted([*names(cli), *NO_OPTIONS])


def test_a_misspelt_name_is_told_without_the_command_line() -> None:
    assert misspelt(["SAFE_VLLM_STOP_TIMOUT", "SAFE_VLLM_OFF", "PATH"]) == {
        "SAFE_VLLM_STOP_TIMOUT": "SAFE_VLLM_STOP_TIMEOUT"
    }


@pytest.mark.parametrize(("text", "expected"), [("3e2", 300), ("300s", None), ("", None), (None, None), ("-1", None)])
def test_seconds_are_read_as_the_options_read_them(text: str | None, expected: float | None) -> None:
    assert seconds(text) == expected
