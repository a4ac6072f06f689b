"""Following the processes of an attempt, so that the death of each is known at once. Standard library only."""

from __future__ import annotations

import os
import select
import time

from safe_vllm.attempt import tree

LOOK_AGAIN_S = 2.0
LOOK_SOON_S = 0.005
LOOK_GROWTH = 0.05
"""A tree in which processes are born is looked at often, a quiet one every two seconds: from 5 ms the pause grows."""
LOOK_CREDIT_S = 1.0
LOOK_SHARE_AT_FIRST = 1 / 20
LOOK_SHARE = 1 / 1000
"""Looking may take such parts of a core's time: the larger one until the credit is used up, then the smaller one."""


class Watch:
    """The processes below us, each with a pidfd that tells when it ended."""

    def __init__(self, poller: select.poll) -> None:
        """Start with nobody."""
        self._poller = poller
        self._titles: dict[int, str] = {}
        self._by_descriptor: dict[int, int] = {}
        self._last_pid: bytes | None = b""
        self._seen = _numbers()
        self._credit_s = LOOK_CREDIT_S
        self._looked_at = self._stirred_at = time.monotonic()
        self._next_look = 0.0

    def pause_s(self, now: float) -> float:
        """Return how long to wait until the next look."""
        return max(0.0, self._next_look - now)

    def look(self, now: float) -> None:
        """Find new processes and new titles, when it is time to."""
        if now < self._next_look:
            return
        began = time.thread_time()
        last_pid = _newest()
        if last_pid is None or last_pid != self._last_pid:
            self._last_pid = last_pid
            self._add_new(now)
        for pid, name in self._titles.items():  # vLLM renames its processes, more than once
            self._titles[pid] = _better(name, tree.title(pid))
        self._plan_next(now, time.thread_time() - began)

    def _plan_next(self, now: float, spent_s: float) -> None:
        earned_s = LOOK_SHARE * (now - self._looked_at)
        self._looked_at = now
        self._credit_s = min(LOOK_CREDIT_S, self._credit_s + earned_s) - spent_s
        pause_s = min(LOOK_AGAIN_S, LOOK_SOON_S + LOOK_GROWTH * (now - self._stirred_at))
        self._next_look = now + max(pause_s, spent_s / LOOK_SHARE_AT_FIRST, -self._credit_s / LOOK_SHARE)

    def _add_new(self, now: float) -> None:
        """Look only at processes that were not there at the last look: one of a stranger's never becomes ours."""
        there = _numbers()
        new = [found for pid in sorted(there - self._seen) if (found := tree.process(pid))]
        self._seen = there
        ours = {os.getpid(), *self._titles}
        while found_ours := [found for found in new if found.parent in ours and found.pid not in ours]:
            for found in found_ours:
                ours.add(found.pid)
                self._add(found)
                self._stirred_at = now

    def _add(self, found: tree.Process) -> None:
        if found.pid in self._titles or found.is_zombie:
            return
        descriptor = tree.open_pidfd(found)
        if descriptor is not None:
            self._titles[found.pid] = tree.title(found.pid)
            self._by_descriptor[descriptor] = found.pid
            self._poller.register(descriptor, select.POLLIN)

    def ended(self, descriptor: int) -> tuple[int, int | None, str] | None:
        """Return number, status and title of the process behind a pidfd that woke us, once."""
        pid = self._by_descriptor.pop(descriptor, None)
        if pid is None:
            return None
        name = _better(self._titles[pid], tree.title(pid))
        status = tree.ended_status(pid, descriptor)
        self._poller.unregister(descriptor)
        os.close(descriptor)
        del self._titles[pid]
        return pid, status, name


def _numbers() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _newest() -> bytes | None:
    """Return the newest process number, the last field of ``/proc/loadavg``; ``None`` where it is hidden."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return file.read().rsplit(b" ", 1)[-1]
    except OSError:
        return None


def _better(known: str, seen: str) -> str:
    """Return the title that tells more: of a process that is ending, only the first 15 bytes can be seen."""
    return known if not seen or known.startswith(seen) else seen
