"""Waits for what may never answer, such as a disk that hangs, and for so long only.

It is asked in a thread. One that never comes back is left behind: no signal reaches it, so nobody could end it either.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from safe_vllm.early import STOP_SIGNALS

T = TypeVar("T")


def within(seconds: float, question: Callable[[], T]) -> T | None:
    """Return the answer, or raise what the question raises; ``None``: there was none within so many seconds."""
    asked = _Asked(question)
    if thread := start(asked.run):
        thread.join(seconds)
    if asked.error is not None:
        raise asked.error
    return asked.answer


def start(work: Callable[[], None]) -> threading.Thread | None:
    """Run something in a thread that holds up nobody's end; ``None``: the machine is at its limit of threads."""

    def apart() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # for the loop to handle
        work()

    thread = threading.Thread(target=apart, daemon=True, name="patience")
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class _Asked(Generic[T]):
    """A question, and what came of it."""

    def __init__(self, question: Callable[[], T]) -> None:
        self._question = question
        self.answer: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        with self:
            self.answer = self._question()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        self.error = error
        return True  # it is raised where the answer is waited for


class Clerk(Generic[T]):
    """Does one thing after another in a thread of its own, in the order in which they were given."""

    def __init__(self, deed: Callable[[T], None], room: int) -> None:
        """Remember what to do with each; ``room``: for so many that wait."""
        self._deed, self._room = deed, room
        self._waiting: deque[T] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def give(self, what: T) -> bool:
        """Give it something to do; return whether there was room."""
        with self._changed:
            if len(self._waiting) >= self._room:
                return False
            self._waiting.append(what)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = start(self._work)
        return True

    def is_done(self, within_s: float = 0.0) -> bool:
        """Return whether nothing waits any more, for so many seconds at most."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, within_s)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                following = self._waiting[0]
            self._deed(following)
            with self._changed:
                self._waiting.popleft()  # only now: what is under way counts as waiting
                self._changed.notify_all()
