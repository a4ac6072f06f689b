"""The emergency switch: what turns it on, and that no value of it is passed over without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safe_vllm.cli.main import run
from safe_vllm.cli.switch import NOT_ON, is_off, told
from safe_vllm.plan.intent import SWITCHED_ON

UNKNOWN = ["ja", "enabled", "2", "off", "1 # plain", "-1", "\udcff"]


def line(value: str) -> str:
    return f"SAFE_VLLM_OFF is {value!r}, which is not known, so it has no effect; SAFE_VLLM_OFF=1 runs plain vLLM"


@pytest.mark.parametrize("value", [*SWITCHED_ON, "Yes", "TRUE", " 1", "1\n", "\ton "])
def test_it_is_on_in_every_spelling_and_with_blanks_around_it(value: str) -> None:
    assert is_off({"SAFE_VLLM_OFF": value})
    assert list(told({"SAFE_VLLM_OFF": value}, as_json=False)) == []


@pytest.mark.parametrize("value", [*NOT_ON, "False", " 0 ", " "])
def test_it_may_be_left_off_without_a_word(value: str) -> None:
    assert not is_off({"SAFE_VLLM_OFF": value})
    assert list(told({"SAFE_VLLM_OFF": value}, as_json=False)) == []


@pytest.mark.parametrize("value", UNKNOWN)
def test_a_value_that_it_does_not_know_is_told_with_what_was_meant(value: str) -> None:
    assert not is_off({"SAFE_VLLM_OFF": value})
    assert list(told({"SAFE_VLLM_OFF": f" {value}"}, as_json=False)) == [line(value)]
    [found] = told({"SAFE_VLLM_OFF": value}, as_json=True)
    said = {"event": "value-not-known", "v": 1, "variable": "SAFE_VLLM_OFF", "value": value, "meant": "1"}
    assert json.loads(found) == said


def test_it_stays_one_line_of_a_length_that_can_be_read() -> None:
    [found] = told({"SAFE_VLLM_OFF": "a\nb" + "x" * 1000}, as_json=False)
    assert ("\n" in found, len(found) < 200) == (False, True)


@pytest.mark.parametrize("words", [["profiles", "show", "cpu"], ["status"], ["forget"], ["plan", "m"]])
def test_a_command_says_it_on_stderr_and_does_what_it_does_otherwise(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "machine.json").write_text('{"architecture": "x86_64"}')
    (tmp_path / "state").mkdir()
    words = ["--state-dir", str(tmp_path / "state"), "--machine", str(tmp_path / "machine.json"), *words]
    before = (run(words), capsys.readouterr())
    monkeypatch.setenv("SAFE_VLLM_OFF", "ja")
    after = (run(words), capsys.readouterr())
    assert (before[0], after[0], after[1].out) == (0, 0, before[1].out)
    assert after[1].err == f"safe-vllm: {line('ja')}\n"


def test_it_is_said_where_a_wrong_option_of_ours_keeps_vllm_from_starting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFE_VLLM_OFF", "enabled")
    monkeypatch.setenv("SAFE_VLLM_BACKOFF", "x")
    assert run(["serve", "m"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"safe-vllm: {line('enabled')}"
    assert second.startswith("safe-vllm: SAFE_VLLM_BACKOFF: expected")


def test_it_is_said_once_where_a_subcommand_is_mistyped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFE_VLLM_OFF", "ja")
    assert run(["status", "--port", "8000"]) == 2
    assert capsys.readouterr().err.count("SAFE_VLLM_OFF is") == 1
