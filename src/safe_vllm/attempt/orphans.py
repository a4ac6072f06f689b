"""What to do when a guardian was killed: its tree is handed to us, and must end."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from safe_vllm.attempt import tree

LIMIT_S = 10.0
LOOK_AGAIN_S = 0.05


class Bystanders(NamedTuple):
    """The processes below us that are no business of ours: a container's sidecars, say."""

    known: frozenset[tuple[int, int]]
    """Number and start time of each."""
    sessions: frozenset[int]
    """Theirs and ours. No process of an attempt can be in one of these, so whoever is in one is a bystander too."""


def bystanders() -> Bystanders:
    """Return who is below us now, before there is a guardian."""
    found = tree.descendants(os.getpid())
    sessions = {os.getsid(0), *(known.session for known in found)}
    return Bystanders(frozenset((known.pid, known.started) for known in found), frozenset(sessions))


def end_all_but(spared: Bystanders) -> list[str]:
    """Kill every descendant of ours that is neither spared nor descends from one who is. Takes 10 seconds at most.

    Returns who is left: they are stuck in the kernel.
    """
    until = time.monotonic() + LIMIT_S
    while (found := _others(spared)) and time.monotonic() < until:
        tree.kill(lambda: _living_others(spared))
        _reap({known.pid for known in found})
        if not _living_others(spared):  # whoever is left has ended, and is somebody else's to reap
            return []
        time.sleep(LOOK_AGAIN_S)
    return [f"{tree.title(known.pid)} ({known.pid})" for known in _living_others(spared)]


def _living_others(spared: Bystanders) -> list[tree.Process]:
    return [known for known in _others(spared) if not known.is_zombie]


def _others(spared: Bystanders) -> list[tree.Process]:
    kept: set[int] = set()
    found = []
    for known in tree.descendants(os.getpid()):  # parents come before their children
        is_spared = (known.pid, known.started) in spared.known or known.session in spared.sessions
        if is_spared or known.parent in kept:
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
