"""The values that tell how much there is left of what attempts use up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Holder:
    """A process that has memory on a GPU."""

    pid: int
    name: str | None = None
    """``None``: it cannot be seen from here; it is another container's, or about to be gone."""
    mib: int | None = None
    """How much it has; ``None``: the driver does not say."""
    is_ours: bool = False
    """Whether it descends from us."""


@dataclass(frozen=True)
class GpuMemory:
    """The memory of one GPU, or of a slice of one."""

    uuid: str
    place: int
    """Its number as CUDA counts."""
    free_mib: int
    total_mib: int
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Level:
    """How much is left of the memory, or of a disk."""

    kind: Literal["memory", "disk"]
    name: str
    free_bytes: int
    whole_bytes: int
    key: str = ""
    """What tells it from others: the name of a disk changes with what is there."""
