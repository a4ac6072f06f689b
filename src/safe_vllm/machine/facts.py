"""The values that describe a machine and the software installed on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

WeightFormat = Literal["bf16", "fp8", "nvfp4", "mxfp4", "mxfp8", "int4", "int8"]
"""``bf16``: any unquantised one. ``int4``: under 16-bit activations. ``int8``: what vLLM calls ``Int8`` for experts."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML names it."""

    name: str
    """Such as ``NVIDIA B200``."""
    compute_capability: str | None = None
    """Major and minor, such as ``10.0``."""
    memory_mib: int | None = None
    """In all, as NVML tells it; ``None`` also where GPU and CPU share their memory."""
    is_slice: bool = False
    """Whether it is a part of a GPU (MIG); it then has the name of the whole."""


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
    """The CUDA release that torch was built for, such as ``12.8``; ``None`` for a build without CUDA."""
    flashinfer: str | None = None
    """Version of flashinfer-python."""
    flashinfer_cubin: str | None = None
    flashinfer_jit_cache: str | None = None
    """May say which CUDA it was built for, such as ``0.6.12+cu130``."""
    torch_rocm: str | None = None
    """The HIP release that torch was built for, such as ``7.0.51831``; ``None`` for a build without ROCm."""
    cuda_runtime: str | None = None
    """Version of the CUDA runtime that pip installed for torch, such as ``12.8.90``."""
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
    weight_format: WeightFormat | None = None
    """Of the experts; of a dense model, of its linear layers. ``None``: another one, several, or not told."""
    block_size: int | None = None
    """Values along the width of an expert that share a scale, where the weights are quantised in blocks."""
    context_length: int | None = None
    """The most tokens that the model is made for."""
    is_guess: bool = False
    """Whether it was only concluded from the model's name."""


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
    """``None``: no readable ``config.json`` was found for it on this machine."""
    model_name: str | None = None
    """The model that ``model`` describes, as the command named it."""
    model_note: str | None = None
    """Why ``model`` is not what a record says. Never recorded."""


Place = tuple[str | int, ...]
"""Keys and indices that lead to a value in what a YAML file holds."""


@dataclass(frozen=True)
class ProfileFile:
    """A profile as it was read: not yet understood."""

    path: str
    content: object
    """Mappings, lists and scalars, as YAML gives them."""
    lines: Mapping[Place, int] = field(default_factory=dict)
    """The line of each value."""
    origin: str = "file"
    """Where it was found: ``shipped``, ``system``, ``user``, ``directory`` (given) or ``file`` (given)."""
    base: ProfileFile | None = None
    """What it extends."""
