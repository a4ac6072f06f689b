"""What must hold after every random act, whatever happened in it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise

from chaos_act import ENDINGS
from chaos_attempt import COREDUMP, COREDUMP_GOES_ON, SHUTDOWN
from chaos_deeds import STRANGER
from chaos_play import Played
from chaos_voice import OURS, plain_lines, without_ours, written_lines
from launch import Entry

from leftovers import below

LEFT_WITHIN_S = 20.0
"""A guardian that lost safe-vllm gives the tree three seconds."""
SERVER_SAYS = (
    "INFO:     Application startup complete.\n"
    "INFO:     Shutting down\nINFO:     Finished server process [1]\n"
    "ERROR 11-30 08:40:48 [async_llm.py:774] AsyncLLM output_handler failed.\n"
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
    "See stack trace (above) for the root cause.\n"
    "OSError: [Errno 98] Address already in use\n" + SHUTDOWN + COREDUMP + COREDUMP_GOES_ON
)


def troubles(played: Played) -> list[str]:
    """Return every promise that was not kept."""
    if played.never_ended:
        return ["it never ended"]
    return [*_left(played), *_status(played), *_attempts(played), *_events(played), *_output(played), *_fake(played)]


def _left(played: Played) -> Iterator[str]:
    """P8, P10: nothing is left, and a sidecar is."""
    until = time.monotonic() + (LEFT_WITHIN_S if played.is_killed else 0)
    while (left := _survivors(played)) and time.monotonic() < until:
        time.sleep(0.02)
    yield from (f"left behind: {survivor}" for survivor in left)
    sidecars = [known for known in below(os.getpid(), played.run.older) if str(known).endswith(" sleep 300")]
    if played.act.has_sidecar and played.run.attempts() and not sidecars:
        yield "the sidecar did not survive"
    for sidecar in sidecars:
        os.kill(sidecar.pid, signal.SIGKILL)


def _survivors(played: Played) -> list[str]:
    return [survivor for survivor in played.run.survivors() if not survivor.endswith(" sleep 300")]


def _status(played: Played) -> Iterator[str]:
    """P9, P14: a stop that was asked for is 0; what else is right depends on how the attempts ended."""
    status, run = played.status, played.run
    if played.is_killed:
        if status != -signal.SIGKILL and not run.events("launch-ended"):  # it may have been at its end
            yield f"status {status} after SIGKILL"
    elif played.was_running_at_stop and status != 0:
        yield f"status {status} although it was asked to stop while an attempt was running"
    elif status not in _right_statuses(played):
        yield f"status {status} where {sorted(_right_statuses(played))} would be right"


def _right_statuses(played: Played) -> set[int]:
    run = played.run
    kinds = [played.act.attempts[n].kind for n in range(min(len(run.attempts()), len(played.act.attempts)))]
    right = {70} | {status for kind in kinds for status in ENDINGS.get(kind, ())}
    if any(deed.endswith("SIGTERM") and deed.startswith("kill") for deed in played.done):
        right.add(0)
    if "take-port" in played.done or played.act.is_port_taken:
        right.add(75)
    return right | ({0} if played.stopped_at is not None else set())


def _attempts(played: Played) -> Iterator[str]:
    """P8, P9: one attempt at a time, and none after a stop was asked for."""
    run = played.run
    started = run.events("attempt-started")
    if played.stopped_at is not None and len(started) > played.attempts_at_stop:
        yield f"attempt {len(started)} began after a stop was asked for"
    for entry in run.attempts():
        if entry["left_from_before"]:
            yield f"attempt {entry['attempt']} met processes of the one before: {entry['left_from_before']}"
    numbers = [event["attempt"] for event in started]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"attempts are numbered {numbers}"


def _events(played: Played) -> Iterator[str]:
    """Events are JSON, in order, and complete; P11: ready is said once, and not after a stop was asked for."""
    path = played.run.events_path
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    try:
        events: list[Entry] = [json.loads(line) for line in lines]
    except ValueError as error:
        yield f"an event is no JSON: {error}"
        return
    names = [event["event"] for event in events]
    if any(before["at_s"] > after["at_s"] for before, after in pairwise(events)):
        yield "events are out of order"
    ready = [event["attempt"] for event in events if event["event"] == "ready"]
    if len(ready) != len(set(ready)):
        yield f"ready was said more than once: {ready}"
    if "stop-asked" in names and "ready" in names[names.index("stop-asked") :]:
        yield "ready was said after a stop was asked for"
    if not played.is_killed and names:
        yield from _ends_well(played, names, events[-1])


def _ends_well(played: Played, names: list[str], last: Entry) -> Iterator[str]:
    if (names[0], names[-1]) != ("launch-started", "launch-ended"):
        yield f"events begin with {names[0]} and end with {names[-1]}"
    elif last["status"] != played.status:
        yield f"the last event tells of status {last['status']}, and it was {played.status}"
    if names.count("attempt-started") != names.count("attempt-ended"):
        yield "not every attempt that was started is told to have ended"


def _output(played: Played) -> Iterator[str]:
    """P7, P13: every byte of the child in its order, and nothing besides but lines of ours."""
    may_lack = played.is_killed or played.reader_is_lost
    theirs = {stream: without_ours(output) for stream, output in played.outputs.items()}
    known = plain_lines((SERVER_SAYS + STRANGER.decode()).encode())
    marks = frozenset(played.run.marks())
    for attempt in played.act.attempts:
        known |= written_lines(attempt.scene)
        for voice in attempt.voices:
            yield from voice.trouble(theirs, marks, may_lack=may_lack)
    for stream, output in played.outputs.items():
        if unknown := plain_lines(output) - known if not may_lack else set():
            yield f"{stream}: nobody wrote these lines: {sorted(unknown)}"
        if b"bug in safe-vllm" in output:
            yield "a bug in safe-vllm"
        if "json" in played.act.options:
            yield from (f"no JSON: {line!r}" for line in OURS.findall(output) if not _is_json(line))


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.partition(b": ")[2]), dict)
    except ValueError:
        return False


def _fake(played: Played) -> Iterator[str]:
    """P13: the child never finds its pipes broken. That others of the fake were ended before it is no trouble."""
    if played.is_killed or "kill-guardian" in played.done:
        return
    for entry in played.run.entries("bug"):
        *lines, error = entry["traceback"].splitlines()
        waited_for = error.startswith("BrokenPipeError") and any(line.endswith(", in tell") for line in lines)
        if not waited_for and not error.startswith(("ProcessLookupError", "FileNotFoundError")):
            yield f"the fake is broken: {[*lines[-2:], error]}"
