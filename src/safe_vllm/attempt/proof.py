"""Whether a server has proven its rung: it served for the whole window, and a real request was answered at its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from safe_vllm.attempt.effect import Effect, SayProven, SendCanary
from safe_vllm.attempt.event import CanaryAnswered, Completed, Event, Pulse, Tick
from safe_vllm.attempt.timing import PROOF_AGAIN_S, Timing, is_due

Step = tuple["Proof", tuple[Effect, ...]]


@dataclass(frozen=True)
class Proof:
    """How far the proof has come. Times are monotonic seconds."""

    timing: Timing
    wants_canary: bool = True
    due_at: float | None = None
    """When the window ends, or when to ask again; ``None``: it is not ready, or its answer is awaited."""
    is_due: bool = False
    """The window is over: the next sign of work is the proof."""
    is_proven: bool = False
    counted: bytes | None = None
    """What the server counted at the last look."""

    def on(self, event: Event, now: float, stage: str, ready_at: float | None, *, is_armed: bool = False) -> Step:
        """Take in one event of an attempt at that stage, which is ready since then. A fault that stands puts it off."""
        window_s = self.timing.proving_window_s
        if self.is_proven or stage != "serving" or ready_at is None or window_s is None:
            return self, ()
        waiting = replace(self, due_at=ready_at + window_s) if self.due_at is None and not self.is_due else self
        if is_armed:
            return waiting._put_off(now, event), ()
        match event:
            case Tick() if is_due(waiting.due_at, now):
                asked = replace(waiting, is_due=True, due_at=now + PROOF_AGAIN_S if self.wants_canary else None)
                return asked, (SendCanary(),) if self.wants_canary else ()
            case Completed() | CanaryAnswered("answered") if waiting.is_due:
                return waiting._proven()
            case Pulse(counted):
                has_worked = waiting.counted not in (None, counted)
                seen = replace(waiting, counted=counted)
                return seen._proven() if has_worked and waiting.is_due else (seen, ())
        return waiting, ()

    def _proven(self) -> Step:
        return replace(self, is_proven=True, due_at=None), (SayProven(),)

    def _put_off(self, now: float, event: Event) -> Proof:
        """Let some time pass, and count nothing that was done meanwhile."""
        due_at = None if self.due_at is None else max(self.due_at, now + PROOF_AGAIN_S)
        return replace(self, due_at=due_at, counted=event.counted if isinstance(event, Pulse) else self.counted)
