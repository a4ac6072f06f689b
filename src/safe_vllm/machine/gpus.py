"""The GPUs of this machine, through NVML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from safe_vllm.machine.facts import Gpu
from safe_vllm.machine.jetson import board, is_jetson
from safe_vllm.machine.rooted import below, exists, text_of

NO_DRIVER = "no NVIDIA driver on this machine"
ONE_SLICE = "CUDA uses one MIG slice per process"
"""https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ (device enumeration)"""
UNORDERED = "the GPUs differ, and without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA may number them otherwise"
NO_SLICE = "is in MIG mode and has no slice"

KERNEL_MODULE = "/proc/driver/nvidia/version"
DRIVER_SIGNS = (KERNEL_MODULE, "/dev/nvidiactl", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
"""The kernel module, its device (all that a container may have), and the driver that Windows lends to Linux."""

T = TypeVar("T")


@dataclass(frozen=True)
class Gpus:
    """The GPUs that vLLM will see, the first one first, and their driver."""

    found: tuple[Gpu, ...] = ()
    note: str | None = None
    has_driver: bool = False
    driver: str | None = None
    driver_cuda: str | None = None


@dataclass(frozen=True)
class Place:
    """What NVML has at one index, or one slice of that."""

    names: tuple[str, ...] = ()
    """What ``CUDA_VISIBLE_DEVICES`` may call it, but for its number."""
    gpu: Gpu | None = None
    trouble: str | None = None
    """Why there is no GPU."""
    slices: tuple[Place, ...] = ()
    """Of a GPU that is divided (MIG)."""


def gpus(environment: Mapping[str, str], root: Path = Path("/"), nvml: Any = None) -> Gpus:
    """Return the visible GPUs. NVML (``None``: the one of this machine) is not even loaded where there is no driver."""
    if not _has_driver(root):
        return Gpus(note=NO_DRIVER)
    seen = gpus_through(nvml or binding(root), environment)
    if is_jetson(root) and (gpu := board(root)):
        seen = replace(seen, found=_with_board(seen.found, gpu, environment))
    return seen if seen.driver else replace(seen, driver=_module_version(text_of(below(root, KERNEL_MODULE)) or ""))


def binding(root: Path = Path("/")) -> Any | None:
    """Return NVML's Python binding; ``None``: there is no driver for it."""
    if not _has_driver(root):
        return None
    import pynvml

    return pynvml


def _has_driver(root: Path) -> bool:
    return is_jetson(root) or any(exists(below(root, sign)) for sign in DRIVER_SIGNS)


def gpus_through(nvml: Any, environment: Mapping[str, str]) -> Gpus:
    """Return the visible GPUs as NVML's Python binding tells them; its troubles become the note."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Gpus(note=f"NVML cannot be used: {error}", has_driver=True)
    driver = Gpus(
        has_driver=True,
        driver=_told(nvml, lambda: _text(nvml.nvmlSystemGetDriverVersion())),
        driver_cuda=_told(nvml, lambda: _release(nvml.nvmlSystemGetCudaDriverVersion_v2())),
    )
    try:
        found, note = _visible(_all(nvml), environment)
        return replace(driver, found=found, note=note)
    except nvml.NVMLError as error:
        return replace(driver, note=f"NVML failed: {error}")
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def visible(nvml: Any, environment: Mapping[str, str]) -> Sequence[Place]:
    """Return the GPUs and slices that CUDA will show, in its order. NVML must be open; raises its errors."""
    return _visible_of(_all(nvml), environment)


def _with_board(found: tuple[Gpu, ...], gpu: Gpu, environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs of a Jetson board: what NVML does not tell, the board does."""
    if not found and environment.get("CUDA_VISIBLE_DEVICES") in (None, "0"):
        return (gpu,)
    return tuple(each if each.compute_capability else replace(gpu, name=each.name) for each in found)


