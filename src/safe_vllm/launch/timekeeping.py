"""The limits that an attempt and a launch keep, of what the operator, the profile and vLLM's own words say."""

from __future__ import annotations

from safe_vllm.attempt.timing import Timing
from safe_vllm.plan import endpoint
from safe_vllm.plan.ladder import Rung
from safe_vllm.policy.history import Budget
from safe_vllm.preparing import Prepared


def timing_of(prepared: Prepared, rung: Rung) -> Timing:
    """Return the limits of an attempt at this rung."""
    limits = prepared.limits
    drain_s = endpoint.shutdown_timeout_s(rung.words, prepared.config)
    return Timing(
        stop_timeout_s=endpoint.stop_limit_s(limits.stop_timeout_s, drain_s),
        fault_grace_s=limits.fault_grace_s,
        start_timeout_s=limits.start_timeout_s,
        start_silence_s=limits.start_silence_s,
        autotune_silence_s=limits.autotune_silence_s,
        capture_silence_s=limits.capture_silence_s,
        stall_s=limits.stall_s,
        proving_window_s=limits.proving_window_s,
    )


def budget_of(prepared: Prepared) -> Budget:
    """Return what the launch may spend, and what it must leave alone."""
    limits = prepared.limits
    return Budget(
        max_attempts=limits.max_attempts,
        proving_window_s=limits.proving_window_s,
        relapse_window_s=limits.relapse_window_s,
        start_budget_s=limits.start_budget_s,
        service_budget_s=limits.service_budget_s,
        pins=prepared.plan.pins,
        can_freshen=prepared.memory.directory is not None,
    )
