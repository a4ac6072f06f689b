"""The pause between attempts, by tenacity. The only module that knows it."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain, repeat

import tenacity

from safe_vllm.policy.descent import End, Next, pause_s

JITTER = 0.25
"""The pause is longer by up to this share, so that a fleet does not come back in step."""


def until_the_end(
    first: Next,
    attempt: Callable[[], Next | End],
    sleep: Callable[[float], None],
    first_pause_s: float,
    on_pause: Callable[[float], None],
) -> End:
    """Repeat ``attempt`` until it says that the launch is over, with a pause before each; ``first`` came before.

    ``sleep`` raises when the operator asks for the end, and that exception passes through: a sleep that merely
    returned would start another attempt.
    """

    def wait(state: tenacity.RetryCallState) -> float:
        outcome = state.outcome
        assert outcome is not None
        step = outcome.result()
        assert isinstance(step, Next)
        return pause_s(step, first_pause_s) * random.uniform(1, 1 + JITTER)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda result: isinstance(result, Next)),
        wait=wait,
        sleep=sleep,
        before_sleep=lambda state: on_pause(state.upcoming_sleep),
        stop=tenacity.stop_never,
        reraise=True,
    )
    outcomes = chain([lambda: first], repeat(attempt))
    end = retrying(lambda: next(outcomes)())
    assert isinstance(end, End)
    return end
