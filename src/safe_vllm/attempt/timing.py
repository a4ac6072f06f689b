"""How long things may take in an attempt, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

HEALTH_EVERY_S = 1.0
HEALTH_SOON_S = 0.1
HEALTH_GROWTH = 0.05
"""A young server is asked often, one that is older than 18 seconds every second."""
CANARY_AGAIN_S = 2.0
START_STOP_GRACE_S = 8.0
"""A stop during start-up: there are no requests to finish, and vLLM may have swallowed the signal."""
SIGNAL_AGAIN_S = 2.0
HURRY_S = 5.0
"""What a second stop signal leaves of the deadline."""
SETTLE_S = 10.0
"""vLLM ends by itself two to four seconds after an engine process died, later on a busy machine; its words on the way
are worth having."""
SWEEP_GRACE_S = 3.0
"""From the leader's end, or our decision to end it, until SIGKILL for whatever is left."""
COREDUMP_CAP_S = 600.0
PATIENCE = 10
"""While a model loads it may be silent for minutes: a fault line that no engine signed counts for so much less."""


@dataclass(frozen=True)
class Timing:
    """The limits that concern one attempt, in seconds."""

    stop_timeout_s: float
    fault_grace_s: float
    start_timeout_s: float | None
