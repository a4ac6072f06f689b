"""What to do when a guardian was killed: its tree is handed to us, and must end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from safe_vllm.attempt import tree
from safe_vllm.attempt.left import Left
from safe_vllm.attempt.titles import Titles
from safe_vllm.errors import Status, Trouble, reason_of

LIMIT_S = 10.0
LOOK_AGAIN_S = 0.05
LOOK_FOR_S = 2.0
TITLES_WITHIN_S = 0.5
"""Whose title cannot be read by then is called what the kernel calls it."""

T = TypeVar("T")


class Bystanders(NamedTuple):
    """The processes below us that are no business of ours: a container's sidecars, say."""

    known: frozenset[tuple[int, int]]
    """Number and start time of each."""
    sessions: frozenset[int]
    """Theirs and ours. No process of an attempt can be in one of these, so whoever is in one is a bystander too."""


def bystanders() -> Bystanders:
    """Return who is below us now, before there is a guardian. Raises Trouble when nobody can tell."""
    found = _told(lambda: tree.descendants(os.getpid()))
    sessions = {os.getsid(0), *(known.session for known in found)}
    return Bystanders(frozenset((known.pid, known.started) for known in found), frozenset(sessions))


def end_all_but(spared: Bystanders) -> Left:
    """Kill every descendant of ours that is neither spared nor descends from one who is. Takes 10 seconds at most.

    Raises Trouble when nobody can tell who is left.
    """
    until = time.monotonic() + LIMIT_S
    while (left := _told(lambda: _killed(spared))) and time.monotonic() < until:
        time.sleep(LOOK_AGAIN_S)
    return _named(left)


def _killed(spared: Bystanders) -> list[tree.Process]:
    """Return who is not dead yet; who has ended and cannot be reaped here is somebody else's to reap."""
    found = _others(spared)
    tree.kill(lambda: _living_others(spared))
    _reap({known.pid for known in found})
    return _living_others(spared)


def _told(look: Callable[[], T]) -> T:
    """Look at processes, again and again where the system is short of something."""
    until = time.monotonic() + LOOK_FOR_S
    while True:
        try:
            return look()
        except OSError as error:
            if time.monotonic() > until:
                told = f"the processes of this machine cannot be listed: {reason_of(error)}"
                raise Trouble(told, hint="check its limits on open files and memory", status=Status.PASSING) from error
        time.sleep(LOOK_AGAIN_S)


def _named(left: list[tree.Process]) -> Left:
    titles, said = Titles().read([known.pid for known in left], TITLES_WITHIN_S), Left([], [])
    for known in left:
        told = f"{titles.get(known.pid) or tree.name(known.pid)} ({known.pid})"
        (said.foreign if tree.is_foreign(known) else said.stuck).append(told)
    return said


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
