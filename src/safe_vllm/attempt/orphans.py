"""What to do when a guardian was killed: its tree is handed to us, and must end."""

from __future__ import annotations

import os
import signal
import time

from safe_vllm.attempt import tree

LIMIT_S = 10.0
LOOK_AGAIN_S = 0.05


def end_session(leader: int) -> None:
    """Kill every descendant of ours that belongs to the leader's session, or descends from one that does.

    Others below us are no business of ours: a container's sidecars, say. Waits for 10 seconds at most.
    """
    until = time.monotonic() + LIMIT_S
    while (found := _belonging(leader)) and time.monotonic() < until:
        for known in found:
            tree.send(known, signal.SIGKILL)
        _reap({known.pid for known in found})
        time.sleep(LOOK_AGAIN_S)


def _belonging(leader: int) -> list[tree.Process]:
    found: dict[int, tree.Process] = {}
    for known in tree.descendants(os.getpid()):  # parents come before their children
        if known.session == leader or known.parent in found:
            found[known.pid] = known
    return list(found.values())


def _reap(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # not handed to us yet
            pass
