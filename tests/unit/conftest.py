"""What a test of something that could take for ever is guarded with."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

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
