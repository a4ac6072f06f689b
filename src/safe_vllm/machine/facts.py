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
    memory_mib: int | None = None
    """In all, as NVML tells it."""
    is_slice: bool = False
    """Whether it is a part of a GPU (MIG)."""


@dataclass(frozen=True)
class Surface:
    """What the installed vLLM's own source says that it takes. ``None``: that part could not be read."""

    flags: frozenset[str] | None = None
    """Long forms, such as ``--moe-backend``."""
    moe_backends: tuple[str, ...] | None = None
    """What ``--moe-backend`` takes, in the source's order; empty: there is no such setting."""
    variables: frozenset[str] | None = None
    """Names that start with ``VLLM_``."""
    levels_without_autotune: tuple[str, ...] | None = None
    """Optimisation levels at which FlashInfer autotune is off unless told otherwise."""


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
    """Version of flashinfer-python."""
    flashinfer_cubin: str | None = None
    flashinfer_jit_cache: str | None = None
    surface: Surface | None = None
    """``None``: the source was not found or not looked at."""


@dataclass(frozen=True)
class ModelShape:
    """The parts of a model's ``config.json`` that decide how it can be split and run. ``None``: not stated."""

    attention_heads: int | None = None
    kv_heads: int | None = None
    experts: int | None = None
    """Zero: a dense model."""
    moe_intermediate_size: int | None = None
    weight_format: str | None = None
    """Of the experts: ``bf16`` (any unquantised one), ``fp8``, ``nvfp4``, ``mxfp4``, ``mxfp8``, ``int4``, ``int8``."""
    block_size: int | None = None
    """Values along the width of an expert that share a scale, where the weights are quantised in blocks."""
    context_length: int | None = None
    """The most tokens that the model is made for."""


@dataclass(frozen=True)
class CudaLibrary:
    """A directory that holds CUDA runtime libraries."""

    directory: str
    runtimes: tuple[str, ...]
    """Names of the files, such as ``libcudart.so.12``."""


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
    driver: str | None = None
    """The driver's version, such as ``580.82.07``."""
    driver_cuda: str | None = None
    """The newest CUDA release that the driver can run, such as ``13.0``."""
    visible_devices: str | None = None
    """``CUDA_VISIBLE_DEVICES`` as it is set; ``None``: it is not."""
    installation: Installation = Installation()
    cuda12_libraries: tuple[str, ...] = ()
    """Directories that hold ``libcudart.so.12``, the best one for this machine first."""
    cuda_libraries: tuple[CudaLibrary, ...] = ()
    """All directories with a CUDA runtime that were found, the best one for this machine first."""
    model: ModelShape | None = None
    """``None`` when the model is not a directory on this machine or has no readable ``config.json``."""


@dataclass(frozen=True)
class ProfileFile:
    """A profile as it was read: not yet understood."""

    path: str
    content: object
    """Mappings, lists and scalars, as YAML gives them."""
