"""What happened, as one JSON object per line in a file. Nothing about it may hurt the launch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping


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
