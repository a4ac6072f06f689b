"""The values that describe a machine and the software installed on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML names it."""

    name: str
    """Such as ``NVIDIA B200``."""
    compute_capability: str | None = None
    """Major and minor, such as ``10.0``."""


@dataclass(frozen=True)
class Installation:
    """What is installed for the Python interpreter behind the ``vllm`` command. ``None``: not found."""

    python: str | None = None
    """Path of that interpreter."""
    vllm: str | None = None
    """vLLM's version."""
    torch: str | None = None
    torch_cuda: str | None = None
    """The CUDA release that torch was built for, such as ``12.8``; ``None`` for a CPU build."""
    flashinfer: str | None = None


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a model's ``config.json`` that decide how it can be split. ``None``: not stated."""

    attention_heads: int | None = None
    experts: int | None = None
    """Zero: a dense model."""
    moe_intermediate_size: int | None = None


@dataclass(frozen=True)
class Machine:
    """Everything a plan depends on that the operator did not write."""

    architecture: str
    """As ``uname -m`` prints it: ``x86_64``, ``aarch64``."""
    gpus: tuple[Gpu, ...] = ()
    gpu_note: str | None = None
    """Why ``gpus`` is empty, or what kept NVML from telling more."""
    has_driver: bool = False
    """Whether an NVIDIA driver is loaded, even where it shows no GPU."""
    installation: Installation = Installation()
    cuda12_libraries: tuple[str, ...] = ()
    """Directories that hold ``libcudart.so.12``, the best one for this machine first."""
    model: ModelShape | None = None
    """``None`` when the model is not a directory on this machine or has no readable ``config.json``."""


@dataclass(frozen=True)
class ProfileFile:
    """A profile as it was read: not yet understood."""

    path: str
    content: object
    """Mappings, lists and scalars, as YAML gives them."""
