"""P1: every word after ``serve`` is vLLM's, and what is not ours is vLLM's business alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from launch import SAFE_VLLM, Stage
from scenes import argparse_error, ima_at_startup, leave, serve_ok

BAD_WORDS = [
    [],
    ["tiny", "--", "--config", "nowhere.yaml", "--"],
    ["tiny", "--config=nowhere.yaml", "--unknown-flag-of-tomorrow", "-x", "--a=b=c"],
    ["tiny", "--profile", "b200", "--max-attempts=1", "--events", "x", "--no-canary", "--output", "json"],
    ["", "two words", "new\nline", "tab\t", "ünï \N{SNOWMAN}", "'", '"', "$HOME", "*", "\\", ""],
    [b"\xff\xfe", b"--served-model-name=\x80", "\x01\x7f"],
    ["tiny", "--moe-backend", "triton", "--kernel-config.moe_backend=cutlass", "-dp", "2", "-tp=2"],
    ["serve", "serve", "plan"],
]


def as_noted(words: list[str | bytes]) -> list[str]:
    """Return words the way the journal has them: one character per byte."""
    return [(word if isinstance(word, bytes) else word.encode()).decode("latin-1") for word in words]


@pytest.mark.parametrize("words", BAD_WORDS, ids=range(len(BAD_WORDS)))
def test_p1_every_word_after_serve_reaches_vllm_as_it_was_written(stage: Stage, words: list[str | bytes]) -> None:
    run = stage.start(argparse_error(), words=words)
    assert run.finish() == 2
    assert [start["argv"] for start in run.attempts()] == [["serve", *as_noted(words)]]


ODD_WORDS = {
    "high": ("m", "--kernel-config", '{"\\ud800":1,"moe_backend":"\\ud800","api_key":"s3cret"}'),
    "byte": ("m", "--kernel-config", '{"\\udcff":1,"moe_backend":"\\udcff","api_key":"s3cret"}'),
    "unquoted": (b"m\xff", "--served-model-name", b"\xed\xa0\x80"),
}


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("words", ODD_WORDS.values(), ids=ODD_WORDS)
def test_letters_that_no_encoding_has_reach_vllm_and_end_nothing(
    stage: Stage, words: tuple[str | bytes, ...], output: str, tmp_path: Path
) -> None:
    options = ("--backoff", "0.01", "--state-dir", str(tmp_path / "state"), "--output", output)
    run = stage.start(ima_at_startup(), argparse_error(), words=words, options=options)
    run.finish()
    assert run.events("launch-ended") and len(run.attempts()) > 1
    assert run.attempts()[0]["argv"] == ["serve", *as_noted([*words])]
    assert "this is a bug" not in run.stderr_text()
    assert run.events("incident")
    said = run.events_path.read_bytes() + (run.stderr() if output == "json" else b"")
    for line in said.splitlines():
        assert line.decode()
    plan = stage.start(
        subcommand=("plan",), words=words, options=options, environment={"PYTHONIOENCODING": "utf-8:strict"}
    )
    assert plan.finish() == 0, plan.stderr_text()


@pytest.mark.parametrize("question", ["--help", "--help=all", "--help=moe", "-h", "-v", "--version"])
def test_a_question_about_vllm_is_answered_by_vllm_itself_with_its_status(stage: Stage, question: str) -> None:
    run = stage.start(words=["tiny", question], environment={"FAKE_VLLM_STATUS": "3"})
    assert run.finish() == 3
    [start] = run.entries("start")
    assert start["argv"] == ["serve", "tiny", question]
    assert start["pid"] == run.process.pid
    assert run.stdout() == f"the fake vllm 0.32.0 was asked: serve tiny {question}\n".encode()
    assert run.stderr() == b""


@pytest.mark.parametrize("subcommand", ["chat", "bench", "run-batch", "a-command-of-tomorrow"])
def test_every_other_subcommand_is_executed_unchanged(stage: Stage, subcommand: str) -> None:
    words: list[str | bytes] = ["serve", "--url", "x", "", b"\xff", "--max-attempts", "1"]
    run = stage.start(subcommand=[subcommand], words=words, options=(), environment={"FAKE_VLLM_STATUS": "4"})
    assert run.finish() == 4
    [start] = run.entries("start")
    assert start["argv"] == [subcommand, *as_noted(words)]
    assert start["pid"] == run.process.pid


@pytest.mark.parametrize("value", ["1", "Y", "true", " 1"])
def test_switched_off_it_executes_plain_vllm(stage: Stage, value: str) -> None:
    run = stage.start([leave(7)], options=("--max-attempts", "3"), environment={"SAFE_VLLM_OFF": value})
    assert run.finish() == 7
    [start] = run.attempts()
    assert start["pid"] == run.process.pid
    assert run.stderr() == b""


@pytest.mark.parametrize("value", ["0", ""])
def test_switched_off_means_one_and_nothing_else(stage: Stage, value: str) -> None:
    run = stage.start(argparse_error(), environment={"SAFE_VLLM_OFF": value})
    assert run.finish() == 2
    assert run.leader().pid != run.process.pid


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_value_that_the_switch_does_not_know_is_told_of_and_the_launch_is_supervised(
    stage: Stage, output: str
) -> None:
    run = stage.start(argparse_error(), environment={"SAFE_VLLM_OFF": "ja", "SAFE_VLLM_OUTPUT": output})
    assert run.finish() == 2
    assert run.leader().pid != run.process.pid
    line = run.ours().splitlines()[0].removeprefix("safe-vllm: ")
    if output == "json":
        said = {"event": "value-not-known", "v": 1, "variable": "SAFE_VLLM_OFF", "value": "ja", "meant": "1"}
        assert json.loads(line) == said
    else:
        meant = "SAFE_VLLM_OFF=1 runs plain vLLM"
        assert line == f"SAFE_VLLM_OFF is 'ja', which is not known, so it has no effect; {meant}"


def test_p1_every_option_has_a_variable_and_the_option_wins(stage: Stage) -> None:
    variables = {"SAFE_VLLM_MAX_ATTEMPTS": "1", "SAFE_VLLM_BACKOFF": "0.01", "SAFE_VLLM_PROFILE": "cpu"}
    once = stage.start(ima_at_startup(), ima_at_startup(), options=(), environment=variables)
    twice = stage.start(ima_at_startup(), ima_at_startup(), options=("--max-attempts", "2"), environment=variables)
    assert (once.finish(), len(once.attempts())) == (70, 1)
    assert (twice.finish(), len(twice.attempts())) == (70, 2)


def test_our_own_lines_can_be_json_objects(stage: Stage) -> None:
    run = stage.start(serve_ok(), environment={"SAFE_VLLM_OUTPUT": "json"})
    run.wait_for_event("ready")
    assert run.stop() == 0
    said = [json.loads(line.removeprefix("safe-vllm: ")) for line in run.ours().splitlines()]
    assert {"ready", "launch-ended"} <= {line["event"] for line in said}


def test_a_command_that_is_not_there_ends_with_127(stage: Stage) -> None:
    run = stage.start(environment={"PATH": "/nowhere"})
    assert run.finish() == 127
    assert "vllm" in run.ours()
    assert "Traceback" not in run.stderr_text()


def test_a_command_that_cannot_be_executed_ends_with_126(stage: Stage) -> None:
    script = stage.root / "vllm"
    script.write_text("#!/bin/sh\n")
    run = stage.start(options=("--vllm", str(script)))
    assert run.finish() == 126
    assert str(script) in run.ours()
    assert "Traceback" not in run.stderr_text()


def test_a_command_that_cannot_be_executed_just_now_ends_with_75(stage: Stage) -> None:
    script = stage.root / "vllm"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    with script.open("a"):  # as while an upgrade writes it: ETXTBSY
        run = stage.start(options=("--vllm", str(script)))
        assert run.finish() == 75
    assert f"{script} cannot be executed now: text file busy; " in run.ours()


@pytest.mark.parametrize("subcommand", ["serve", "bench"])
def test_a_command_whose_interpreter_is_gone_ends_with_126_and_the_same_words(stage: Stage, subcommand: str) -> None:
    script = stage.root / "vllm"
    script.write_text("#!/nowhere/python\n")
    script.chmod(0o755)
    run = stage.start(subcommand=[subcommand], options=("--vllm", str(script)))
    assert run.finish() == 126
    why = "cannot be executed: no such file or directory; see its permissions and first line"
    assert f"{script} {why}\n" in run.stderr_text()
    assert "Traceback" not in run.stderr_text()


def test_another_command_can_stand_in_for_vllm(stage: Stage) -> None:
    run = stage.start(
        argparse_error(),
        options=("--vllm", f"{stage.binaries}/python -IS {stage.binaries}/vllm"),
        environment={"PATH": "/nowhere"},
    )
    assert run.finish() == 2
    assert run.attempts()[0]["argv"][:2] == ["serve", "tiny"]


@pytest.mark.parametrize(
    "options",
    [("--no-such-option",), ("--max-attempts", "many"), ("--max-attempts",), ("--output", "xml"), ("--backoff", "-1")],
)
def test_an_option_of_ours_that_is_wrong_ends_with_2_and_starts_nothing(stage: Stage, options: tuple[str, ...]) -> None:
    run = stage.start(options=options)
    assert run.finish() == 2
    assert run.entries("start") == []
    assert options[0] in run.stderr_text()
    assert "Traceback" not in run.stderr_text()


@pytest.mark.parametrize("name", ["no-such-profile", "./no-such-profile.yaml"])
def test_a_profile_that_is_not_there_ends_with_2_and_starts_nothing(stage: Stage, name: str) -> None:
    run = stage.start(options=("--profile", name))
    assert run.finish() == 2
    assert run.entries("start") == []
    assert "no-such-profile" in run.stderr_text()


def test_an_option_without_any_words_is_still_ours(stage: Stage, tmp_path: Path) -> None:
    events = tmp_path / "events"
    run = stage.start(argparse_error(), words=[], options=("--events", str(events)))
    assert run.finish() == 2
    assert [json.loads(line)["event"] for line in events.read_text().splitlines()][-1] == "launch-ended"


@pytest.mark.parametrize(("typed", "offered"), [("--p", "--pin"), ("st", "status"), ("fo", "forget")])
def test_the_shell_completes_our_commands_and_options(typed: str, offered: str) -> None:
    ours = {"_SAFE_VLLM_COMPLETE": "bash_complete", "COMP_WORDS": f"safe-vllm {typed}", "COMP_CWORD": "1"}
    told = subprocess.check_output([SAFE_VLLM], env=os.environ | ours, text=True, timeout=30)
    assert f"plain,{offered}" in told.splitlines()


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_misspelt_variable_of_ours_is_told_of_and_changes_nothing(stage: Stage, output: str) -> None:
    variables = {"SAFE_VLLM_STAT_DIR": "hunter2", "SAFE_VLLM_PORT": "tcp://10.0.0.1:8000", "SAFE_VLLM_OUTPUT": output}
    run = stage.start(argparse_error(), environment=variables)
    assert run.finish() == 2
    line = run.ours().splitlines()[0].removeprefix("safe-vllm: ")
    if output == "json":
        said = {"event": "variable-not-known", "v": 1, "variable": "SAFE_VLLM_STAT_DIR", "meant": "SAFE_VLLM_STATE_DIR"}
        assert json.loads(line) == said
    else:
        meant = "did you mean SAFE_VLLM_STATE_DIR?"
        assert line == f"SAFE_VLLM_STAT_DIR is set and not known, so it has no effect; {meant}"
    assert "hunter2" not in run.stderr_text()
    assert "SAFE_VLLM_PORT" not in run.stderr_text()


@pytest.mark.parametrize(
    ("subcommand", "words", "variables"),
    [("serve", ["tiny", "--help"], {}), ("bench", ["serve"], {}), ("serve", ["tiny"], {"SAFE_VLLM_OFF": "1"})],
)
def test_where_vllm_itself_runs_nothing_is_said_of_misspelt_variables(
    stage: Stage, subcommand: str, words: list[str | bytes], variables: dict[str, str]
) -> None:
    variables = {**variables, "SAFE_VLLM_PROFLE": "b200", "FAKE_VLLM_STATUS": "3"}
    run = stage.start([leave(3)], subcommand=[subcommand], words=words, options=(), environment=variables)
    assert (run.finish(), run.stderr()) == (3, b"")


def test_a_misspelt_subcommand_still_reaches_vllm(stage: Stage) -> None:
    run = stage.start(subcommand=["stats"], words=["x"], options=(), environment={"FAKE_VLLM_STATUS": "4"})
    assert run.finish() == 4
    assert [start["argv"] for start in run.entries("start")] == [["stats", "x"]]
    said = "safe-vllm: 'stats' is no command of ours and goes to vLLM; did you mean `safe-vllm status`?\n"
    assert run.stderr_text() == said
