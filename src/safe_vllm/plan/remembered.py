"""What earlier launches of the same thing on the same machine have learnt, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Broken:
    """A rung at which the server died."""

    rung: str
    """Its name."""
    fault: str
    suspect: str
    phase: str
    at: float
    """When it last did, in seconds of the wall clock since 1970."""
    times: int = 1


@dataclass(frozen=True)
class Held:
    """A rung at which the server proved itself."""

    rung: str
    """Its name."""
    at: float
    """When it last did, in seconds of the wall clock since 1970."""
    times: int = 1
    caches: str | None = None
    """The directory with caches of ours that it ran with; ``None``: it ran with the operator's."""


@dataclass(frozen=True)
class Remembered:
    """What is believed of one fingerprint; what has expired is not in it."""

    broken: tuple[Broken, ...] = ()
    held: Held | None = None
