"""What the state machine of an attempt wants done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SignalLeader:
    """Send the signal to ``vllm serve`` alone, which winds itself down."""

    number: int


@dataclass(frozen=True)
class SignalTree:
    """Send the signal to every process of the attempt."""

    number: int


@dataclass(frozen=True)
class Sweep:
    """End everything: SIGTERM now, SIGKILL after the grace."""

    grace_s: float


@dataclass(frozen=True)
class AskHealth:
    """Ask ``/health`` once."""


@dataclass(frozen=True)
class SendCanary:
    """Send a real request; to a server that is not ready yet, a series of them."""


@dataclass(frozen=True)
class MeasureData:
    """Find out how much data the processes have moved."""


@dataclass(frozen=True)
class AskMetrics:
    """Ask ``/metrics`` once."""

    with_clients: bool = False
    """Whether to see who is connected, too."""


@dataclass(frozen=True)
class TakeStacks:
    """See where every process is before a server that hangs is ended."""


@dataclass(frozen=True)
class SayBlind:
    """Nothing can be seen of the work: hangs in service will not be noticed."""

    reason: str


@dataclass(frozen=True)
class SayReady:
    """The server works; ``note`` says what the canary could not show."""

    note: str = ""


@dataclass(frozen=True)
class SayProven:
    """It served for the whole proving window, and answered a real request at its end."""


@dataclass(frozen=True)
class SayWouldEnd:
    """It would be ended now, were it not only observed."""

    why: str


Effect = (
    SignalLeader
    | SignalTree
    | Sweep
    | AskHealth
    | SendCanary
    | MeasureData
    | AskMetrics
    | TakeStacks
    | SayBlind
    | SayReady
    | SayProven
    | SayWouldEnd
)
