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

    phase: str = "init"
    """Where the server is by what it has printed."""
    is_progress: bool = True
    """Whether it says more than that somebody waits."""


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
    """``/health`` said 200, or anything else; ``None``: this machine had no room for the question."""

    is_ok: bool | None
    is_strangers: bool = False
    """Whether another server answered, which says nothing of this one."""


@dataclass(frozen=True)
class CanaryAnswered:
    """What became of the real request; ``refused``: the server does not offer what the canary asks for.

    ``unasked``: this machine had no room for the question, which tells nothing of the server.
    """

    result: Literal["answered", "failed", "hung", "refused", "unasked"]
    detail: str = ""
    remarks: tuple[str, ...] = ()
    """What people should know of a server that answered."""


@dataclass(frozen=True)
class DataMoved:
    """How many bytes the processes of the attempt have read and written so far; ``None``: it cannot be seen."""

    total: int | None


@dataclass(frozen=True)
class Pulse:
    """What ``/metrics`` tells of the work."""

    counted: bytes
    """What moves only when the engine has made a step, as it was printed."""
    pending: float = 0.0
    """Requests that run or wait, by the engine's last step."""
    clients: frozenset[bytes] | None = None
    """The far ends of the connections to the server; ``None``: nobody looked."""


@dataclass(frozen=True)
class NoCounters:
    """``/metrics`` told nothing of the work."""

    reason: str
    is_late: bool = False
    """Whether there was no answer at all, as a busy server may have none."""


@dataclass(frozen=True)
class Stack:
    """What py-spy said of one process."""

    pid: int
    title: str
    text: str


@dataclass(frozen=True)
class StacksTaken:
    """What there was to see of a server that hangs has been seen."""

    taken: tuple[Stack, ...] = ()
    processes: int = 0
    """How many there were to look at."""
    problem: str = ""
    """Why there is nothing."""


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
    | DataMoved
    | Pulse
    | NoCounters
    | StacksTaken
    | Tick
)
