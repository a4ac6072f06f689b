"""P7 and P13: the child's bytes arrive as they were written, and nothing about the reader hurts the child."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pty
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launch import Launch, Stage
from scenes import (
    HOLD,
    Step,
    argparse_error,
    fork,
    ima_at_startup,
    leave,
    mark,
    serve,
    serve_ok,
    wait_for_file,
    write,
)

STREAMS = ["stdout", "stderr"]
PAYLOADS = {
    "every-byte-value": bytes(range(256)) * 3,
    "no-final-newline": b"no newline",
    "carriage-returns": b"10%\r20%\r\r\n100%\r",
    "only-newlines": b"\n\n\n",
    "a-line-of-one-mebibyte": b"x" * (1 << 20) + b"\n",
    "broken-utf-8-and-colours": b"\xc3\x28 \x1b[1;36m(EngineCore pid=1)\x1b[0;0m \xff\n\x00\x00",
}


def theirs(stderr: bytes) -> bytes:
    """Return the child's part of stderr: all but the lines that are ours."""
    return re.sub(rb"^safe-vllm: [^\n]*\n", b"", stderr, flags=re.MULTILINE)


def last_words() -> bytes:
    """Return what the scene of a bad argument writes on stderr."""
    return str(argparse_error()[0]["data"]).encode("latin-1")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_bytes_arrive_unchanged(stage: Stage, payload: str) -> None:
    data = PAYLOADS[payload]
    run = stage.start([write("stdout", data), write("stderr", data), *argparse_error()])
    assert run.finish() == 2
    assert run.stdout() == data
    assert theirs(run.stderr()) == data + last_words()


def test_a_last_line_without_an_end_is_not_continued_by_ours(stage: Stage) -> None:
    run = stage.start([*argparse_error()[:1], write("stderr", b"last words"), *argparse_error()[1:]])
    assert run.finish() == 2
    assert b"\nlast words\nsafe-vllm: " in run.stderr()


def test_stdout_is_the_concatenation_of_the_attempts(stage: Stage) -> None:
    scenes = [[write("stdout", b"one, "), *ima_at_startup()], [write("stdout", b"two"), *argparse_error()]]
    run = stage.start(*scenes)
    run.finish()
    assert len(run.attempts()) == 2
    assert run.stdout() == b"one, two"


def test_stderr_is_the_concatenation_of_the_attempts_with_our_lines_between(stage: Stage) -> None:
    scenes = [[write("stderr", b"one\xff\n"), *ima_at_startup()], [write("stderr", b"two\r"), *argparse_error()]]
    run = stage.start(*scenes)
    run.finish()
    written = [str(step["data"]).encode("latin-1") for scene in scenes for step in scene if "data" in step]
    assert len(run.attempts()) == 2
    assert theirs(run.stderr()) == b"".join(written)
    assert b"safe-vllm: attempt 1 " in run.stderr()


def test_a_line_that_is_not_finished_passes_at_once(stage: Stage) -> None:
    go = stage.root / "go"
    run = stage.start([write("stdout", b"10%\r20"), write("stderr", b"Loading"), wait_for_file(go), *argparse_error()])
    run.wait_for("the part of a line on stdout", lambda: run.stdout() == b"10%\r20")
    run.wait_for("the part of a line on stderr", lambda: run.stderr().endswith(b"Loading"))
    go.touch()
    assert run.finish() == 2


LINES = b"{} " + bytes(range(11, 256)) + b"\n"
ACCESS = b'(APIServer pid=1) INFO:     10.0.0.7:53007 - "POST /v1/completions HTTP/1.1" 200 OK\n'
BLOCKS = {
    "as-usual": b"{} " + ACCESS * 600,
    "in-lines": LINES * 250,
    "in-one-endless-line": LINES.replace(b"\n", b" ") * 250,
}


@pytest.mark.parametrize(
    ("stream", "kind", "megabytes"),
    [("stdout", "as-usual", 200), ("stderr", "in-lines", 20), ("stdout", "in-one-endless-line", 20)],
)
def test_a_flood_arrives_unchanged_and_leaves_us_as_small_as_before(
    stage: Stage, stream: str, kind: str, megabytes: int
) -> None:
    block, times = BLOCKS[kind], megabytes * 1_000_000 // len(BLOCKS[kind]) + 1
    run = stage.start([write(stream, block, times=times, numbered=True), mark("flooded"), serve()])
    expected, size = hashlib.sha256(), 0
    for turn in range(times):
        piece = block.replace(b"{}", b"%08d" % turn)
        expected.update(piece)
        size += len(piece)
    run.wait_for_event("ready")
    peak_kib = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{run.process.pid}/status").read_text())[1])  # type: ignore[index]
    assert run.stop() == 0
    path = run.stdout_path if stream == "stdout" else run.stderr_path
    assert _hash_of_first(path, size, skip=_length_of_ours_before(path, block)) == expected.hexdigest()
    path.unlink()
    assert size > megabytes * 1_000_000
    assert peak_kib < 64 * 1024


