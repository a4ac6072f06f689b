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

LOOKS = 4
"""How often a limit on silence is looked at before it is reached."""
ENOUGH_BYTES = 64 * 1024 * 1024
"""What must be read or written between two looks to show that weights are being fetched or loaded, or code built;
processes that wait for each other exchange some bytes now and then."""
PULSE_EVERY_S = 30.0
PULSE_AT_MOST_S = 0.1
"""So often, at least and at most, a server is asked how far its work has come."""
STALL_ANSWER_S = 60.0
"""How long a real request may take once nothing was counted for the whole limit while others waited."""
STACKS_BY_S = 45.0
"""Whoever takes the stacks of a server that hangs may hang as well."""


PROOF_AGAIN_S = 60.0
"""When a server is asked again that did not answer at the end of its proving window."""


@dataclass(frozen=True)
class Timing:
    """The limits that concern one attempt, in seconds."""

    stop_timeout_s: float
    fault_grace_s: float
    start_timeout_s: float | None
    start_silence_s: float | None = None
    """While starting, without output and without data moved; ``None``: for ever."""
    autotune_silence_s: float | None = None
    """The same while kernels are being autotuned."""
    capture_silence_s: float | None = None
    """The same while CUDA graphs are being captured."""
    stall_s: float | None = None
    """While serving, with requests that wait and nothing counted."""
    proving_window_s: float | None = None
    """From ready until a server has proven its rung, if it answers then; ``None``: nobody wants to know."""

    def silence_s(self, phase: str) -> float | None:
        """Return how long a server may be silent in a phase of its start."""
        limits = {"autotune": self.autotune_silence_s, "capture": self.capture_silence_s}
        return limits.get(phase, self.start_silence_s)

    def grace_s(self, *, is_starting: bool, is_of_engine: bool) -> float:
        """Return how long a fault line may stand, by whether an engine process signed it."""
        return self.fault_grace_s * (PATIENCE if is_starting and not is_of_engine else 1)


def is_due(at: float | None, now: float) -> bool:
    """Return whether a time that may not be set has come."""
    return at is not None and now >= at


def health_pause_s(age_s: float) -> float:
    """Return how long to wait before a server of that age is asked for its health again."""
    return min(HEALTH_EVERY_S, HEALTH_SOON_S + HEALTH_GROWTH * age_s)
