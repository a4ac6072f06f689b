"""Where an attempt is, as its state machine knows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from safe_vllm.attempt.progress import Progress
from safe_vllm.attempt.timing import Timing

Stage = Literal["starting", "proving", "serving", "ending", "over"]


@dataclass(frozen=True)
class Whereabouts:
    """Where an attempt is. Times are monotonic seconds; ``None``: not pending."""

    timing: Timing
    wants_canary: bool = True
    has_endpoint: bool = True
    stage: Stage = "starting"
    spawned_at: float = 0.0
    ready_at: float | None = None
    health_answered: bool = False
    canary: Literal["unsent", "answered", "failed", "hung"] = "unsent"
    armed_by: str | None = None
    """The fault line that waits for a second witness."""
    is_confirmed: bool = False
    """A second witness spoke: when ``act_at`` comes we act without asking again."""
    has_lost_engine: bool = False
    """An engine process was killed: no answer of another one makes that good."""
    armed_at: float | None = None
    grace_s: float = 0.0
    """How long that line may stand before we act on it."""
    act_at: float | None = None
    ask_at: float | None = None
    kill_at: float | None = None
    signal_at: float | None = None
    start_by: float | None = None
    """When it must be ready."""
    stops: int = 0
    leader_status: int | None = None
    ended_by_us: str | None = None
    is_looked_at: bool = False
    """Whether its stacks are being taken, after which it is swept."""
    observes_only: bool = False
    """Whether to say what would be done instead of doing it; a stop is still a stop."""
    has_said: bool = False
    """Whether that it would be ended was said, and no request was answered since."""
    progress: Progress | None = None
    """``None``: nobody can tell whether it serves, so its silence tells nothing."""

    def next_deadline(self) -> float | None:
        """Return when ``Tick`` is due."""
        look_at = self.progress.next_deadline() if self.progress and self.stage in ("starting", "serving") else None
        pending = (self.act_at, self.ask_at, self.kill_at, self.signal_at, self.start_by, look_at)
        return min((at for at in pending if at is not None), default=None)
