"""Passing the child's bytes on, unchanged and at once, without ever being the reason that it stalls."""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
from collections import deque

CHUNK_BYTES = 256 * 1024
ATOMIC_BYTES = 4096
"""A pipe that polls writable takes this much without blocking (PIPE_BUF)."""


def is_one_stream(first: int = 1, second: int = 2) -> bool:
    """Return whether both descriptors lead to the same pipe, file or terminal, so that their order matters."""
    try:
        one, two = os.fstat(first), os.fstat(second)
    except OSError:
        return False
    return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)


class Outlet:
    """One of our own output streams. It never blocks us, and it survives the loss of its reader.

    The descriptor is shared with whoever started us, so O_NONBLOCK is never set on it: a pipe or terminal is opened
    a second time, a socket is written with MSG_DONTWAIT, and a regular file does not block.
    """

    def __init__(self, descriptor: int) -> None:
        """Find out what kind of thing the descriptor is."""
        self._descriptor = descriptor
        self._waiting: deque[memoryview] = deque()
        self._socket: socket.socket | None = None
        self._own: int | None = None
        self._must_poll = False
        self.is_lost = False
        self.is_at_line_start = True
        self.taken_bytes = 0
        """What was passed on, or waits for our reader."""
        self._look_at()

    def _look_at(self) -> None:
        try:
            mode = os.fstat(self._descriptor).st_mode
        except OSError:
            self.is_lost = True
            return
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(self._descriptor))
        elif not stat.S_ISREG(mode):
            try:
                self._own = os.open(f"/proc/self/fd/{self._descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError:  # somebody else's pipe or terminal: not ours to open
                self._must_poll = True

    @property
    def is_blocked(self) -> bool:
        """Whether the reader is behind: then nothing more should be taken from the child."""
        return bool(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """How much our reader is behind."""
        return sum(map(len, self._waiting))

    def fileno(self) -> int:
        """Return the descriptor to poll for writability."""
        return self._descriptor if self._own is None else self._own

    def write(self, data: bytes) -> None:
        """Pass bytes on; what does not fit now waits for ``flush``."""
        if not data or self.is_lost:
            return
        self.is_at_line_start = data.endswith(b"\n")
        self.taken_bytes += len(data)
        self._waiting.append(memoryview(data))
        self.flush()

    def say(self, line: str) -> None:
        """Write a line of our own. It starts on a new line, whatever the child was in the middle of."""
        start = b"" if self.is_at_line_start else b"\n"
        self.write(start + line.encode(errors="surrogateescape") + b"\n")

    def flush(self) -> None:
        """Write as much of what waits as the reader takes now."""
        while self._waiting and not self.is_lost:
            try:
                written = self._write_some(self._waiting[0])
            except BlockingIOError:
                return
            except OSError as error:
                self._on_error(error)
                return
            if written == len(self._waiting[0]):
                self._waiting.popleft()
            else:
                self._waiting[0] = self._waiting[0][written:]

    def _write_some(self, data: memoryview) -> int:
        if self._socket is not None:
            return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        if self._own is not None:
            return os.write(self._own, data)
        if self._must_poll:
            if not select.select([], [self._descriptor], [], 0)[1]:
                raise BlockingIOError
            data = data[:ATOMIC_BYTES]
        return os.write(self._descriptor, data)

    def _on_error(self, error: OSError) -> None:
        """A full disk loses these bytes and may have room for the next; a reader that went away does not come back."""
        self._waiting.clear()
        self.is_lost = error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
