"""The pause between attempts."""

from __future__ import annotations

import pytest

from safe_vllm.attempt.loop import StopAsked
from safe_vllm.policy.backoff import until_the_end
from safe_vllm.policy.descent import End, Next

DEATH = Next(1, "it died")
SKIP = Next(1, "refused", is_skip=True)
STOPPED = End(0, "asked to stop")


def pauses(first: Next, *then: Next | End) -> list[float]:
    slept: list[float] = []
    outcomes = iter(then)
    end = until_the_end(first, lambda: next(outcomes), slept.append, 2.0, lambda pause_s: None)
    assert isinstance(end, End)
    return slept


def test_the_pause_doubles_and_is_jittered() -> None:
    slept = pauses(DEATH, DEATH, DEATH, STOPPED)
    assert [2 <= slept[0] <= 2.5, 4 <= slept[1] <= 4.5, 8 <= slept[2] <= 8.5] == [True] * 3
    assert slept != pauses(DEATH, DEATH, DEATH, STOPPED)


def test_the_pause_has_a_limit() -> None:
    assert max(pauses(*[DEATH] * 12, STOPPED)) <= 60.5


def test_a_skipped_rung_costs_no_pause() -> None:
    assert pauses(SKIP, STOPPED) == [0.0]


def test_a_stop_during_the_pause_starts_no_further_attempt() -> None:
    attempts: list[str] = []

    def attempt() -> End:
        attempts.append("another")
        return STOPPED

    def stop_at_once(seconds: float) -> None:
        raise StopAsked

    with pytest.raises(StopAsked):
        until_the_end(DEATH, attempt, stop_at_once, 2.0, lambda pause_s: None)
    assert attempts == []
