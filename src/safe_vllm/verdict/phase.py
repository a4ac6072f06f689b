"""Where a server is on its way, read from what it prints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from safe_vllm.verdict.evidence import PHASES

STARTING = frozenset({"init", "autotune", "capture"})
"""Graphs are captured before or after tuning, as the version has it: these have no order among themselves."""


@dataclass(frozen=True)
class Progress:
    """The phase, and what it is known from."""

    phase: str = "init"
    is_known: bool = True
    """False while reading from the middle of a log, until a line tells."""
    answers: int = 0
    """Inference requests that were answered since the server came up."""

    def enter(self, phase: str) -> Progress:
        """Return the progress after a line that only ``phase`` prints. A server never goes back from service."""
        has_order = self.is_known and not (self.phase in STARTING and phase in STARTING)
        goal = max(self.phase, phase, key=PHASES.index) if has_order else phase
        return self if self.is_known and goal == self.phase else replace(self, phase=goal, is_known=True)

    def hint(self, phase: str) -> Progress:
        """Return the progress after a line that belongs to ``phase`` but does not begin it."""
        return self if self.is_known else self.enter(phase)

    def answered(self) -> Progress:
        """Return the progress after one inference request was answered.

        The access line of a streamed answer comes when it begins, so that one alone proves nothing.
        """
        if not self.is_known:
            return replace(self, phase="serving", is_known=True, answers=1)
        answers = self.answers + 1
        return replace(self, answers=answers).enter("serving" if answers > 1 else "first-inference")

    def busy(self) -> Progress:
        """Return the progress after a line that reports tokens coming out."""
        return self.enter("serving")
