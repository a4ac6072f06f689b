"""In a terminal, safe-vllm behaves as ``vllm serve`` would: P7 for what is seen, P9 for what is typed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import DEADLINE_S, Launch, Stage
from scenes import HOLD, argparse_error, engine, fork, mark, serve, serve_ok, wait_for_file, write
from terminals import (
    CTRL_BACKSLASH,
    CTRL_C,
    CTRL_Z,
    ENTER,
    IN_THE_BACKGROUND,
    IN_THE_FOREGROUND,
    SENT_TO_THE_BACKGROUND,
    Terminal,
    terminal,
)

from leftovers import Process, below


@pytest.fixture
def window() -> Iterator[Terminal]:
    with terminal() as opened:
        yield opened


def state(process: Process) -> str:
    """Return the letter for what a process is doing: ``T`` is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1][0]


def launcher(run: Launch) -> Process:
    """Return safe-vllm below the shell."""
    found = run.wait_for("safe-vllm", lambda: [each for each in below(run.process.pid) if "bin/safe-vllm" in str(each)])
    return found[0]


def foreground_group(pid: int) -> int:
    """Return the process group that a process's terminal belongs to now."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[5])


def everybody(run: Launch) -> list[Process]:
    """Return safe-vllm and all processes of the fake."""
    noted = [Process(entry["pid"], entry["born"]) for entry in (*run.attempts(), *run.entries("process"))]
    return [launcher(run), *noted]


def suspend(run: Launch, window: Terminal) -> None:
    """Type Ctrl-Z and wait until nobody runs any more."""
    window.type(CTRL_Z)
    run.wait_for("all to stand still", lambda: all(state(process) == "T" for process in everybody(run)))


def test_p7_colours_and_bars_reach_the_terminal_as_they_were_written(stage: Stage, window: Terminal) -> None:
    bar = "\x1b[32mLoading\x1b[0m:  50%|#    |\rLoading: 100%|##|\n"
    run = stage.start([write("stderr", bar), *argparse_error()], **window.streams)
    assert run.finish() == 2
    assert bar.replace("\n", "\r\n") in window.shown()
    assert run.attempts()[0]["terminals"][1:] == [True, True]


def test_p7_vllms_terminal_is_as_large_as_ours_and_stays_so(stage: Stage, window: Terminal) -> None:
    """SIGWINCH."""
    window.resize(30, 100)
    run = stage.start(serve_ok(), **window.streams)
    run.wait_for_event("ready")
    theirs = os.open(f"/proc/{run.leader().pid}/fd/1", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        assert os.get_terminal_size(theirs) == (100, 30)
        window.resize(50, 132)
        run.wait_for("the new size", lambda: os.get_terminal_size(theirs) == (132, 50))
    finally:
        os.close(theirs)
    assert run.stop() == 0


def test_p7_where_no_further_terminal_is_to_be_had_vllm_runs_without(stage: Stage, window: Terminal) -> None:
    hidden = ("unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-euc")
    prefix = (*hidden, 'mount --bind /dev/null /dev/ptmx; mount -t tmpfs none /dev/pts; exec "$@"', "sh")
    if (probe := subprocess.run([*prefix, "/bin/true"], capture_output=True, text=True, timeout=DEADLINE_S)).returncode:
        pytest.skip(f"no mount namespaces here: {probe.stderr.strip()}")
    run = stage.start(argparse_error(), prefix=prefix, **window.streams)
    assert run.finish() == 2
    assert run.attempts()[0]["terminals"][1:] == [False, False]
    assert "safe-vllm: no terminal can be had for vLLM (" in window.shown()


def test_p7_the_order_of_two_streams_on_one_terminal_is_kept(stage: Stage, window: Terminal) -> None:
    lines = [f"{stream} {turn}\n" for turn in range(60) for stream in ("stdout", "stderr")]
    run = stage.start([*(write(line.split()[0], line) for line in lines), *serve_ok()], **window.streams)
    run.wait_for_event("ready")
    window.wait_for(run, lines[-1].rstrip())
    assert "".join(lines).replace("\n", "\r\n") in window.shown()
    assert run.stop() == 0


def test_p9_ctrl_c_stops_in_good_order_and_reaches_vllm_once(stage: Stage, window: Terminal) -> None:
    """SIGINT."""
    run = stage.start(serve_ok(), **window.streams)
    run.wait_for_event("ready")
    window.type(CTRL_C)
    assert run.finish() == 0
    assert run.signals() == ["SIGINT"]
    assert "clean shutdown" in run.marks()
    assert run.survivors() == []


def test_p9_ctrl_backslash_stops_in_good_order(stage: Stage, window: Terminal) -> None:
    """SIGQUIT: without us, vLLM would die of it and leave a core file."""
    run = stage.start(serve_ok(), **window.streams)
    run.wait_for_event("ready")
    window.type(CTRL_BACKSLASH)
    assert run.finish() == 0
    assert run.signals() == ["SIGTERM"]
    assert "clean shutdown" in run.marks()


def test_p9_a_second_ctrl_c_hurries(stage: Stage, window: Terminal) -> None:
    deaf = [engine(), serve(stops=False)]
    run = stage.start(deaf, options=("--stop-timeout", "1000"), **window.streams)
    run.wait_for_event("ready")
    window.type(CTRL_C)
    run.wait_for("the first", run.signals)
    window.type(CTRL_C)
    assert run.finish() == 0
    assert run.survivors() == []


def test_p9_a_terminal_that_is_closed_stops_the_server(stage: Stage, window: Terminal) -> None:
    """SIGHUP."""
    run = stage.start(serve_ok(), **window.streams)
    run.wait_for_event("ready")
    window.close()
    assert run.finish() == 0
    assert "clean shutdown" in run.marks()
    assert run.survivors() == []


def test_p9_ctrl_z_suspends_all_and_fg_continues_all(stage: Stage, window: Terminal) -> None:
    """SIGTSTP and SIGCONT."""
    escaped = fork("escaped", HOLD, leaves_session=True, double=True)
    run = stage.start([escaped, *serve_ok()], prefix=IN_THE_FOREGROUND, **window.streams)
    run.wait_for_event("ready")
    suspend(run, window)
    window.wait_for(run, f"left with {128 + signal.SIGTSTP}")
    window.type(ENTER)
    assert run.request("POST", "/v1/completions", {}) == 200
    assert not [process for process in everybody(run) if state(process) == "T"]
    window.type(CTRL_C)
    window.wait_for(run, "ended with 0")
    assert len(run.attempts()) == 1


def test_p9_bg_continues_all_and_fg_brings_it_back(stage: Stage, window: Terminal) -> None:
    """SIGCONT, from a shell that keeps the terminal."""
    run = stage.start(serve_ok(), prefix=SENT_TO_THE_BACKGROUND, **window.streams)
    run.wait_for_event("ready")
    window.type(CTRL_Z)
    window.wait_for(run, "goes on")
    assert run.request("POST", "/v1/completions", {}) == 200
    run.wait_for("all to go on", lambda: not [process for process in everybody(run) if state(process) == "T"])
    ours = launcher(run).pid
    assert foreground_group(ours) != os.getpgid(ours)
    window.type(ENTER)
    run.wait_for("the foreground", lambda: foreground_group(ours) == os.getpgid(ours))
    window.type(CTRL_C)
    window.wait_for(run, "ended with 0")
    assert len(run.attempts()) == 1


def test_p9_no_deadline_comes_closer_while_all_is_suspended(stage: Stage, window: Terminal) -> None:
    go = stage.root / "go"
    run = stage.start(
        [mark("loading"), wait_for_file(go), *serve_ok()],
        prefix=IN_THE_FOREGROUND,
        options=("--start-timeout", "8"),
        **window.streams,
    )
    run.wait_for_mark("loading")
    suspend(run, window)
    run.let_pass(9)
    window.type(ENTER)
    go.touch()
    run.wait_for_event("ready")
    window.type(CTRL_C)
    window.wait_for(run, "ended with 0")
    assert len(run.attempts()) == 1


def test_p9_a_stop_that_finds_all_suspended_still_ends_in_good_order(stage: Stage, window: Terminal) -> None:
    """A shell's ``kill`` and systemd send SIGCONT after it."""
    run = stage.start(serve_ok(), prefix=IN_THE_FOREGROUND, **window.streams)
    run.wait_for_event("ready")
    suspend(run, window)
    ours = launcher(run)
    for number in (signal.SIGTERM, signal.SIGCONT):
        os.kill(ours.pid, number)
    run.wait_for("the end", lambda: not ours.is_alive)
    assert "clean shutdown" in run.marks()
    window.type(ENTER)
    run.finish()
    assert run.survivors() == []


def test_p10_killed_while_all_is_suspended_nothing_is_left(stage: Stage, window: Terminal) -> None:
    run = stage.start(serve_ok(), prefix=IN_THE_FOREGROUND, **window.streams)
    run.wait_for_event("ready")
    suspend(run, window)
    os.kill(launcher(run).pid, signal.SIGKILL)
    run.wait_for("the end of vLLM", lambda: not run.leader().is_alive)
    window.type(ENTER)
    run.process.wait(DEADLINE_S)
    run.wait_for("the end of the guardian", lambda: run.survivors() == [])
    assert run.signals() == ["SIGTERM"]


def test_p13_stopped_for_writing_from_the_background_it_goes_on_in_the_foreground(
    stage: Stage, window: Terminal
) -> None:
    """SIGTTOU."""
    run = stage.start(serve_ok(), prefix=IN_THE_BACKGROUND, **window.streams)
    ours = launcher(run)
    run.wait_for("the stop", lambda: state(ours) == "T")
    window.type(ENTER)
    run.wait_for_event("ready")
    window.type(CTRL_C)
    window.wait_for(run, "ended with 0")
