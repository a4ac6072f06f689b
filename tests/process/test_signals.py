"""P9 and P13: the table of signals in docs/contract.md, as far as no other test has a row of it already."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
from pathlib import Path

import pytest
from launch import Launch, Stage
from scenes import DEAF, HOLD, WORKER, argparse_error, fork, mark, on_signal, serve, serve_ok, wait_for_file, write

HARMLESS = ["SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGPIPE", "SIGCONT", "SIGCHLD", "SIGTSTP"]


def deliver(run: Launch, number: signal.Signals) -> None:
    """Send a signal and wait until it is no longer pending."""
    run.signal(number)
    run.wait_for("the signal to be delivered", lambda: not _is_pending(run.process.pid, number))


def _is_pending(pid: int, number: signal.Signals) -> bool:
    lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return any(int(lines[name], 16) >> (number - 1) & 1 for name in ("SigPnd", "ShdPnd"))


@pytest.mark.parametrize("name", HARMLESS)
def test_it_is_not_forwarded_and_does_no_harm(stage: Stage, name: str) -> None:
    """SIGUSR1, SIGUSR2, SIGWINCH, SIGPIPE, SIGCHLD, a SIGCONT that nothing was stopped for.

    Also SIGTSTP: in a session of its own there is no shell that could continue it.
    """
    run = stage.start([on_signal(*(other for other in HARMLESS if other not in ("SIGCHLD", "SIGCONT"))), *serve_ok()])
    run.wait_until_ready()
    deliver(run, signal.Signals[name])
    assert run.request("POST", "/v1/completions", {}) == 200
    assert run.stop() == 0
    assert run.signals() == ["SIGTERM"]
    assert len(run.attempts()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_ignored_at_the_start_it_stays_ignored_and_is_so_for_vllm_too(stage: Stage, number: signal.Signals) -> None:
    """As ``nohup`` does with SIGHUP, and a shell without job control with SIGINT and SIGQUIT behind ``&``."""
    run = stage.start(serve_ok(), prefix=("/bin/sh", "-c", f'trap "" {number.name[3:]}; exec "$0" "$@"'))
    run.wait_until_ready()
    deliver(run, number)
    assert run.request("POST", "/v1/completions", {}) == 200
    assert int(run.attempts()[0]["ignored_signals"], 16) >> (number - 1) & 1
    assert run.stop() == 0
    assert run.signals() == ["SIGTERM"]


BLOCKED = {
    "the end of a child": (signal.SIGCHLD,),
    "stop signals": (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    "all signals": tuple(signal.valid_signals()),
}


@pytest.mark.parametrize("name", BLOCKED)
def test_blocked_at_the_start_a_stop_and_the_end_of_a_child_still_come_and_so_they_do_for_vllm(
    stage: Stage, name: str
) -> None:
    """P8, P9. A program with threads may start its children like that, and they inherit it."""
    run = stage.start(serve_ok(), preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED[name]))
    run.wait_until_ready()
    blocked = int(run.attempts()[0]["blocked_signals"], 16)
    assert [number for number in (*BLOCKED["stop signals"], signal.SIGCHLD) if blocked >> (number - 1) & 1] == []
    assert run.stop() == 0


def test_a_third_stop_signal_ends_what_heeds_nothing(stage: Stage) -> None:
    worker = fork(WORKER, HOLD, ignores=DEAF, leaves_session=True, double=True)
    run = stage.start([worker, serve(stops=False)], options=("--stop-timeout", "1000"))
    run.wait_until_ready()
    for number in (signal.SIGINT, signal.SIGTERM):  # the first is forwarded as it is, the second one is never
        run.signal(number)
        run.wait_for("vLLM to get it", lambda name=number.name: name in run.signals())  # type: ignore[misc]
    run.signal(signal.SIGTERM)
    assert run.finish() == 0
    assert run.survivors() == []


def test_a_stop_that_comes_when_all_is_over_does_not_change_the_status(stage: Stage) -> None:
    run = stage.start(argparse_error())
    run.wait_for_event("launch-ended")
    while run.process.poll() is None:
        run.signal(signal.SIGTERM)
    assert run.finish() == 2


def test_stopped_and_continued_from_outside_it_serves_on(stage: Stage) -> None:
    """SIGSTOP cannot be passed on: vLLM serves meanwhile, for as long as it has no more to say than a pipe holds."""
    run = stage.start(serve_ok())
    run.wait_until_ready()
    os.kill(run.process.pid, signal.SIGSTOP)
    assert run.request("POST", "/v1/completions", {}) == 200
    os.kill(run.process.pid, signal.SIGCONT)
    assert run.stop() == 0
    assert len(run.attempts()) == 1


def test_p13_what_does_not_fit_into_a_pipe_while_we_stand_still_comes_afterwards(stage: Stage) -> None:
    """SIGSTOP: who writes more than a pipe holds waits, and loses nothing."""
    go, text = stage.root / "go", b"z" * (1 << 20)
    writer = fork("writer", wait_for_file(go), write("stdout", text), mark("written"), HOLD)
    run = stage.start([writer, *serve_ok()])
    run.wait_until_ready()
    os.kill(run.process.pid, signal.SIGSTOP)
    go.touch()
    pipe = os.open(f"/proc/{run.leader().pid}/fd/1", os.O_RDONLY | os.O_NONBLOCK)
    run.wait_for("a full pipe", lambda: waiting_bytes(pipe) == fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ))
    os.close(pipe)
    assert run.request("POST", "/v1/completions", {}) == 200
    assert "written" not in run.marks()
    os.kill(run.process.pid, signal.SIGCONT)
    run.wait_for_mark("written")
    assert run.stop() == 0
    assert run.stdout().startswith(text)


def waiting_bytes(pipe: int) -> int:
    """Return how much of a pipe has not been read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
