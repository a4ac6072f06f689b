"""What follows an ended attempt: a pure function of the ladder, the history and the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from safe_vllm.errors import Status
from safe_vllm.plan.intent import MAX_PAUSE_S
from safe_vllm.plan.ladder import Ladder
from safe_vllm.policy.budgets import spent
from safe_vllm.policy.caches import freshens, has_fresh
from safe_vllm.policy.history import Budget, Past, deaths, has_proven, is_skip, refused, relapses, since_proven
from safe_vllm.policy.pointing import is_given_up, points, relieving
from safe_vllm.verdict.evidence import Verdict

__all__ = ["Budget", "End", "Next", "Past", "after", "observed_end", "pause_s", "refused"]

MAX_DOUBLINGS = 30
"""Of the pause: more make no difference, and would overflow some day."""
SAME_RUNG_TRIES = 2
"""So many deaths that may pass by themselves are taken at one rung before they count against it."""
SIGNALLED = 128
"""A shell tells of a command that a signal ended by this and the signal's number."""
BACKEND_PIN = "moe-backend"


@dataclass(frozen=True)
class Next:
    """Run this rung next."""

    rung: int
    reason: str
    deaths: int
    """How many there were since the server last proved itself; the pause grows with them."""
    is_skip: bool = False
    """The rung before could not even start: no attempt is counted, and there is no back-off."""
    fresh_caches: bool = False
    """Run it with caches that began empty in this launch, from here to its end."""


@dataclass(frozen=True)
class End:
    """The launch is over."""

    status: int
    reason: str
    advice: tuple[str, ...] = ()
    """What may help, where the end calls for a person who knows the engine."""


def after(ladder: Ladder, history: Sequence[Past], budget: Budget) -> Next | End:
    """Return what follows the last attempt of the history."""
    last = history[-1]
    if is_skip(last):
        following = _after_skip(ladder, history, budget)
    elif last.verdict.action in ("stop", "none"):
        return End(_status_of(last.verdict), last.verdict.reason)
    else:
        following = _after_death(ladder, history, budget)
    if isinstance(following, Next) and (reason := spent(history, budget, must_stay=_must_stay(ladder, history))):
        return End(Status.SPENT, reason)
    return following


def pause_s(step: Next, first_pause_s: float) -> float:
    """Return the pause before this step: it doubles from death to death up to 60 s; a skipped rung costs none."""
    if step.is_skip:
        return 0.0
    return float(min(MAX_PAUSE_S, first_pause_s * 2 ** min(step.deaths - 1, MAX_DOUBLINGS)))


def observed_end(status: int | None, reason: str) -> End:
    """Return the end of a launch that is only observed: vLLM's own, but that 0 is no success where nobody asked."""
    if not status:
        return End(Status.SPENT, "vLLM ended although nobody asked it to")
    return End(status if status > 0 else SIGNALLED - status, f"vLLM ended: {reason}")


def _next(history: Sequence[Past], budget: Budget, rung: int, reason: str, *, fresh: bool = False) -> Next:
    number = len(deaths(since_proven(history, budget)))
    return Next(rung, reason, number, is_skip(history[-1]), fresh or has_fresh(history))


def _after_skip(ladder: Ladder, history: Sequence[Past], budget: Budget) -> Next | End:
    last, reason = history[-1], history[-1].verdict.reason
    if not last.rung and BACKEND_PIN in budget.pins:
        return End(_status_of(last.verdict), f"{reason}; {BACKEND_PIN} is pinned, so no other backend is tried")
    rung = _after_refusal(ladder, history)
    return _end_of_ladder(history) if rung is None else _next(history, budget, rung, reason)


def _after_death(ladder: Ladder, history: Sequence[Past], budget: Budget) -> Next | End:
    """Return what follows, whatever it may cost."""
    last, reason = history[-1], history[-1].verdict.reason
    if freshens(history, budget):
        return _next(
            history, budget, last.rung, f"the same rung with fresh caches: {_blamed(last.verdict)}", fresh=True
        )
    if _stays(history, budget):
        return _next(history, budget, last.rung, f"the same rung once more: {reason}")
    if points(last.verdict):
        return _pointed(ladder, history, budget)
    if below := _below(ladder, history):
        return _next(history, budget, below[0], reason)
    if _must_stay(ladder, history):
        return _next(history, budget, last.rung, f"this is the last rung, and it once served: {reason}")
    return _end_of_ladder(history)


def _blamed(verdict: Verdict) -> str:
    """Return what happened, and the cache that may have done it."""
    cause = f"{verdict.cache} may have caused it" if verdict.cache else "the same happened in the attempt before"
    return f"{verdict.reason}, and {cause}"


def _stays(history: Sequence[Past], budget: Budget) -> bool:
    """Return whether the last death does not yet speak against its rung."""
    last = history[-1]
    if has_proven(last, budget):
        return not relapses(history, budget)
    if last.verdict.action != "retry-same":
        return False
    recent = since_proven(history, budget)
    return sum(past.rung == last.rung and past.verdict.action == "retry-same" for past in recent) < SAME_RUNG_TRIES


def _pointed(ladder: Ladder, history: Sequence[Past], budget: Budget) -> Next | End:
    """Return the step to the rung that answers the known suspect; where none does, the same rung once."""
    last, verdict = history[-1], history[-1].verdict
    below = _below(ladder, history)
    rung = relieving(ladder, below, verdict.suspect)
    if rung is not None:
        why = "" if rung == below[0] else f", and this is the next rung that helps against a fault of {verdict.suspect}"
        return _next(history, budget, rung, verdict.reason + why)
    if not is_given_up(history, budget):
        why = f"the same rung once more, because none below helps against a fault of {verdict.suspect}"
        return _next(history, budget, last.rung, f"{why}: {verdict.reason}")
    why = f"no rung is left that helps against a fault of {verdict.suspect}: {verdict.reason}"
    return End(Status.SPENT, why, verdict.advice)


def _below(ladder: Ladder, history: Sequence[Past]) -> list[int]:
    """Return the rungs below the last attempt's that were not skipped."""
    skipped = {past.rung for past in history if is_skip(past)}
    return [rung for rung in range(history[-1].rung + 1, len(ladder.rungs)) if rung not in skipped]


def _must_stay(ladder: Ladder, history: Sequence[Past]) -> bool:
    """Return whether the server once served, and there is no rung left to step down to."""
    return any(past.was_ready for past in history) and not _below(ladder, history)


def _after_refusal(ladder: Ladder, history: Sequence[Past]) -> int | None:
    """Return the rung below a refused one; at the end, where nothing has died yet, the lowest of those passed over."""
    if below := _below(ladder, history):
        return below[0]
    first = min(past.rung for past in history)
    return first - 1 if first and all(map(is_skip, history)) else None


def _status_of(verdict: Verdict) -> int:
    return Status.CONFIGURATION if verdict.exit_status is None else verdict.exit_status


def _end_of_ladder(history: Sequence[Past]) -> End:
    """End for the last death; a refusal is the reason only where there was nothing else."""
    death = next((past.verdict for past in reversed(history) if not is_skip(past)), None)
    if death is not None:
        return End(Status.SPENT, f"no rung is left: {death.reason}")
    return End(_status_of(history[-1].verdict), f"no rung is left: {history[-1].verdict.reason}")
