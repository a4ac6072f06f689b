"""The requests of ours that are under way: vLLM, asked to end, waits for every connection that is still open."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Calls:
    """Connections to one vLLM, each in a thread of its own, that can all be cut at once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_over = False

    @contextmanager
    def open(self, connected: socket.socket) -> Iterator[None]:
        """Have a connection cut by ``hang_up`` while the block lasts. Raises ConnectionAbortedError after it."""
        with self._lock:
            if self._is_over:
                raise ConnectionAbortedError("vLLM is being ended")
            self._open.add(connected)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connected)

    def hang_up(self) -> None:
        """Cut all connections, and let none come after them."""
        with self._lock:
            self._is_over = True
            for connected in self._open:
                with suppress(OSError):  # cut already, by the other side
                    connected.shutdown(socket.SHUT_RDWR)
