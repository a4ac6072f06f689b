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
    is_on_trial: bool = False
    """Whether it serves only when ``ready`` says so: whatever it answers until then, it was asked by us."""

    def enter(self, phase: str) -> Progress:
        """Return the progress after a line that only ``phase`` prints. A server never goes back from service."""
        if self.is_on_trial and phase == "serving":
            phase = "first-inference"
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

    def on_trial(self) -> Progress:
        """Return the progress of a server that is healthy, and is asked for the first real answers by us."""
        return replace(self.enter("first-inference"), is_on_trial=True)

    def ready(self) -> Progress:
        """Return the progress of a server that has given them."""
        return replace(self, is_on_trial=False).enter("serving")

    def busy(self) -> Progress:
        """Return the progress after a line that reports tokens coming out."""
        return self.enter("serving")
