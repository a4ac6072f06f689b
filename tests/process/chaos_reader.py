"""Whoever reads what safe-vllm writes in a random scene: quick, slow, or gone before the end."""

from __future__ import annotations

import os
import pty
import select
import socket
import threading

SLOW_READS = 300
"""So many reads of a slow reader are small and come late: more than all that a scene says."""
LATE_S = 0.004
LOOK_AGAIN_MS = 20


class Reader:
    """Reads one descriptor to its end in a thread."""

    def __init__(self, descriptor: int, *, is_slow: bool) -> None:
        """Begin."""
        self.got = bytearray()
        self._descriptor = descriptor
        self._slow_reads = SLOW_READS if is_slow else 0
        self._is_lost = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def lose(self) -> None:
        """Go away in the middle of it."""
        self._is_lost.set()
        self._thread.join()

    def finish(self, within_s: float) -> bool:
        """Wait for the last writer to go; return whether it did."""
        self._thread.join(within_s)
        is_over = not self._thread.is_alive()
        self.lose()
        return is_over

    def _read(self) -> None:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        while not self._is_lost.wait(LATE_S if self._slow_reads else 0):
            if not poller.poll(LOOK_AGAIN_MS):
                continue
            try:
                data = os.read(self._descriptor, 4096 if self._slow_reads else 1 << 16)
            except OSError:  # EIO: a terminal that nobody writes to any more; ECONNRESET: unread data on a socket
                break
            if not data:
                break
            self._slow_reads = max(0, self._slow_reads - 1)
            self.got += data
        os.close(self._descriptor)


def channel(kind: str) -> tuple[int, int]:
    """Return our end and that of safe-vllm."""
    if kind == "terminal":
        return pty.openpty()
    if kind == "sockets":
        ours, theirs = socket.socketpair()
        return ours.detach(), theirs.detach()
    return os.pipe()
