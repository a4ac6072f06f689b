"""The values that tell how much there is left of what attempts use up, and what befalls their GPUs."""

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
class Xid:
    """A fault that the driver reports of a visible GPU. Which process brought it about it does not say."""

    number: int | None
    """NVIDIA's number for it; ``None``: the GPU is gone."""
    place: int | None = None
    """The number of the GPU as CUDA counts."""
    bus: str | None = None
    """The address of the GPU as the kernel writes it, such as ``PCI:0000:65:00``."""


@dataclass(frozen=True)
class Level:
    """How much is left of the memory, or of a disk."""

    kind: Literal["memory", "disk"]
    name: str
    free_bytes: int
    whole_bytes: int
    key: str = ""
    """What tells it from others: the name of a disk changes with what is there."""
