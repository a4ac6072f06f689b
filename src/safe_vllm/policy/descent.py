"""What follows an ended attempt: a pure function of the ladder, the history and the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from safe_vllm.errors import Status
from safe_vllm.plan.ladder import Ladder
from safe_vllm.verdict.evidence import Verdict

RUNG_FAULTS = frozenset({"backend-refused", "bad-config", "bad-argument", "gpu-oom", "kv-cache", "host-oom"})
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
    last = history[-1]
    if is_skip(last):
        return _step_down(ladder, last, history, is_skip=True)
    if last.verdict.action in ("stop", "none"):
        status = last.verdict.exit_status
        return End(Status.CONFIGURATION if status is None else status, last.verdict.reason)
    spent = sum(not is_skip(past) for past in history)
    if spent >= budget.max_attempts:
        return End(Status.SPENT, f"{spent} attempts are spent")
    if _stays(history, budget):
        return Next(last.rung, "the same rung once more")
    return _step_down(ladder, last, history)


def is_skip(past: Past) -> bool:
    """Return whether the rung was at fault, and not the server."""
    faults = RUNG_FAULTS if past.rung else SKIPPED_AT_THE_TOP
    return not past.was_ready and past.verdict.before_ready and past.verdict.fault in faults


def _stays(history: Sequence[Past], budget: Budget) -> bool:
    """Return whether the last death does not yet speak against its rung."""
    last = history[-1]
    here = [past for past in history if past.rung == last.rung]
    if last.verdict.action == "retry-same":
        return sum(past.verdict.action == "retry-same" for past in here) < SAME_RUNG_TRIES
    has_proven = last.was_ready and last.ready_for_s >= budget.proving_window_s
    return has_proven and not any(past.was_ready for past in here[:-1])


def _step_down(ladder: Ladder, last: Past, history: Sequence[Past], *, is_skip: bool = False) -> Next | End:
    below = last.rung + 1
    if below < len(ladder.rungs):
        return Next(below, last.verdict.reason, is_skip)
    if is_skip:
        return End(_status_of_refusal(last), f"no rung is left: {last.verdict.reason}")
    if any(past.was_ready for past in history):
        return Next(last.rung, "this is the last rung, and it once served")
    return End(Status.SPENT, f"no rung is left: {last.verdict.reason}")


def _status_of_refusal(last: Past) -> int:
    status = last.verdict.exit_status
    return Status.CONFIGURATION if status is None else status