def test_one_fault_line_in_the_middle_of_a_flood_is_found(stage: Stage) -> None:
    flood = write("stdout", BLOCKS["as-usual"], times=100_000_000 // len(BLOCKS["as-usual"]) + 1, numbered=True)
    run = stage.start([flood, *ima_at_startup()[:1], flood, leave(1)], argparse_error())
    ended = run.wait_for_event("attempt-ended")
    assert run.finish() == 70
    run.stdout_path.unlink()
    assert (ended["fault"], ended["evidence"][0]["kind"]) == ("illegal-memory-access", "root")


def _length_of_ours_before(path: Path, block: bytes) -> int:
    with path.open("rb") as file:
        return file.read(1 << 16).index(block.replace(b"{}", b"00000000")[:1000])


def _hash_of_first(path: Path, size: int, skip: int) -> str:
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(skip)
        while size and (data := file.read(min(size, 1 << 20))):
            hashed.update(data)
            size -= len(data)
    return hashed.hexdigest()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:
            pass


def read_all(reader: int) -> bytes:
    """Read until every writer is gone."""
    parts = []
    while data := os.read(reader, 1 << 20):
        parts.append(data)
    return b"".join(parts)


def alternating() -> tuple[list[Step], bytes]:
    """Return steps that write to both streams in turn, and what must come out of one pipe."""
    lines = [f"{STREAMS[turn % 2]} {turn}\n" for turn in range(300)]
    return [write(STREAMS[turn % 2], line) for turn, line in enumerate(lines)], "".join(lines).encode()


def test_the_order_of_two_streams_in_one_pipe_is_kept(stage: Stage, pipe: tuple[int, int]) -> None:
    steps, expected = alternating()
    reader, writer = pipe
    run = stage.start([*steps, *argparse_error()], stdout=writer, stderr=writer)
    os.close(writer)
    assert theirs(read_all(reader)) == expected + last_words()
    assert run.finish() == 2


def test_the_order_of_two_streams_in_one_file_is_kept(stage: Stage, tmp_path: Path) -> None:
    steps, expected = alternating()
    with (tmp_path / "log").open("wb") as log:
        run = stage.start([*steps, *argparse_error()], stdout=log.fileno(), stderr=log.fileno())
    assert run.finish() == 2
    assert theirs((tmp_path / "log").read_bytes()) == expected + last_words()


def test_a_terminal_stays_a_terminal(stage: Stage) -> None:
    ours, theirs_end = pty.openpty()
    run = stage.start([write("stdout", b"hello\n"), *argparse_error()], stdout=theirs_end, stderr=theirs_end)
    os.close(theirs_end)
    seen = b""
    try:
        while data := os.read(ours, 4096):
            seen += data
    except OSError:  # EIO: the last writer is gone
        pass
    os.close(ours)
    assert run.finish() == 2
    assert run.attempts()[0]["terminals"][1:] == [True, True]
    assert b"hello\r\n" in seen


def chatty_server(bytes_more: int) -> list[Step]:
    """Serve, after a word; another process writes on when the server runs."""
    more = write("stdout", b"y" * 4096, times=bytes_more // 4096)
    return [
        write("stdout", b"first"),
        write("stderr", b"first\n"),
        fork("writer", more, mark("written"), HOLD),
        serve(),
    ]


@pytest.mark.parametrize("stream", STREAMS)
def test_a_reader_that_goes_away_does_not_hurt_the_child(stage: Stage, pipe: tuple[int, int], stream: str) -> None:
    go = stage.root / "go"
    more = [write(name, b"z" * 100_000) for name in STREAMS]
    reader, writer = pipe
    scene = [write("stdout", b"first"), write("stderr", b"first\n"), wait_for_file(go), *more, mark("written"), serve()]
    ends: dict[str, Any] = {stream: writer}
    run = stage.start(scene, **ends)
    os.close(writer)
    assert os.read(reader, 1)
    run.wait_for("the first words on the other stream", lambda: run.attempts() and b"first" in _other(run, stream))
    os.close(reader)
    go.touch()
    run.wait_for_event("ready")
    assert "written" in run.marks()
    assert run.stop() == 0


def _other(run: Launch, stream: str) -> bytes:
    return run.stderr() if stream == "stdout" else run.stdout()


@pytest.mark.parametrize("stream", STREAMS)
def test_a_full_disk_does_not_hurt_the_child(stage: Stage, stream: str) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    ends: dict[str, Any] = {stream: full}
    run = stage.start([write(stream, b"z" * 300_000), *serve_ok()], **ends)
    os.close(full)
    run.wait_for_event("ready")
    assert run.stop() == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_a_stream_that_was_closed_from_the_start_does_not_hurt_the_child(stage: Stage, closed: str) -> None:
    run = stage.start([*serve_ok()], prefix=("/bin/sh", "-c", f'exec "$0" "$@" {closed}'))
    run.wait_for_event("ready")
    assert run.stop() == 0


def test_a_reader_that_is_late_gets_everything(stage: Stage, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    run = stage.start([*chatty_server(1 << 20)], stdout=writer)
    os.close(writer)
    run.wait_for_event("ready")
    got = bytearray()
    while len(got) < 5 + (1 << 20):
        got += os.read(reader, 1000)
    assert got == b"first" + b"y" * (1 << 20)
    assert run.stop() == 0


def test_a_reader_that_never_reads_does_not_keep_us_from_stopping(stage: Stage, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    run = stage.start([*chatty_server(64 << 20)], stdout=writer, options=("--stop-timeout", "1"))
    os.close(writer)
    run.wait_for_event("ready")
    assert run.stop() == 0
    assert "written" not in run.marks()
    assert (b"first" + b"y" * (64 << 20)).startswith(read_all(reader))


def test_our_readers_descriptor_never_becomes_non_blocking(stage: Stage, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    run = stage.start([*serve_ok()], stdout=writer, stderr=writer, stdin=reader)
    run.wait_for_event("ready")
    for descriptor in (reader, writer):
        assert not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_NONBLOCK
    assert run.stop() == 0


@pytest.mark.parametrize("events", ["/nowhere/events", "/dev/full"])
def test_events_that_cannot_be_written_do_not_hurt_the_child(stage: Stage, events: str) -> None:
    run = stage.start(serve_ok(), options=("--events", events))
    run.wait_until_ready()
    assert run.stop() == 0
    assert events in run.ours()
