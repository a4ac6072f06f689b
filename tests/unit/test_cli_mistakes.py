"""A wrong command line of ours is told in one line: the option or the variable, what is wrong, what to do."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from doc_tables import rows

from safe_vllm.cli.doctor import OF_FILES
from safe_vllm.cli.main import run
from safe_vllm.cli.mistakes import SWITCH

SECONDS = "expected a number of seconds, 0 or more, got"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the one line that is said, after a status of 2."""
    assert run(list(words)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("safe-vllm: ").removesuffix("\n")


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("backoff", "x", f"{SECONDS} 'x'"),
        ("stop-timeout", "-5", f"{SECONDS} '-5'"),
        ("start-timeout", "nan", f"{SECONDS} 'nan'"),
        ("proving-window", "10m", f"{SECONDS} '10m'"),
        ("max-attempts", "0", "expected a whole number, 1 or more, got '0'"),
        ("max-attempts", "1.5", "expected a whole number, 1 or more, got '1.5'"),
        ("remember-for", "nan", "expected a number of days, 0 or more, got 'nan'"),
        ("output", "xml", "'xml' is not one of 'text', 'json'"),
        ("pin", "moe-backnd", "there is no 'moe-backnd', did you mean 'moe-backend'?"),
        ("start-at", "tritn", "there is no 'tritn', did you mean 'triton'?"),
        (
            "start-at",
            "xyz",
            "there is no 'xyz', expected one of: as-asked, no-autotune, triton, less-parallel, no-expert-parallel",
        ),
    ],
)
def test_a_bad_value_is_told_with_the_option_or_the_variable_that_it_comes_from(
    option: str, value: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected += " see `safe-vllm --help`" if expected.endswith("?") else "; see `safe-vllm --help`"
    assert said(capsys, f"--{option}", value, "status") == f"--{option}: {expected}"
    variable = f"SAFE_VLLM_{option.upper().replace('-', '_')}"
    monkeypatch.setenv(variable, value)
    assert said(capsys, "status") == f"{variable}: {expected}"


def test_a_bad_value_of_a_subcommand_is_told_with_its_own_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "expected a whole number, got 'x'; see `safe-vllm diagnose --help`"
    assert said(capsys, "diagnose", "--exit-status", "x") == f"--exit-status: {told}"
    monkeypatch.setenv("SAFE_VLLM_DIAGNOSE_EXIT_STATUS", "x")
    assert said(capsys, "diagnose") == f"SAFE_VLLM_DIAGNOSE_EXIT_STATUS: {told}"


def test_a_value_that_no_switch_takes_is_told_with_those_that_it_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFE_VLLM_NO_CANARY", "maybe")
    expected = f"expected {SWITCH}, got 'maybe'; see `safe-vllm --help`"
    assert said(capsys, "status") == f"SAFE_VLLM_NO_CANARY: {expected}"


@pytest.mark.parametrize("value", re.findall(r"[a-z0-9]+", SWITCH.replace(" or", "")))
def test_a_switch_takes_every_word_that_the_message_and_the_page_name(
    value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    told = page.partition("a switch such as `SAFE_VLLM_NO_CANARY`")[2].partition(".\n")[0]
    assert f"`{value}`" in told
    monkeypatch.setenv("SAFE_VLLM_OBSERVE_ONLY", value)
    assert run(["profiles", "show", "cpu"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--vesion", "there is no option --vesion, did you mean --version? see `safe-vllm --help`"),
        ("--profle x serve m", "there is no option --profle, did you mean --profile? see `safe-vllm --help`"),
        (
            "--port 8000 serve m",
            "there is no option --port of ours: vLLM's stand behind `serve MODEL`; see `safe-vllm --help`",
        ),
        (
            "status --output json",
            "--output stands before the subcommand: `safe-vllm --output …`; see `safe-vllm status --help`",
        ),
        ("status --hlp", "there is no option --hlp, did you mean --help? see `safe-vllm status --help`"),
        ("status --port 8000", "there is no option --port; see `safe-vllm status --help`"),
        ("profiles show", "missing argument 'NAME|FILE'; see `safe-vllm profiles show --help`"),
        ("org/model --port 8000", "the first word looks like a model and is no command; say `safe-vllm serve MODEL …`"),
        (
            "s3://user:hunter2@host/m",
            "the first word looks like a model and is no command; say `safe-vllm serve MODEL …`",
        ),
    ],
)
def test_a_slip_is_told_with_what_was_meant(words: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, *words.split()) == expected


@pytest.mark.parametrize("option", OF_FILES)
def test_the_page_names_the_words_behind_doctor_that_are_ours(option: str) -> None:
    [ours] = [cells[1] for cells in rows("cli.md", "where") if cells[0] == "behind `doctor`, as the first word"]
    assert f"`{option} FILE`" in ours


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["--version"], ["plan", "-h"], ["profiles", "--help"]])
def test_a_question_about_us_is_answered(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 0
    out, err = capsys.readouterr()
    assert ("safe-vllm" in out, err) == (True, "")


@pytest.mark.parametrize(
    ("command", "usage"),
    [("plan", "plan MODEL …"), ("doctor", "doctor [MODEL …] | --unit FILE | --manifest FILE")],
)
def test_the_usage_of_a_command_that_takes_vllms_words_says_which(
    command: str, usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"Usage: safe-vllm {usage}"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("stats", "status"),
        ("SERVE", "serve"),
        ("server", "serve"),
        ("plans", "plan"),
        ("doctr", "doctor"),
        ("profile", "profiles"),
        ("forgot", "forget"),
        ("dignose", "diagnose"),
    ],
)
def test_a_misspelt_subcommand_goes_to_vllm_with_a_word_on_what_was_meant(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--vllm", "/nowhere/vllm", typed]) == 127
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"safe-vllm: {typed!r} is no command of ours and goes to vLLM; did you mean `safe-vllm {meant}`?"
    assert second.startswith("safe-vllm: no command '/nowhere/vllm' was found; ")


@pytest.mark.parametrize("command", ["chat", "complete", "bench", "collect-env", "run-batch", "launch", "help"])
def test_a_command_of_vllm_is_not_taken_for_a_misspelt_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--vllm", "/nowhere/vllm", command]) == 127
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_with_the_oldest_click_a_slip_is_still_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(click.exceptions, "NoArgsIsHelpError", raising=False)  # since click 8.2
    assert said(capsys, "--vesion").startswith("there is no option --vesion")
