"""What happened, as one JSON object per line in a file. Nothing about it may hurt the launch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

VERSION = 1
"""Of the form of events. It grows when a field changes its meaning or goes, not when one comes."""


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
    """Appends events to a file; one that cannot be written is given up for this event and tried again for the next."""

    def __init__(self, path: str | None) -> None:
        """Remember the path; ``None``: nobody wants to know."""
        self._path = path
        self.error: str | None = None
        """Why the last event was not written."""

    def write(self, event: Mapping[str, object]) -> None:
        """Append one event."""
        if self._path is None:
            return
        line = json.dumps(event, ensure_ascii=False).encode(errors="surrogateescape") + b"\n"
        # O_NONBLOCK: a FIFO without a reader must not stop us. Appending keeps two writers apart.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
            self.error = None
        except OSError as error:
            self.error = f"{self._path}: {error.strerror}"
