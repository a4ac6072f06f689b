"""vLLM finds itself where the operator started it: same directory, same variables, nothing of ours in its hands."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from launch import Entry, Launch, Stage
from scenes import argparse_error


def only_start(run: Launch) -> Entry:
    """Wait for the end and return what the one attempt noted at its start."""
    assert run.finish() == 2
    [start] = run.attempts()
    return start


def test_the_environment_is_the_operators(stage: Stage) -> None:
    odd = {"EMPTY": "", "LINES": "a\nb", "EQUAL": "a=b", "VLLM_USE_V1": "1", "CUDA_LIB_PATH": "/mine"}
    run = stage.start(argparse_error(), environment=odd)
    start = only_start(run)
    assert sorted(start["environ"]) == sorted(f"{name}={value}" for name, value in run.environment.items())


def test_the_directory_is_the_operators(stage: Stage, tmp_path: Path) -> None:
    place = tmp_path / "a place"
    place.mkdir()
    assert only_start(stage.start(argparse_error(), cwd=place))["cwd"] == str(place)


def test_it_holds_its_three_streams_and_nothing_else(stage: Stage) -> None:
    reader, writer = os.pipe()
    run = stage.start(argparse_error(), stdin=reader)
    os.close(reader)
    os.close(writer)
    assert set(only_start(run)["descriptors"]) == {"0", "1", "2"}


def test_its_stdin_is_the_operators(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text("x")
    descriptor = os.open(file, os.O_RDONLY)
    run = stage.start(argparse_error(), stdin=descriptor)
    os.close(descriptor)
    assert only_start(run)["descriptors"]["0"] == str(file)


def test_no_signal_is_blocked_or_ignored_for_it(stage: Stage) -> None:
    start = only_start(stage.start(argparse_error()))
    assert int(start["blocked_signals"], 16) == 0
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
        assert not int(start["ignored_signals"], 16) >> (number - 1) & 1, number


def test_it_has_a_session_of_its_own(stage: Stage) -> None:
    run = stage.start(argparse_error())
    start = only_start(run)
    assert start["session"] == start["group"] == start["pid"]
    assert start["parent"] != run.process.pid  # the guardian stands between


def test_what_systemd_tells_us_is_not_told_to_it(stage: Stage, tmp_path: Path) -> None:
    """P11."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        ours = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}
        start = only_start(stage.start(argparse_error(), environment=ours))
    assert {name.partition("=")[0] for name in start["environ"]} & set(ours) == set()


@pytest.mark.parametrize("profile", ["cpu", "default", "b200", "gb200"])
def test_the_first_rung_adds_no_word(stage: Stage, profile: str) -> None:
    run = stage.start(argparse_error(), words=["tiny", "--port", "1"], options=("--profile", profile))
    assert only_start(run)["argv"] == ["serve", "tiny", "--port", "1"]
