"""What the guardian tells of an attempt, and the one thing that is seen without it: that the leader has ended."""

from __future__ import annotations

import os
from collections.abc import Callable

from safe_vllm.attempt import event, tree
from safe_vllm.attempt.child import Child
from safe_vllm.attempt.event import Event
from safe_vllm.attempt.left import Left
from safe_vllm.attempt.loop import Loop


class News:
    """The lines of one guardian, as they come. Only the loop's own thread touches it."""

    def __init__(
        self, loop: Loop, child: Child, happen: Callable[[Event], None], on_end: Callable[[str, int, int | None], None]
    ) -> None:
        """Listen from now on. ``on_end`` is called with title, number and status of every process that ended."""
        self._loop, self._child, self._happen, self._on_end = loop, child, happen, on_end
        self.left = Left([], [])
        self.spawn_error: int | None = None
        self.has_started = False
        self.guardian_has_ended = False
        self._has_left = False
        self._leader: int | None = None
        """A pidfd."""
        self._unread = b""
        loop.expect(child.pid)
        loop.watch(child.report, self._listen)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of the attempt, or only what cannot be ended."""
        return self.guardian_has_ended or bool(self.left)

    def close(self) -> None:
        """Listen no more."""
        self._loop.unwatch(self._child.report)
        self._let_go_of_leader()
        self._child.close()

    def _listen(self) -> None:
        received = os.read(self._child.report, 65536)
        if not received:
            self._loop.unwatch(self._child.report)
            self.guardian_has_ended = True
            return
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            self._on_line(line.decode(errors="replace").split(" ", 3))

    def _on_line(self, words: list[str]) -> None:
        match words:
            case ["started", pid]:
                self.has_started = True
                self._follow(int(pid))
                self._happen(event.Spawned())
            case ["unspawnable", number]:
                self.spawn_error = int(number)
            case ["left", status]:
                self._has_left = True
                self._happen(event.LeaderEnded(int(status)))
            case ["ended", pid, status, title]:
                self._on_end(title, int(pid), None if status == "?" else int(status))
            case ["heard"]:
                self._child.on_answer()
            case ["stuck" | "foreign" as why, pid, *title]:
                getattr(self.left, why).append(f"{' '.join(title)} ({pid})")

    def _follow(self, pid: int) -> None:
        """Open a pidfd of the leader, unless it is gone and its number another's."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return
        self._leader = descriptor
        try:
            found = tree.process(pid)
        except OSError:
            found = None
        if found and found.parent == self._child.pid:
            self._loop.watch(descriptor, self._on_leader_end)
        else:
            self._let_go_of_leader()

    def _on_leader_end(self) -> None:
        """Have the guardian answer: one that stands still wakes up by it, and one that hangs is found out."""
        self._let_go_of_leader()
        if not self._has_left:
            self._child.order("leader", 0, self._loop.now())

    def _let_go_of_leader(self) -> None:
        if self._leader is not None:
            self._loop.unwatch(self._leader)
            os.close(self._leader)
            self._leader = None
