"""Finds and ends what a test left running.

This process becomes a subreaper: whatever a test starts stays below it, also what left its session, lost its parent
or was given an empty environment.
"""

from __future__ import annotations

import os
import signal
import time
from ctypes import CDLL, c_ulong
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Process:
    """One process, told from a later one with the same number."""

    pid: int
    born: str
    """When it started, in the kernel's ticks."""

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended. A zombie has."""
        return (now := _stat(self.pid)) is not None and now[0] not in ("Z", "X") and now[19] == self.born

    def __str__(self) -> str:
        """Return its number and its command line."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
        except OSError:
            words = b"(ended)"
        return f"{self.pid} {words.decode(errors='replace')[:200]}"


def adopt_orphans() -> None:
    """Make the kernel hand us every orphan below us."""
    CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, c_ulong(1), c_ulong(0), c_ulong(0), c_ulong(0))


def below(root: int, without: frozenset[Process] = frozenset()) -> list[Process]:
    """Return the living processes below ``root``, leaving out some and all that is below those."""
    children: dict[int, list[Process]] = {}
    dead = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            process = Process(int(entry.name), fields[19])
            children.setdefault(int(fields[1]), []).append(process)
            if fields[0] in ("Z", "X"):
                dead.add(process)
    found, waiting = [], [root]
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in without]
        found += [child for child in new if child not in dead]
        waiting += [child.pid for child in new]
    return found


def end_all(root: int, without: frozenset[Process], within_s: float = 10) -> list[str]:
    """End what is below ``root``; return the command lines of those that had to be ended."""
    ended: dict[Process, str] = {}
    deadline = time.monotonic() + within_s
    while (left := below(root, without)) and time.monotonic() < deadline:
        for process in left:
            ended.setdefault(process, str(process))
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    return [*ended.values()]


def _stat(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` from the third on."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].decode().split()
    except OSError:
        return None
