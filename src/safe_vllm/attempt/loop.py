"""The one event loop: descriptors, signals, and answers of probe threads. Everything that changes is changed here."""

from __future__ import annotations

import heapq
import itertools
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from safe_vllm.attempt.probe import NOT_ASKED, Bugs, Probe
from safe_vllm.attempt.relay import Outlet
from safe_vllm.early import STOP_SIGNALS, let_signals_come

LONGEST_WAIT_MS = 3_600_000
"""poll(2) cannot wait longer than 24 days; to wake once an hour costs nothing."""

THREAD_AGAIN_S = 1.0
PAUSED_S = 1.0
"""Who wakes up so much too late did not run meanwhile, and most likely nobody did: a container was paused."""

Callback = Callable[[], None]
_order = itertools.count()
"""Timers of the same moment come in the order in which they were set."""
T = TypeVar("T")


class StopAsked(Exception):
    """The operator wants the launch to end, and nothing is running that would have to be stopped first."""


class Loop:
    """Waits for whatever happens next. Signal handlers only wake it."""

    def __init__(self, stdout: Outlet, stderr: Outlet, ignored: frozenset[int]) -> None:
        """Take over the signals; those that were ignored when we started stay ignored."""
        self.stdout, self.stderr = stdout, stderr
        self._outlets = (stdout,) if stdout is stderr else (stdout, stderr)
        self.stops: list[int] = []
        """Every stop signal so far, in order."""
        self.on_resize: Callback = lambda: None
        """Called when the terminal changed its size."""
        self.on_suspend: Callback = lambda: None
        """Called before we stand still, as Ctrl-Z asks for."""
        self.on_resume: Callback = lambda: None
        """Called when we were continued after that."""
        self._timers: list[tuple[float, int, Callback]] = []
        self._suspended_s = 0.0
        self._awaited: dict[int, int | None] = {}
        self._poller = select.poll()
        self._callbacks: dict[int, Callback] = {}
        self._answers: SimpleQueue[Callback] = SimpleQueue()
        self._bugs = Bugs(stderr.say)
        self._wakeup, self._waker = os.pipe()
        for descriptor in (self._wakeup, self._waker):
            os.set_blocking(descriptor, False)
        self._poller.register(self._wakeup, select.POLLIN)
        threading.excepthook = self._on_thread_error
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCHLD):
            if number not in ignored:
                signal.signal(number, lambda *_: None)
        if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:
            signal.signal(signal.SIGTSTP, lambda *_: None)
        self._handled = frozenset(STOP_SIGNALS) - ignored
        let_signals_come()

    def now(self) -> float:
        """Return monotonic seconds, those aside in which we stood still: no deadline comes closer meanwhile."""
        return time.monotonic() - self._suspended_s

    def watch(self, descriptor: int, callback: Callback) -> None:
        """Call back whenever the descriptor has something to read, or has ended."""
        self._callbacks[descriptor] = callback
        self._poller.register(descriptor, select.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching; a descriptor that is not watched is fine."""
        if self._callbacks.pop(descriptor, None):
            self._poller.unregister(descriptor)

    def call_in(self, seconds: float, callback: Callback) -> None:
        """Call back once, that long from now, or as soon after it as the loop turns."""
        heapq.heappush(self._timers, (self.now() + seconds, next(_order), callback))

    def _call_what_is_due(self) -> None:
        while self._timers and self._timers[0][0] <= self.now():
            _, _, callback = heapq.heappop(self._timers)
            callback()

    def ask(self, question: Callable[[], T], on_answer: Callable[[T], None], on_none: Callback = lambda: None) -> None:
        """Run a blocking question in a thread of its own and take the answer in the loop.

        ``on_none`` is called instead where it ended in an exception. A bug is reported, and ends no healthy server.
        A time-out may be due to a suspension: a question in which one falls is asked again.
        """

        def work() -> None:
            # for the loop to handle: at the very end this thread may be the last that would take one, and die of it
            signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            before = None
            while before != self._suspended_s:
                before = self._suspended_s
                answer = question()
            self._answers.put(lambda: on_answer(answer))
            self._wake()

        self._start(work, on_none)

    def _start(self, work: Callback, on_none: Callback) -> None:
        """Start a thread, or try again in a while: a machine at its limit of threads has some again when others end."""
        try:
            Probe(work, on_none).start()
        except RuntimeError:
            self.call_in(THREAD_AGAIN_S, lambda: self._start(work, on_none))

    def _on_thread_error(self, failed: threading.ExceptHookArgs) -> None:
        """Report a bug in a question from the loop, and say there that no answer comes."""
        if failed.exc_value and not isinstance(failed.exc_value, NOT_ASKED):
            bug = failed.exc_value
            self._answers.put(lambda: self._bugs.tell(bug))
        if isinstance(failed.thread, Probe):
            self._answers.put(failed.thread.on_none)
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._waker, b"\0")
        except BlockingIOError:  # full of wake-ups already
            pass

    def turn(self, until: float | None) -> None:
        """Wait for one round of events, at most until the given time by ``now``, and handle them."""
        if self._timers:
            until = self._timers[0][0] if until is None else min(until, self._timers[0][0])
        wait_ms = None if until is None else min(max(0.0, until - self.now()) * 1000, LONGEST_WAIT_MS)
        for outlet in self._outlets:
            if outlet.is_blocked:
                self._poller.register(outlet.fileno(), select.POLLOUT)
        ready = self._wait(wait_ms)
        for outlet in self._outlets:
            if outlet.is_blocked:
                self._poller.unregister(outlet.fileno())
                outlet.flush()
        for descriptor, _ in ready:
            if descriptor == self._wakeup:
                self._on_wakeup()
            elif callback := self._callbacks.get(descriptor):
                callback()
        self._call_what_is_due()

    def _wait(self, wait_ms: float | None) -> list[tuple[int, int]]:
        """Return the descriptors that are ready, and notice if we were stopped meanwhile without being told."""
        began = time.monotonic()
        ready = self._poller.poll(wait_ms)
        late_s = 0.0 if wait_ms is None else time.monotonic() - began - wait_ms / 1000
        if late_s > PAUSED_S:
            self._suspended_s += late_s
        return ready

    def _on_wakeup(self) -> None:
        woken = os.read(self._wakeup, 65536)
        self.stops += [number for number in woken if number in self._handled]
        if signal.SIGWINCH in woken:
            self.on_resize()
        if signal.SIGCHLD in woken:
            self.reap()
        if signal.SIGTSTP in woken:
            self._suspend()
        while not self._answers.empty():
            self._answers.get()()

    def _suspend(self) -> None:
        """Stand still as the signal would have made us do, and the attempt with us, until the shell continues us."""
        self.on_suspend()
        began = time.monotonic()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._suspended_s += time.monotonic() - began
        self.on_resume()
        self.on_resize()

    def reap(self) -> None:
        """Take in every ended child, also one that is not ours but was handed to us (PID 1)."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._awaited:
                self._awaited[pid] = os.waitstatus_to_exitcode(status)

    def expect(self, pid: int) -> None:
        """Keep the status of this child for ``wait_for``."""
        self._awaited[pid] = None

    def wait_for(self, pid: int) -> int:
        """Return the status of an expected child that is about to end; a signal as its negative number."""
        while (status := self._awaited[pid]) is None:
            self.turn(None)
        del self._awaited[pid]
        return status

    def sleep(self, seconds: float) -> None:
        """Let time pass while everything stays alive. Raises StopAsked when the operator asks for the end."""
        until = self.now() + seconds
        while True:
            self.turn(until)
            if self.stops:
                raise StopAsked
            if self.now() >= until:
                return

    def drain(self, seconds: float) -> None:
        """Deliver what still waits for our reader, for so long at most, or until another stop signal."""
        until, before = self.now() + seconds, len(self.stops)
        while any(outlet.is_blocked for outlet in self._outlets) and self.now() < until:
            self.turn(until)
            if len(self.stops) > before:
                return
