"""What to do when a guardian was killed: its tree is handed to us, and must end."""

from __future__ import annotations

import os
import signal
import time

from safe_vllm.attempt import tree

LIMIT_S = 10.0
LOOK_AGAIN_S = 0.05

Bystanders = frozenset[tuple[int, int]]
"""Number and start time of the processes below us that are no business of ours: a container's sidecars, say."""


def bystanders() -> Bystanders:
    """Return who is below us now, before there is a guardian."""
    return frozenset((found.pid, found.started) for found in tree.descendants(os.getpid()))


def end_all_but(spared: Bystanders) -> None:
    """Kill every descendant of ours that is neither spared nor descends from one who is. Takes 10 seconds at most."""
    until = time.monotonic() + LIMIT_S
    while (found := _others(spared)) and time.monotonic() < until:
        for known in found:
            tree.send(known, signal.SIGKILL)
        _reap({known.pid for known in found})
        time.sleep(LOOK_AGAIN_S)


def _others(spared: Bystanders) -> list[tree.Process]:
    kept: set[int] = set()
    found = []
    for known in tree.descendants(os.getpid()):  # parents come before their children
        if (known.pid, known.started) in spared or known.parent in kept:
            kept.add(known.pid)
        else:
            found.append(known)
    return found


def _reap(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # not handed to us yet
            pass
