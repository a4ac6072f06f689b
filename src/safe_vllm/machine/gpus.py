"""The GPUs of this machine, through NVML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safe_vllm.machine.facts import Gpu
from safe_vllm.machine.rooted import below

NO_DRIVER = "no NVIDIA driver on this machine"
DRIVER_SIGNS = ("/proc/driver/nvidia/version", "/dev/nvidiactl")


@dataclass(frozen=True)
class Gpus:
    """The GPUs that vLLM will see, the first one first."""

    found: tuple[Gpu, ...] = ()
    note: str | None = None
    has_driver: bool = False


@dataclass(frozen=True)
class Place:
    """What NVML has at one index."""

    uuid: str | None = None
    gpu: Gpu | None = None
    trouble: str | None = None
    """Why there is no GPU."""


def gpus(environment: Mapping[str, str], root: Path = Path("/")) -> Gpus:
    """Return the visible GPUs. NVML is not even loaded where there is no driver."""
    if not any(below(root, sign).exists() for sign in DRIVER_SIGNS):
        return Gpus(note=NO_DRIVER)
    import pynvml

    return gpus_through(pynvml, environment)


def gpus_through(nvml: Any, environment: Mapping[str, str]) -> Gpus:
    """Return the visible GPUs as NVML's Python binding tells them; its troubles become the note."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Gpus(note=f"NVML cannot be used: {error}", has_driver=True)
    try:
        return _visible(_all(nvml), environment.get("CUDA_VISIBLE_DEVICES"))
    except nvml.NVMLError as error:
        return Gpus(note=f"NVML failed: {error}", has_driver=True)
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _all(nvml: Any) -> list[Place]:
    return [_place(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def _place(nvml: Any, index: int) -> Place:
    """Return what is at one index: a GPU that fell off the bus must not hide the others."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        gpu = Gpu(_text(nvml.nvmlDeviceGetName(handle)), f"{major}.{minor}")
        return Place(_text(nvml.nvmlDeviceGetUUID(handle)), gpu)
    except nvml.NVMLError as error:
        return Place(trouble=f"GPU {index} cannot be read: {error}")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _visible(places: Sequence[Place], wanted: str | None) -> Gpus:
    """Keep the GPUs that ``CUDA_VISIBLE_DEVICES`` names, in its order."""
    troubles = [place.trouble for place in places if place.trouble]
    chosen, why = _chosen(places, wanted)
    found = tuple(place.gpu for place in chosen if place.gpu)
    notes = [*troubles, why] if why else troubles
    return Gpus(found, "; ".join(notes) or None, has_driver=True)


def _chosen(places: Sequence[Place], wanted: str | None) -> tuple[Sequence[Place], str | None]:
    """Return the places that are visible, and what is to be said about that."""
    if wanted is None:
        return places, None if places else "NVML shows no GPU"
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if any(name.startswith("MIG-") for name in names):
        return places, "CUDA_VISIBLE_DEVICES names MIG slices; all GPUs are taken"
    chosen = [place for name in names for place in _named(places, name)]
    return chosen, None if chosen else "CUDA_VISIBLE_DEVICES shows no GPU"


def _named(places: Sequence[Place], name: str) -> Sequence[Place]:
    if name.isdigit():
        return places[int(name) : int(name) + 1]
    return [place for place in places if place.uuid and place.uuid.startswith(name)][:1]
