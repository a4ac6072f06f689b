"""The child's output on its way to our own: read, passed on, and then looked at."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from safe_vllm.attempt.loop import Loop
from safe_vllm.attempt.relay import CHUNK_BYTES, Outlet
from safe_vllm.attempt.terminal import copy_size
from safe_vllm.verdict.scan import Stream

DRAIN_S = 1.0
"""How long a stranger who holds the child's pipe may keep us after the last descendant ended."""
STOPPED_DRAIN_S = 5.0
"""How long, on top, a reader of ours that is behind may keep us when a stop was asked for."""


class Streams:
    """The pipes of one attempt. While our own reader is behind, nothing is taken from the child's."""

    def __init__(self, loop: Loop, pipes: dict[Stream, int], on_chunk: Callable[[Stream, bytes], None]) -> None:
        """Start to read; ``on_chunk`` gets each chunk after it was passed on."""
        self._loop, self._pipes, self._on_chunk = loop, pipes, on_chunk
        self._paused: set[Stream] = set()
        loop.on_resize = self._resize
        for name in pipes:
            self._watch(name)

    def resume(self) -> None:
        """Go on with what was paused and need not be any more."""
        for name in [name for name in self._paused if not self._outlet(name).is_blocked]:
            self._paused.remove(name)
            self._watch(name)

    def drain(self) -> None:
        """Take what is left when the tree is gone. Only a stranger can still hold a pipe open, and not for long."""
        until = time.monotonic() + DRAIN_S
        while self._pipes and (self._paused or time.monotonic() < until):
            if self._loop.stops and time.monotonic() > until + STOPPED_DRAIN_S:
                break
            self._loop.turn(until if not self._paused else until + STOPPED_DRAIN_S if self._loop.stops else None)
            self.resume()
        for name in list(self._pipes):
            self._close(name)

    def _resize(self) -> None:
        for name, descriptor in self._pipes.items():
            copy_size(2 if name == "stderr" else 1, descriptor)

    def _outlet(self, name: Stream) -> Outlet:
        return self._loop.stderr if name == "stderr" else self._loop.stdout

    def _watch(self, name: Stream) -> None:
        self._loop.watch(self._pipes[name], lambda: self._on_output(name))

    def _on_output(self, name: Stream) -> None:
        outlet = self._outlet(name)
        chunk = _read(self._pipes[name])
        if not chunk:
            self._close(name)
            return
        outlet.write(chunk)
        if outlet.is_blocked:
            self._loop.unwatch(self._pipes[name])
            self._paused.add(name)
        self._on_chunk(name, chunk)

    def _close(self, name: Stream) -> None:
        descriptor = self._pipes.pop(name)
        self._loop.unwatch(descriptor)
        os.close(descriptor)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:  # so ends a terminal that nobody writes to any more
            return b""
        raise
