"""What follows an ended attempt: a pure function of the ladder, the history and the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from safe_vllm.errors import Status
from safe_vllm.plan.ladder import Ladder
from safe_vllm.verdict.evidence import Verdict

REFUSALS = frozenset({"backend-refused", "bad-config", "bad-argument"})
"""vLLM will not run these settings at all."""
RUNG_FAULTS = REFUSALS | {"gpu-oom", "kv-cache", "host-oom"}
"""Before ready, and below the top, these are the rung's own doing: it is skipped."""
SKIPPED_AT_THE_TOP = frozenset({"backend-refused"})
SAME_RUNG_TRIES = 2
"""So many deaths that may pass by themselves are taken at one rung before they count against it."""


@dataclass(frozen=True)
class Past:
    """One ended attempt."""

    rung: int
    """Its place on the ladder, from 0."""
    verdict: Verdict
    was_ready: bool
    ready_for_s: float = 0.0
    """How long it had been ready when it ended."""


@dataclass(frozen=True)
class Next:
    """Run this rung next."""

    rung: int
    reason: str
    deaths: int
    """How many there were since the server last proved itself; the pause grows with them."""
    is_skip: bool = False
    """The rung before could not even start: no attempt is counted, and there is no back-off."""


@dataclass(frozen=True)
class End:
    """The launch is over."""

    status: int
    reason: str


@dataclass(frozen=True)
class Budget:
    """What a launch may spend."""

    max_attempts: int
    proving_window_s: float


def after(ladder: Ladder, history: Sequence[Past], budget: Budget) -> Next | End:
    """Return what follows the last attempt of the history."""
    last, recent = history[-1], _since_proven(history, budget)
    reason, deaths = last.verdict.reason, sum(not is_skip(past) for past in recent)
    if is_skip(last):
        rung = _after_refusal(ladder, history)
        return _end_of_ladder(history) if rung is None else Next(rung, reason, deaths, is_skip=True)
    if last.verdict.action in ("stop", "none"):
        status = last.verdict.exit_status
        return End(Status.CONFIGURATION if status is None else status, reason)
    following = _after_death(ladder, history, budget, deaths)
    if isinstance(following, Next) and deaths >= budget.max_attempts:
        return End(Status.SPENT, _spent(deaths, reason))
    return following


def _after_death(ladder: Ladder, history: Sequence[Past], budget: Budget, deaths: int) -> Next | End:
    """Return what follows, whatever it may cost."""
    last, reason = history[-1], history[-1].verdict.reason
    if _stays(_since_proven(history, budget), budget):
        return Next(last.rung, f"the same rung once more: {reason}", deaths)
    if (below := _below(ladder, history)) is not None:
        return Next(below, reason, deaths)
    if any(past.was_ready for past in history):
        return Next(last.rung, f"this is the last rung, and it once served: {reason}", deaths)
    return _end_of_ladder(history)


def _below(ladder: Ladder, history: Sequence[Past]) -> int | None:
    """Return the first rung below the last attempt's that was not refused; ``None``: there is none."""
    skipped = {past.rung for past in history if is_skip(past)}
    return next((rung for rung in range(history[-1].rung + 1, len(ladder.rungs)) if rung not in skipped), None)


def _after_refusal(ladder: Ladder, history: Sequence[Past]) -> int | None:
    """Return the rung below a refused one; at the end, where nothing has died yet, the lowest of those passed over."""
    if (below := _below(ladder, history)) is not None:
        return below
    first = min(past.rung for past in history)
    return first - 1 if first and all(map(is_skip, history)) else None


def is_skip(past: Past) -> bool:
    """Return whether the rung was at fault, and not the server."""
    faults = RUNG_FAULTS if past.rung else SKIPPED_AT_THE_TOP
    return not past.was_ready and past.verdict.before_ready and past.verdict.fault in faults


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


def _since_proven(history: Sequence[Past], budget: Budget) -> Sequence[Past]:
    """Return the attempts from the last one on that proved itself; what came before it is forgotten."""
    proven = (at for at in reversed(range(len(history))) if _has_proven(history[at], budget))
    return history[next(proven, 0) :]


def _has_proven(past: Past, budget: Budget) -> bool:
    return past.was_ready and past.ready_for_s >= budget.proving_window_s


def _stays(recent: Sequence[Past], budget: Budget) -> bool:
    """Return whether the last death does not yet speak against its rung."""
    last = recent[-1]
    if last.verdict.action != "retry-same":
        return _has_proven(last, budget)
    return sum(past.rung == last.rung and past.verdict.action == "retry-same" for past in recent) < SAME_RUNG_TRIES


def _spent(deaths: int, reason: str) -> str:
    attempts = "1 attempt is" if deaths == 1 else f"{deaths} attempts are"
    return f"{attempts} spent; the last one: {reason}; allow more with --max-attempts"


def _end_of_ladder(history: Sequence[Past]) -> End:
    """End for the last death; a refusal is the reason only where there was nothing else."""
    death = next((past.verdict for past in reversed(history) if not is_skip(past)), None)
    if death is not None:
        return End(Status.SPENT, f"no rung is left: {death.reason}")
    refusal = history[-1].verdict
    status = Status.CONFIGURATION if refusal.exit_status is None else refusal.exit_status
    return End(status, f"no rung is left: {refusal.reason}")
