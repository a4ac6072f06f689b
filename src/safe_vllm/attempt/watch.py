"""Following the processes of an attempt, so that the death of each is known at once. Standard library only."""

from __future__ import annotations

import os
import resource
import select
import time

from safe_vllm.attempt import exits, tree
from safe_vllm.attempt.titles import Titles

LOOK_AGAIN_S = 2.0
LOOK_SOON_S = 0.005
LOOK_GROWTH = 0.05
"""A tree in which processes are born is looked at often, a quiet one every two seconds: from 5 ms the pause grows."""
LOOK_CREDIT_S = 1.0
LOOK_SHARE_AT_FIRST = 1 / 20
LOOK_SHARE = 1 / 1000
"""Looking may take such parts of a core's time: the larger one until the credit is used up, then the smaller one."""
TITLES_WITHIN_S = 0.05
"""A title is mostly there at once; one that is not must not keep us from what else happens."""
SPARE_DESCRIPTORS = 16
"""So many are left for looking at ``/proc``, however many processes there are to follow."""


class _Followed:
    """A process and its names."""

    def __init__(self, pid: int, name: str, parent: _Followed | None) -> None:
        self.pid, self.name = pid, name
        self.title = name
        self.is_title_due = _is_of_vllm(name)
        self._is_copy = parent is not None and parent.name == name

    def is_called(self, name: str) -> None:
        """Take in the kernel's name for it, which changes with the title."""
        if name and name != self.name:
            self.is_title_due = _is_of_vllm(name) or _is_of_vllm(self.title)
            self.name = self.title = name
            self._is_copy = False

    def calls_itself(self, title: str) -> None:
        """Take in the title, unless it is from before the last change."""
        if title.startswith(self.name) or not _is_of_vllm(self.name):
            self.title, self.is_title_due = title, False

    def __str__(self) -> str:
        """Return its title. A fork that never took one of its own bears that of an engine, and is none."""
        return f"a fork of {self.title}" if self._is_copy and _is_of_vllm(self.title) else self.title


class Watch:
    """The processes below us, each with a pidfd that tells when it ended."""

    def __init__(self, poller: select.poll) -> None:
        """Start with nobody."""
        self._poller = poller
        self._titles = Titles()
        self._followed: dict[int, _Followed] = {}
        self._by_descriptor: dict[int, int] = {}
        self._last_pid: bytes | None = b""
        try:
            self._seen = _numbers()
        except OSError:
            self._seen = set()
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
            try:
                self._add_new(now)
                self._last_pid = last_pid
            except OSError:  # what is known stays known, and the next look may see more
                pass
        self._look_at_names()
        self._plan_next(now, time.thread_time() - began)

    def _look_at_names(self) -> None:
        for followed in self._followed.values():  # vLLM renames its processes, more than once
            followed.is_called(tree.name(followed.pid))
        due = [followed.pid for followed in self._followed.values() if followed.is_title_due]
        if due:
            for pid, title in self._titles.read(due, TITLES_WITHIN_S).items():
                self._followed[pid].calls_itself(title)

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
        ours = {os.getpid(), *self._followed}
        while found_ours := [found for found in new if found.parent in ours and found.pid not in ours]:
            for found in found_ours:
                ours.add(found.pid)
                self._add(found)
                self._stirred_at = now
        self._seen = there

    def _add(self, found: tree.Process) -> None:
        if found.pid in self._followed or found.is_zombie:
            return
        descriptor = tree.open_pidfd(found)
        if descriptor is None:
            return
        if descriptor >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_DESCRIPTORS:
            os.close(descriptor)
            return
        name, parent = tree.name(found.pid), self._followed.get(found.parent)
        if parent:  # it may have taken its title since the last look, and before it forked
            parent.is_called(tree.name(parent.pid))
        self._followed[found.pid] = _Followed(found.pid, name, parent)
        self._by_descriptor[descriptor] = found.pid
        self._poller.register(descriptor, select.POLLIN)

    def title(self, pid: int) -> str:
        """Return what a process calls itself, as far as that is known."""
        return str(self._followed[pid]) if pid in self._followed else tree.name(pid)

    def ended(self, descriptor: int) -> tuple[int, int | None, str] | None:
        """Return number, status and title of the process behind a pidfd that woke us, once."""
        pid = self._by_descriptor.pop(descriptor, None)
        if pid is None:
            return None
        followed = self._followed.pop(pid)
        followed.is_called(tree.name(pid))
        status = exits.ended_status(pid, descriptor)
        self._poller.unregister(descriptor)
        os.close(descriptor)
        return pid, status, str(followed)


def _is_of_vllm(name: str) -> bool:
    return name.startswith(tree.OF_VLLM)


def _numbers() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _newest() -> bytes | None:
    """Return the newest process number, the last field of ``/proc/loadavg``; ``None`` where it is hidden."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return file.read().rsplit(b" ", 1)[-1]
    except OSError:
        return None
