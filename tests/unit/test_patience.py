"""Waiting for what may never answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from safe_vllm.early import STOP_SIGNALS
from safe_vllm.patience import Clerk, within

DEADLINE_S = 30.0


@pytest.fixture
def disk() -> Iterator[threading.Event]:
    """Something that does not answer before it is set."""
    event = threading.Event()
    yield event
    event.set()


def test_an_answer_that_comes_is_returned() -> None:
    assert within(DEADLINE_S, lambda: "held") == "held"


def test_one_that_does_not_come_in_time_is_none(disk: threading.Event) -> None:
    assert within(0.01, disk.wait) is None


def test_what_is_raised_surfaces_where_the_answer_is_waited_for() -> None:
    def fails() -> None:
        raise PermissionError(13, "permission denied")

    with pytest.raises(PermissionError, match="permission denied"):
        within(DEADLINE_S, fails)


def test_stop_signals_are_left_to_others() -> None:
    blocked = within(DEADLINE_S, lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    assert blocked is not None and set(STOP_SIGNALS) <= blocked


def test_a_clerk_keeps_the_order() -> None:
    done: list[int] = []
    clerk = Clerk(done.append, room=1000)
    assert all(clerk.give(number) for number in range(1000))
    assert clerk.is_done(DEADLINE_S)
    assert done == list(range(1000))


def test_a_clerk_that_is_stuck_takes_no_more_than_there_is_room_for_and_goes_on_later(disk: threading.Event) -> None:
    done: list[int] = []

    def slow(number: int) -> None:
        disk.wait()
        done.append(number)

    clerk = Clerk(slow, room=3)
    assert [clerk.give(number) for number in range(5)] == [True, True, True, False, False]
    assert not clerk.is_done()
    disk.set()
    assert clerk.is_done(DEADLINE_S)
    assert clerk.give(5)
    assert clerk.is_done(DEADLINE_S)
    assert done == [0, 1, 2, 5]


def test_a_clerk_without_work_has_none_to_wait_for() -> None:
    assert Clerk(print, room=1).is_done()
