"""What was seen of an attempt, for the verdict: also what an operator's stop came too late for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from safe_vllm.attempt.lifecycle import Lifecycle
from safe_vllm.verdict.evidence import Observations, ProcessEnd
from safe_vllm.verdict.scan import Scan


@dataclass(frozen=True)
class Times:
    """When the attempt began, and when it was over."""

    started_at: float
    ended_at: float


def observations(
    state: Lifecycle, scan: Scan, ends: Sequence[ProcessEnd], phase: str, times: Times, *, is_proven: bool
) -> Observations:
    """Return what was seen of an attempt that nobody asked to stop; ``phase``: where it was when its end began."""
    return Observations(
        leader_status=None if state.ended_by_us else state.leader_status,
        evidence=tuple(scan.evidence),
        ends=tuple(ends),
        phase=phase if state.ended_by_us else scan.phase,
        backend=scan.backend,
        setup=scan.setup,
        health_answered=state.health_answered,
        was_ready=state.ready_at is not None,
        was_proven=is_proven,
        canary=state.canary,
        ended_by_us=state.ended_by_us,
        ended_at_s=times.ended_at - times.started_at,
        uptime_s=times.ended_at - (state.ready_at if state.ready_at is not None else times.started_at),
    )


@dataclass(frozen=True)
class Dying:
    """How an attempt was dying when it was asked to stop."""

    leader_status: int | None
    """``None``: the leader still ran, and what it ended with is of the stop."""
    phase: str

    def without_stop(self, seen: Observations) -> Observations:
        """Return what was seen, as if nobody had asked."""
        return replace(seen, stop_requested=False, leader_status=self.leader_status, phase=self.phase)


def dying(state: Lifecycle, scan: Scan) -> Dying | None:
    """Return how it is dying, if we are ending it, an engine was killed, or a fault stands that no process survives.

    That the leader has ended is not enough: a service manager may have sent the same signal to all of us.
    """
    has_fault = state.armed_by is not None and any(found.arms for found in scan.evidence)
    if not (state.ended_by_us or state.has_lost_engine or has_fault):
        return None
    return Dying(None if state.ended_by_us else state.leader_status, scan.phase)
