"""What happened in a launch so far, as values, and what of it still counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from safe_vllm.verdict.evidence import Verdict

REFUSALS = frozenset({"backend-refused", "bad-config", "bad-argument"})
"""vLLM will not run these settings at all."""
RUNG_FAULTS = REFUSALS | {"gpu-oom", "kv-cache", "host-oom"}
"""Before ready, and below the top, these are the rung's own doing: it is skipped."""
SKIPPED_AT_THE_TOP = frozenset({"backend-refused"})


@dataclass(frozen=True)
class Past:
    """One ended attempt. Times are seconds of one clock that never goes back."""

    rung: int
    """Its place on the ladder, from 0."""
    verdict: Verdict
    was_ready: bool
    ready_for_s: float = 0.0
    """How long it had been ready when it ended."""
    was_proven: bool | None = None
    """Whether it served for the proving window, with a request answered at its end; ``None``: the time alone tells."""
    spawned_at_s: float = 0.0
    ended_at_s: float = 0.0
    fresh_caches: bool = False
    """Whether it ran with caches that were made empty for this launch."""


@dataclass(frozen=True)
class Budget:
    """What a launch may spend, and what it must leave alone."""

    max_attempts: int
    """Of those that never became ready, and of those that died in service, each since a server last proved itself."""
    proving_window_s: float
    relapse_window_s: float = 0.0
    """A proven server that died sooner than this, after a death at the same rung, does not get the rung again."""
    start_budget_s: float | None = None
    """For attempts in a row that never became ready, since the first was spawned; ``None``: only they are counted."""
    service_budget_s: float | None = None
    """For servers that died in service unproven, since the first died; ``None``: only attempts are counted."""
    pins: frozenset[str] = frozenset()
    """Settings that no rung may change, by the names in ``plan.intent.PINS``."""
    can_freshen: bool = False
    """Whether there is a place for fresh caches."""


def is_skip(past: Past) -> bool:
    """Return whether the rung was at fault, and not the server."""
    faults = RUNG_FAULTS if past.rung else SKIPPED_AT_THE_TOP
    return not past.was_ready and past.verdict.before_ready and past.verdict.fault in faults


def breaks(past: Past) -> bool:
    """Return whether the end speaks against the rung for launches to come as well: it died there, or was refused."""
    if is_skip(past):
        return past.verdict.fault in REFUSALS
    return past.verdict.action == "retry-safer"


def refused(history: Sequence[Past]) -> frozenset[int]:
    """Return the rungs whose own change vLLM refused, so that the rungs below them do better without it.

    Where every attempt before was refused in just the same way, that is no change of this rung's: it is inherited.
    """
    return frozenset(
        past.rung
        for at, past in enumerate(history)
        if is_skip(past) and past.verdict.fault in REFUSALS and not _is_inherited(past, history[:at])
    )


def _is_inherited(past: Past, before: Sequence[Past]) -> bool:
    return bool(before) and all(is_skip(one) and one.verdict.fault == past.verdict.fault for one in before)


def deaths(history: Sequence[Past]) -> list[Past]:
    """Return the attempts that count: all but those whose rung was skipped."""
    return [past for past in history if not is_skip(past)]


def since_proven(history: Sequence[Past], budget: Budget) -> Sequence[Past]:
    """Return the attempts from the last one on that proved itself; what came before it is forgotten."""
    proven = (at for at in reversed(range(len(history))) if has_proven(history[at], budget))
    return history[next(proven, 0) :]


def has_proven(past: Past, budget: Budget) -> bool:
    """Return whether the server served for so long that its rung counts as holding."""
    is_proven = past.ready_for_s >= budget.proving_window_s if past.was_proven is None else past.was_proven
    return past.was_ready and is_proven


def relapses(history: Sequence[Past], budget: Budget) -> bool:
    """Return whether the last death came too soon after another at the same rung to be a matter of chance."""
    last, before = history[-1], history[-2:-1]
    return any(past.rung == last.rung for past in before) and last.ready_for_s < budget.relapse_window_s


def same_reason(one: Verdict, other: Verdict) -> bool:
    """Return whether both died of the same fault, in the same part of the engine."""
    return (one.fault, one.suspect) == (other.fault, other.suspect)
