"""Whether a launch may go on: attempts and minutes, counted apart for starts that failed and for deaths in service."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from safe_vllm.policy.history import Budget, Past, deaths, since_proven


def spent(history: Sequence[Past], budget: Budget, *, must_stay: bool) -> str | None:
    """Return why there may be no further attempt.

    ``must_stay``: the server once served, and there is no other rung left; then minutes count, if there is such a
    limit, and not attempts.
    """
    return _attempts(history, budget, must_stay) or _minutes(history, budget)


def _attempts(history: Sequence[Past], budget: Budget, must_stay: bool) -> str | None:
    last = history[-1]
    allowed_s = budget.service_budget_s if last.was_ready else budget.start_budget_s
    if must_stay and allowed_s is not None:
        return None
    number = sum(past.was_ready == last.was_ready for past in deaths(since_proven(history, budget)))
    if number < budget.max_attempts:
        return None
    attempts = "1 attempt is" if number == 1 else f"{number} attempts are"
    return f"{attempts} spent; the last one: {last.verdict.reason}; allow more with --max-attempts"


def _minutes(history: Sequence[Past], budget: Budget) -> str | None:
    last = history[-1]
    if last.was_ready:
        allowed_s, name, what = budget.service_budget_s, "service_budget_s", "since the server first died in service"
        spent_s = last.ended_at_s - next(past for past in since_proven(history, budget) if past.was_ready).ended_at_s
    else:
        allowed_s, name, what = budget.start_budget_s, "start_budget_s", "without a server that became ready"
        starts = list(takewhile(lambda past: not past.was_ready, reversed(history)))
        spent_s = last.ended_at_s - starts[-1].spawned_at_s
    if allowed_s is None or spent_s < allowed_s:
        return None
    return (
        f"{_spoken(spent_s)} went by {what}, and no more is allowed; the last attempt: {last.verdict.reason}; "
        f"allow more with {name} in the policy of a profile"
    )


def _spoken(seconds: float) -> str:
    minutes = int(seconds // 60)
    return "1 minute" if minutes == 1 else f"{minutes} minutes" if minutes else f"{seconds:.0f} s"
