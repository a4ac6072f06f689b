"""What can happen to an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Spawned:
    """The leader runs."""


@dataclass(frozen=True)
class FaultLine:
    """A root line was read: evidence that arms the verdict, and no more than that."""

    text: str
    is_coredump: bool = False
    is_of_engine: bool = True
    """Whether an engine or worker process signed it, rather than anybody."""


@dataclass(frozen=True)
class Output:
    """Any other output: a sign of life while starting."""


@dataclass(frozen=True)
class Completed:
    """The output shows that a request was answered: the engine works."""


@dataclass(frozen=True)
class EngineEnded:
    """An engine or worker process ended; a signal is a negative status, ``None`` is not known."""

    title: str
    status: int | None


@dataclass(frozen=True)
class LeaderEnded:
    """``vllm serve`` itself ended."""

    status: int


@dataclass(frozen=True)
class TreeGone:
    """Nothing is left of the attempt."""


@dataclass(frozen=True)
class StopAsked:
    """A stop signal came from the operator."""

    number: int


@dataclass(frozen=True)
class HealthAnswered:
    """``/health`` said 200, or anything else."""

    is_ok: bool


@dataclass(frozen=True)
class CanaryAnswered:
    """What became of the real request; ``refused``: the server does not offer what the canary asks for."""

    result: Literal["answered", "failed", "hung", "refused"]
    detail: str = ""


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Event = (
    Spawned
    | FaultLine
    | Output
    | Completed
    | EngineEnded
    | LeaderEnded
    | TreeGone
    | StopAsked
    | HealthAnswered
    | CanaryAnswered
    | Tick
)
