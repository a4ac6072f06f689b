"""Whether a cache may be what makes every start fail the same way, so that the rung deserves a try without it."""

from __future__ import annotations

from collections.abc import Sequence

from safe_vllm.policy.history import Budget, Past, deaths, since_proven
from safe_vllm.verdict.evidence import LETHAL, Verdict

PIN = "caches"
_KERNEL = LETHAL - {"board"}
_WHILE_STARTING = frozenset({"init", "autotune", "capture"})
_BEFORE_SERVICE = _WHILE_STARTING | {"first-inference"}


def freshens(history: Sequence[Past], budget: Budget) -> bool:
    """Return whether the next attempt should have fresh caches: once per launch, and before a rung is spent."""
    if not budget.can_freshen or PIN in budget.pins or has_fresh(history):
        return False
    return _names_one(history[-1].verdict) or _is_repeated(since_proven(history, budget))


def has_fresh(history: Sequence[Past]) -> bool:
    """Return whether fresh caches are in use; they stay so until the launch ends."""
    return any(past.fresh_caches for past in history)


def _names_one(verdict: Verdict) -> bool:
    """A compiled graph that does not fit raises whatever Python likes, so an unknown end may be owed to one as well."""
    is_unknown = verdict.fault == "unknown" and verdict.before_ready
    return verdict.cache is not None and (is_unknown or _can_be_of_a_cache(verdict))


def _is_repeated(recent: Sequence[Past]) -> bool:
    """In service the same fault twice may be the same request twice; before it, both attempts did the same things."""
    last = recent[-1].verdict
    if last.phase not in _BEFORE_SERVICE or not _can_be_of_a_cache(last):
        return False
    return any((past.verdict.fault, past.verdict.phase) == (last.fault, last.phase) for past in deaths(recent[:-1]))


def _can_be_of_a_cache(verdict: Verdict) -> bool:
    return verdict.fault in _KERNEL or (verdict.fault == "hang" and verdict.phase in _WHILE_STARTING)
