"""What happened, as one JSON object per line in a file. Nothing about it may hurt the launch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from safe_vllm.errors import reason_of
from safe_vllm.patience import Clerk
from safe_vllm.printable import as_utf8

VERSION = 1
"""Of the form of events. It grows when a field changes its meaning or goes, not when one comes."""
ROOM = 1000
"""So many events wait for a file that does not answer; those that come then are lost."""
WAIT_S = 0.2
"""Nobody notices a launch that stands still for so long, once."""
ANSWERS_WITHIN_S = 5.0
FINISH_WITHIN_S = 2.0


def _launch() -> str:
    return f"{os.getpid()}-{time.time_ns() // 1_000_000:x}"


@dataclass(frozen=True)
class Origin:
    """Which launch an event is of: a file may hold those of many."""

    launch: str = field(default_factory=_launch)
    """The process and when it began: a number may come again."""
    launcher_pid: int = field(default_factory=os.getpid)

    def stamp(self) -> dict[str, object]:
        """Return what every event holds."""
        seconds, rest = divmod(time.time_ns(), 1_000_000_000)
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return {
            "v": VERSION,
            "time": f"{now}.{rest // 1_000_000:03}Z",
            "launch": self.launch,
            "launcher_pid": self.launcher_pid,
        }


class EventLog:
    """Appends events to a file; one that cannot be written is given up for this event and tried again for the next.

    A thread writes, because a file may be on a disk that hangs. One that does not is waited for, so that an event is
    in the file before anything else happens.
    """

    def __init__(self, path: str | None) -> None:
        """Remember the path; ``None``: nobody wants to know."""
        self._path = path
        self._clerk = Clerk(self._append, ROOM)
        self._failure: str | None = None
        self._is_torn = False
        """Whether the file ends in the middle of an event."""
        self._late_since: float | None = None
        """When the file was first too slow to be waited for, since it last kept up; in monotonic seconds."""
        self._is_full = False

    @property
    def error(self) -> str | None:
        """Why the last event was not written, or is not yet."""
        if self._is_full:
            return f"{self._path}: it does not answer, and events are lost"
        if self._late_since is not None and time.monotonic() - self._late_since > ANSWERS_WITHIN_S:
            return f"{self._path}: it does not answer"
        return self._failure

    def write(self, event: Mapping[str, object]) -> None:
        """Append one event."""
        if self._path is None:
            return
        line = as_utf8(json.dumps(event, ensure_ascii=False)).encode() + b"\n"
        self._is_full = not self._clerk.give(line)
        self._wait(0.0 if self._late_since else WAIT_S)

    def finish(self) -> None:
        """Wait a moment for the events that are not written yet."""
        self._wait(FINISH_WITHIN_S)

    def _wait(self, within_s: float) -> None:
        if self._clerk.is_done(within_s):
            self._late_since = None
        elif self._late_since is None:
            self._late_since = time.monotonic()

    def _append(self, line: bytes) -> None:
        assert self._path is not None
        # O_NONBLOCK: a FIFO without a reader must not stop us. Appending keeps two writers apart.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, 0o600)
            try:
                self._write_whole(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._failure = f"{self._path}: {reason_of(error)}"

    def _write_whole(self, descriptor: int, line: bytes) -> None:
        """Write a line, after a newline where the last one was cut off: it is lost then, and this one is not."""
        whole = b"\n" + line if self._is_torn else line
        written = os.write(descriptor, whole)
        if written:
            self._is_torn = written < len(whole)
        is_cut = written < len(whole)
        self._failure = f"{self._path}: only a part of an event found room" if is_cut else None
