"""What the step to a rung takes away."""

from __future__ import annotations

from safe_vllm.plan.caps import SKIPPED_OPERATORS
from safe_vllm.plan.ladder import COSTS, NO_AUTOTUNE, TRITON, Rung

NO_EFFECT = "no effect here"
"""A profile's note on a rung that changes nothing that matters."""
SKIPPED = "the operators that are not tuned run their default tactics instead of the fastest ones"


def costs(rung: Rung, *, on_cpu: bool = False) -> str | None:
    """Return what the step to a rung takes away, on top of the rungs above; ``None``: nothing, for it does nothing."""
    if (rung.note and NO_EFFECT in rung.note) or (on_cpu and rung.name in (NO_AUTOTUNE, TRITON)):
        return None
    if rung.name == NO_AUTOTUNE and SKIPPED_OPERATORS in dict(rung.environment):
        return SKIPPED
    return COSTS[rung.name]
