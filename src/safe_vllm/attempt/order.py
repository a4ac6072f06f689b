"""What one attempt is to do, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safe_vllm.attempt.timing import Timing
from safe_vllm.plan.command import Command
from safe_vllm.plan.endpoint import Endpoint

if TYPE_CHECKING:  # what an attempt needs once vLLM was started is loaded then
    from safe_vllm.attempt import event
    from safe_vllm.attempt.tail import Tail
    from safe_vllm.verdict.evidence import Observations
    from safe_vllm.verdict.scan import Scan


@dataclass(frozen=True)
class Order:
    """What one attempt is to do."""

    command: Command
    timing: Timing
    endpoint: Endpoint | None
    """Where to ask for readiness; ``None``: nowhere, since there is no API, or since somebody else answers there."""
    new_scan: Callable[[], Scan]
    """Called once vLLM was started: what the scan needs takes a while to load."""
    wants_canary: bool
    ignored: frozenset[int]
    on_ready: Callable[[float, str], None]
    """Called with the seconds since spawn and a note when the server works."""
    on_stop: Callable[[float], None]
    """Called with the seconds that vLLM has to end when the operator asks for the first time."""
    on_stacks: Callable[[event.StacksTaken], None]
    """Called with what was seen of a server that hangs, before it is ended."""
    on_blind: Callable[[str], None]
    """Called with the reason why hangs in service cannot be noticed."""
    on_phase: Callable[[str], None] = lambda phase: None
    """Called when its start has come to another phase."""
    on_proven: Callable[[], None] = lambda: None
    """Called when the server has proven its rung."""
    on_would_end: Callable[[str], None] = lambda why: None
    """Called with the reason for which a server would be ended that is only observed."""
    is_strangers: Callable[[int], bool] = lambda guardian: False
    """Called from a thread when ``/health`` answers, with who is above all of the attempt's processes: whether somebody
    else listens there."""
    on_stranger: Callable[[], None] = lambda: None
    """Called when that was so, each time."""
    observes_only: bool = False


@dataclass(frozen=True)
class Ended:
    """An attempt of which nothing is left, but for what could not be ended."""

    observations: Observations
    tail: Tail
    """The end of its output."""
    spawn_error: int | None = None
    """The errno, when the command could not be executed at all."""
    stuck: str = ""
    """Who could not be ended, why, and what to do about it."""
    guardian_is_lost: bool = False
    died: Observations | None = None
    """What was seen, the stop aside, where it was dying by the time it was asked to stop."""
    stacks: event.StacksTaken | None = None
    """Where its processes were, if it hung."""
