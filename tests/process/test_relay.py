"""P13: whatever our own output leads to, the child does not notice; what can be delivered is delivered."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from pathlib import Path

import pytest
from launch import Launch, Stage
from scenes import DEAF, HOLD, argparse_error, fork, leave, mark, serve_ok, wait_for_file, write

SIZE = 1 << 20


def read_some(descriptor: int, size: int) -> bytes:
    """Read so much, however small the pieces are."""
    got = bytearray()
    while len(got) < size and (data := os.read(descriptor, 1000)):
        got += data
    return bytes(got)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_pipe_that_somebody_else_made_non_blocking_loses_nothing(stage: Stage, stream: str) -> None:
    """Node and Go do that to the pipe they share with us; a plain write would fail with EAGAIN."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    run = stage.start([write(stream, b"z" * SIZE), *argparse_error()], **{stream: writer})
    assert fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK  # nor was it put back: it is not ours
    os.close(writer)
    run.wait_for("the start", run.attempts)
    assert b"z" * SIZE in read_some(reader, 10 * SIZE)
    os.close(reader)
    assert run.finish() == 2


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_socket_gets_everything_too(stage: Stage, stream: str) -> None:
    """As from a process manager that gives its children sockets; they cannot be opened a second time."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        run = stage.start([write(stream, b"z" * SIZE), *argparse_error()], **{stream: theirs.fileno()})
        theirs.close()
        run.wait_for("the start", run.attempts)
        assert b"z" * SIZE in read_some(ours.fileno(), 10 * SIZE)
        assert run.finish() == 2


def test_a_socket_whose_other_end_is_closed_does_not_hurt_the_child(stage: Stage) -> None:
    go = stage.root / "go"
    ours, theirs = socket.socketpair()
    run = stage.start([wait_for_file(go), write("stdout", b"z" * SIZE), *serve_ok()], stdout=theirs.fileno())
    theirs.close()
    ours.close()
    go.touch()
    run.wait_for_event("ready")
    assert run.stop() == 0


SMALL_DISK = (
    *("unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-euc"),
    'mount -t tmpfs -o size=256k tmpfs "$DISK"; exec "$0" "$@" >"$DISK/log"',
)


def test_a_disk_that_is_full_for_a_while_loses_what_was_written_then_and_nothing_else(stage: Stage) -> None:
    disk, go = stage.root / "disk", stage.root / "go"
    disk.mkdir()
    steps = [write("stdout", b"z" * SIZE), mark("written"), wait_for_file(go), write("stdout", b"room again"), leave(2)]
    run = stage.start(steps, prefix=SMALL_DISK, environment={"DISK": str(disk)}, options=("--max-attempts", "1"))
    run.wait_for_mark("written")
    seen = Path(f"/proc/{run.process.pid}/root{disk}/log")
    run.wait_for("the disk to be full", lambda: seen.stat().st_size >= 200_000)
    with seen.open("r+b") as log:
        log.truncate(1000)
        go.touch()
        run.finish()
        log.seek(0)
        content = log.read()
    assert content.startswith(b"z" * 1000)
    assert content.endswith(b"room again")


@pytest.mark.parametrize("is_loading", [True, False])
def test_a_reader_that_stands_still_does_not_hold_up_a_stop_or_its_deadline(stage: Stage, is_loading: bool) -> None:
    reader, writer = os.pipe()
    flood = fork("flood", write("stdout", b"z" * SIZE, times=64), mark("drained"), HOLD, ignores=DEAF)
    scene = [flood, mark("loading"), HOLD] if is_loading else [flood, *serve_ok(stops=False)]
    run = stage.start(scene, stdout=writer, options=("--stop-timeout", "0.5"))
    os.close(writer)
    run.wait_for_mark("loading" if is_loading else "serving")
    run.signal(signal.SIGTERM)
    run.wait_for("the end of the tree", lambda: _is_alone(run))
    assert run.finish() == 0
    assert "drained" not in run.marks()
    os.close(reader)


def _is_alone(run: Launch) -> bool:
    return run.survivors() == []


def test_the_last_words_are_delivered_to_a_reader_who_comes_after_the_end(stage: Stage) -> None:
    """More than our pipe takes and we have read by then: the rest is still in vLLM's pipe."""
    reader, writer = os.pipe()
    run = stage.start([write("stdout", b"z" * 150_000), write("stdout", b"the end"), *argparse_error()], stdout=writer)
    os.close(writer)
    run.wait_for_event("launch-ended")
    assert read_some(reader, 10 * SIZE) == b"z" * 150_000 + b"the end"
    assert run.finish() == 2
    os.close(reader)
