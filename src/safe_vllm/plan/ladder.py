"""The ladder: complete sets of settings, from what was asked for down to the safest."""

from __future__ import annotations

from dataclasses import dataclass

AS_ASKED = "as-asked"
NO_AUTOTUNE = "no-autotune"
TRITON = "triton"
LESS_PARALLEL = "less-parallel"
NO_EXPERT_PARALLEL = "no-expert-parallel"
RUNG_NAMES = (AS_ASKED, NO_AUTOTUNE, TRITON, LESS_PARALLEL, NO_EXPERT_PARALLEL)


@dataclass(frozen=True)
class Rung:
    """One complete set of settings: what follows ``vllm serve``, and the variables we set."""

    name: str
    words: tuple[str, ...]
    """Every word after ``vllm serve``."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables we set, by name; the operator's own environment is not repeated here."""
    note: str | None = None
    """What a reader should know, such as "no effect here"."""


@dataclass(frozen=True)
class LeftOut:
    """A rung that this ladder does not have, and why."""

    name: str
    because: str


@dataclass(frozen=True)
class Ladder:
    """The rungs in order. Two neighbours never run the same command."""

    rungs: tuple[Rung, ...]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What will be run, and why it is this."""

    profile: str
    because: str
    """Why this profile was chosen."""
    ladder: Ladder
    unread: frozenset[str] = frozenset()
    """Variables that we set and that the installed versions do not read."""
    notes: tuple[str, ...] = ()
