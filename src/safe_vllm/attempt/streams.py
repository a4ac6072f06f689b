"""The child's output on its way to our own: read, passed on, and then looked at."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from safe_vllm.attempt.loop import Loop
from safe_vllm.attempt.relay import CHUNK_BYTES, Outlet
from safe_vllm.attempt.terminal import copy_size
from safe_vllm.verdict.scan import Stream

DRAIN_S = 1.0
"""How long a stranger who holds the child's pipe may keep us after the last descendant ended."""
DRAIN_LIMIT_BYTES = 4 * 1024 * 1024
"""How much he may make us hold for a reader that is behind."""


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
        """Take what is left when the tree is gone, also when our reader is behind: it waits with us, not in the way.

        There is no more than a pipe holds, unless a stranger still writes to it; he does not keep us long.
        """
        until = self._loop.now() + DRAIN_S
        while self._pipes and self._loop.now() < until and not self._is_too_much():
            for name in self._paused:
                self._watch(name)
            self._paused.clear()
            self._loop.turn(until)
        for name in list(self._pipes):
            self._close(name)

    def _is_too_much(self) -> bool:
        return any(self._outlet(name).waiting_bytes > DRAIN_LIMIT_BYTES for name in self._pipes)

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
