"""What a test of something that could take for ever is guarded with."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from safe_vllm.attempt.loop import Loop
from safe_vllm.attempt.relay import Outlet
from safe_vllm.early import STOP_SIGNALS

DEADLINE_S = 60


@pytest.fixture
def deadline() -> Iterator[None]:
    """Fail a test that waits, or searches, without end. A regular expression looks for signals while it searches."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"not done after {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(DEADLINE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Return a loop that hears signals, and give them back afterwards."""
    numbers = (*STOP_SIGNALS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCHLD)
    before, hook = {number: signal.getsignal(number) for number in numbers}, threading.excepthook
    yield Loop(Outlet(1), Outlet(2), frozenset())
    signal.set_wakeup_fd(-1)
    threading.excepthook = hook
    for number, handler in before.items():
        signal.signal(number, handler)
