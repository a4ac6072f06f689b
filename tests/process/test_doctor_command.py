"""`safe-vllm doctor` as an operator types it: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from launch import SAFE_VLLM

from safe_vllm.plan.intent import Intent
from safe_vllm.preparing import prepare
from waiting import free_port


def doctor(
    binaries: Path | None, *words: str, options: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command with the fake vLLM, or where there is none."""
    vllm = str(binaries / "vllm") if binaries else "no-such-vllm-command"
    command = [SAFE_VLLM, "--vllm", vllm, *options, "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **variables})


def as_json(binaries: Path | None, *words: str, **variables: str) -> tuple[int, dict[str, Any]]:
    run = doctor(binaries, *words, options=("--output", "json"), **variables)
    assert run.stderr == ""
    told: dict[str, Any] = json.loads(run.stdout)
    return run.returncode, told


def found(told: dict[str, Any], name: str) -> list[tuple[str, str]]:
    return [(each["level"], each["what"]) for each in told["findings"] if each["name"] == name]


def test_it_tells_what_is_installed_and_ends_with_0_unless_something_counts(binaries: Path) -> None:
    port = str(free_port())
    status, told = as_json(binaries, "--port", port)
    assert found(told, "vllm") == [("ok", f"0.32.0 ({binaries}/python)")]
    assert found(told, "port") == [("ok", f"*:{port} is free")]
    assert told["machine"]["installation"]["torch"] == "2.13.0+cpu"
    counted = [each for each in told["findings"] if each["level"] in ("warning", "problem")]
    assert (status, told["ok"]) == (int(bool(counted)), not counted)


def test_the_text_has_a_line_for_what_is_fine_and_three_for_what_is_not(binaries: Path) -> None:
    run = doctor(binaries, FLASHINFER_DISABLE_MOE_AUTOTUNE="1", VLLM_KEEP_ALIVE_ON_ENGINE_DEATH="1")
    assert (run.returncode, run.stderr) == (1, "")
    lines = run.stdout.splitlines()
    assert f"ok       vllm: 0.32.0 ({binaries}/python)" in lines
    at = lines.index("warning  variables: FLASHINFER_DISABLE_MOE_AUTOTUNE is set")
    assert lines[at + 1].startswith("           why: not read by the installed version: ")
    assert lines[at + 2].startswith("           do: use --no-enable-flashinfer-autotune")
    assert "warning  switches: VLLM_KEEP_ALIVE_ON_ENGINE_DEATH is set" in lines
    assert "warning" in lines[-1]


def test_a_version_that_is_not_known_is_the_first_thing_that_it_says(tmp_path: Path) -> None:
    (tmp_path / "vllm").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "vllm").chmod(0o755)
    lines = doctor(tmp_path).stdout.splitlines()
    assert lines[0].startswith("warning  vllm: the version is unknown")


def test_vllm_is_found_behind_env(binaries: Path) -> None:
    command = [SAFE_VLLM, "--vllm", f"env X=1 {binaries}/vllm", "--output", "json", "doctor"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found(json.loads(run.stdout), "vllm") == [("ok", f"0.32.0 ({binaries}/python)")]


@pytest.mark.parametrize("port", ["abc", "99999999"])
def test_a_port_that_is_none_is_told(binaries: Path, port: str) -> None:
    status, told = as_json(binaries, "--port", port)
    assert (status, found(told, "port")) == (1, [("problem", f"--port {port!r} is no port")])


def test_without_vllm_that_is_a_finding_and_not_the_end() -> None:
    status, told = as_json(None)
    assert (status, told["ok"]) == (1, False)
    assert found(told, "vllm") == [("problem", "no command 'no-such-vllm-command' was found")]
    assert found(told, "architecture")[0][0] == "ok"


def test_a_port_that_is_taken_is_a_problem(binaries: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        status, told = as_json(binaries, "--host", "127.0.0.1", f"--port={port}")
    assert status == 1
    [(level, what)] = found(told, "port")
    assert level == "problem"
    assert what.startswith(f"127.0.0.1:{port} cannot be bound: address already in use, held by ")


def test_the_words_are_vllms_also_those_that_look_like_ours(binaries: Path) -> None:
    status, told = as_json(binaries, "some/model", "--output", "x", "-tp", "2", "--future-flag", "--", "-x")
    assert status in (0, 1)
    assert found(told, "known-faults") == [("ok", "none for this command")]


@pytest.mark.parametrize(
    ("words", "do"),
    [
        (("--unitt", "u/a.service"), "safe-vllm doctor --unit FILE, before any other word"),
        (("u/a.service",), "safe-vllm doctor --unit FILE"),
        (("compose.yaml",), "safe-vllm doctor --manifest FILE"),
    ],
)
def test_that_a_file_was_meant_is_the_first_thing_that_it_says(words: tuple[str, ...], do: str) -> None:
    run = doctor(None, *words)
    lines = run.stdout.splitlines()
    assert (run.returncode, lines[0].partition(":")[0], lines[2].strip()) == (1, "problem  command", f"do: {do}")


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_its_help_is_ours(word: str) -> None:
    run = doctor(None, word)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("Usage: safe-vllm doctor")


def test_a_profile_that_is_wrong_is_a_finding(binaries: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    run = doctor(binaries, options=("--profile-dir", str(tmp_path), "--profile", "mine"))
    assert run.returncode == 1
    assert f"problem  profile: {tmp_path}/mine.yaml:1: the key 'description' is missing" in run.stdout


def test_it_works_with_next_to_no_environment(binaries: Path) -> None:
    command = [SAFE_VLLM, "--vllm", binaries / "vllm", "doctor"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"SAFE_VLLM_NO_CACHE": "1"})
    assert (run.returncode in (0, 1), run.stderr) == (True, "")
    assert f"ok       vllm: 0.32.0 ({binaries}/python)" in run.stdout


def test_it_starts_where_the_plan_does_with_the_same_options(tmp_path: Path) -> None:
    """What held in the state directory that was named, and for how long it is believed, count for both."""
    record = Path(__file__).parents[1] / "golden" / "machines" / "gb200-4-flashinfer-0.6.12.json"
    words = ("Qwen/Qwen3-30B-A3B",)
    assert (
        prepare(Intent(words, machine=str(record), state_dir=str(tmp_path))).memory.note_held("as-asked", time.time())
        == ()
    )
    options = ("--machine", str(record), "--state-dir", str(tmp_path))
    assert "a launch starts at as-asked" in doctor(None, *words, options=options).stdout
    assert "starts at triton, not at the top" in doctor(None, *words, options=(*options, "--remember-for", "0")).stdout
