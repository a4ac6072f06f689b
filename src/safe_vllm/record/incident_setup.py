"""What a report says of the machine and the software on it, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Versions:
    """What is installed. ``None``: not found."""

    safe_vllm: str
    vllm: str | None = None
    flashinfer: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    """The CUDA release that torch was built for."""
    driver: str | None = None
    driver_cuda: str | None = None
    """The newest CUDA release that the driver can run."""
    python: str | None = None
    """Path of the interpreter."""
    architecture: str | None = None


@dataclass(frozen=True)
class GpuKind:
    """GPUs that are alike."""

    count: int
    name: str
    compute_capability: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True)
class GpuFree:
    """The free memory of one GPU. ``None``: not known."""

    gpu: int
    """As CUDA counts."""
    total_mib: int
    before_mib: int | None = None
    """Before the first attempt."""
    after_mib: int | None = None
    """When nothing was left of this one."""


@dataclass(frozen=True)
class HostFree:
    """What is left of the machine's memory, or of a disk. ``None``: not known."""

    name: str
    whole_bytes: int
    before_bytes: int | None = None
    """At the first attempt."""
    after_bytes: int | None = None
    """The last that was seen."""
