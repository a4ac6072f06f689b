"""Full titles of processes, each read in a thread of its own: one of them may take for ever. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Thread

from safe_vllm.attempt import tree


class Titles:
    """What processes call themselves, as far as it can be read."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._readers: dict[int, Thread] = {}
        self._found: dict[int, str] = {}

    def read(self, pids: Sequence[int], within_s: float) -> dict[int, str]:
        """Return the titles that were read so far. Waits, for so long at most, for those not asked for before."""
        self._readers = {pid: reader for pid, reader in self._readers.items() if reader.is_alive()}
        until = time.monotonic() + within_s
        for reader in [self._begin(pid) for pid in pids if pid not in self._found and pid not in self._readers]:
            if reader:
                reader.join(max(0.0, until - time.monotonic()))
        return {pid: title for pid in pids if (title := self._found.pop(pid, ""))}

    def _begin(self, pid: int) -> Thread | None:
        reader = Thread(target=self._read, args=(pid,), daemon=True)
        try:
            reader.start()
        except RuntimeError:  # the limit of threads is reached: another time
            return None
        self._readers[pid] = reader
        return reader

    def _read(self, pid: int) -> None:
        self._found[pid] = tree.title(pid)
