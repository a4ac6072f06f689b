"""The pause between attempts."""

from __future__ import annotations

import pytest

from safe_vllm.attempt.loop import StopAsked
from safe_vllm.plan.intent import MAX_PAUSE_S
from safe_vllm.policy.backoff import JITTER, until_the_end
from safe_vllm.policy.descent import End, Next

SKIP = Next(1, "refused", deaths=0, is_skip=True)
STOPPED = End(0, "asked to stop")


def death(number: int) -> Next:
    """The death with this number since the server last proved itself."""
    return Next(1, "it died", deaths=number)


def pauses(first: Next, *then: Next | End, first_pause_s: float = 2.0) -> list[float]:
    slept: list[float] = []
    outcomes = iter(then)
    end = until_the_end(first, lambda: next(outcomes), slept.append, first_pause_s, lambda pause_s: None)
    assert isinstance(end, End)
    return slept


def assert_each_is(slept: list[float], *expected: float) -> None:
    """Assert the pauses, each longer by the jitter at most."""
    assert len(slept) == len(expected)
    assert all(pause <= got <= pause * (1 + JITTER) for got, pause in zip(slept, expected, strict=True)), slept


def test_the_pause_doubles_from_death_to_death() -> None:
    assert_each_is(pauses(death(1), death(2), death(3), STOPPED), 2, 4, 8)


def test_every_pause_is_jittered_in_proportion_to_itself() -> None:
    slept = pauses(*[death(5)] * 40, STOPPED)
    assert_each_is(slept, *[32] * 40)
    assert max(slept) > 32 + 2 * JITTER  # more than a quarter of the first pause
    assert len(set(slept)) > 1


def test_the_pause_has_a_limit() -> None:
    for number in (6, 12, 5000):
        assert_each_is(pauses(death(number), STOPPED), MAX_PAUSE_S)


def test_no_pause_is_asked_for_and_none_is_made() -> None:
    assert pauses(death(1), death(9), STOPPED, first_pause_s=0) == [0, 0]


def test_the_pause_starts_anew_when_the_deaths_do() -> None:
    assert_each_is(pauses(death(5), death(1), STOPPED), 32, 2)


def test_a_skipped_rung_costs_no_pause_and_does_not_lengthen_the_next() -> None:
    slept = pauses(SKIP, SKIP, death(1), SKIP, death(2), STOPPED)
    assert [pause for pause in slept if pause == 0] == [0] * 3
    assert_each_is([pause for pause in slept if pause], 2, 4)


def test_a_stop_during_the_pause_starts_no_further_attempt() -> None:
    attempts: list[str] = []

    def attempt() -> End:
        attempts.append("another")
        return STOPPED

    def stop_at_once(seconds: float) -> None:
        raise StopAsked

    with pytest.raises(StopAsked):
        until_the_end(death(1), attempt, stop_at_once, 2.0, lambda pause_s: None)
    assert attempts == []