def _all(nvml: Any) -> list[Place]:
    return [_place(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def _place(nvml: Any, index: int) -> Place:
    """Return what is at one index: a GPU that fell off the bus must not hide the others."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
    except nvml.NVMLError as error:
        return Place(trouble=f"GPU {index} cannot be read: {error}")
    gpu = Gpu(name, _told(nvml, lambda: _capability(nvml, handle)), _told(nvml, lambda: _memory_mib(nvml, handle)))
    if not _told(nvml, lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0])):
        return Place((uuid,), gpu)
    slices = tuple(_slices(nvml, handle, uuid, gpu))
    return Place((uuid,), gpu, slices=slices) if slices else Place((uuid,), trouble=f"GPU {index} {NO_SLICE}")


def _slices(nvml: Any, handle: Any, uuid: str, gpu: Gpu) -> Iterator[Place]:
    """Yield the slices of a GPU. Indices may be vacant, and a slice may be another container's."""
    for index in range(_told(nvml, lambda: int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0):
        with suppress(nvml.NVMLError):
            yield _slice(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index), uuid, gpu)


def _slice(nvml: Any, part: Any, uuid: str, gpu: Gpu) -> Place:
    """Return a slice under its two names: its own, and that of older drivers, made of the GPU's and two numbers."""
    numbers = nvml.nvmlDeviceGetGpuInstanceId(part), nvml.nvmlDeviceGetComputeInstanceId(part)
    names = (_text(nvml.nvmlDeviceGetUUID(part)), "MIG-{}/{}/{}".format(uuid, *numbers))
    return Place(names, replace(gpu, memory_mib=_told(nvml, lambda: _memory_mib(nvml, part)), is_slice=True))


def _told(nvml: Any, ask: Callable[[], T]) -> T | None:
    """Return the answer to one question, or ``None`` where this GPU or driver does not answer it."""
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _capability(nvml: Any, handle: Any) -> str:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


def _memory_mib(nvml: Any, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20


def _release(number: int) -> str:
    """Return a CUDA release as people write it: 13000 is ``13.0``."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _module_version(text: str) -> str | None:
    found = re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", text)
    return found[1] if found else None


def _visible(places: Sequence[Place], environment: Mapping[str, str]) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the GPUs that CUDA will show, in its order, and what is to be said about that."""
    wanted, chosen = environment.get("CUDA_VISIBLE_DEVICES"), _visible_of(places, environment)
    found = tuple(place.gpu for place in chosen if place.gpu)
    notes = [place.trouble for place in places if place.trouble]
    if not chosen:
        notes.append("NVML shows no GPU" if wanted is None else "CUDA_VISIBLE_DEVICES shows no GPU")
    if any(gpu.is_slice for gpu in found):
        notes.append(ONE_SLICE)
    is_numbered = wanted is None or any(name.strip().isdigit() for name in wanted.split(","))
    if is_numbered and len({place.gpu for place in places if place.gpu}) > 1:
        notes += [UNORDERED] if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" else []
    return found, "; ".join(notes) or None


def _visible_of(places: Sequence[Place], environment: Mapping[str, str]) -> Sequence[Place]:
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    return _shown(places) if wanted is None else _chosen(places, wanted)


def _shown(places: Sequence[Place]) -> Sequence[Place]:
    """Return what CUDA shows by itself: one slice alone where there is any, else every whole GPU."""
    slices = [part for place in places for part in place.slices]
    return slices[:1] or places


def _chosen(places: Sequence[Place], wanted: str) -> Sequence[Place]:
    """Return the places that ``CUDA_VISIBLE_DEVICES`` names; CUDA ignores what follows a name that it does not know."""
    chosen: list[Place] = []
    for name in filter(None, map(str.strip, wanted.split(","))):
        place = _named(places, name)
        if place is None:
            break
        chosen += place.slices[:1] if place.slices else [place]
    return chosen


def _named(places: Sequence[Place], name: str) -> Place | None:
    if name.isdigit():
        return next(iter(places[int(name) : int(name) + 1]), None)
    everything = [*places, *(part for place in places for part in place.slices)]
    return next((place for place in everything if any(known.startswith(name) for known in place.names)), None)
