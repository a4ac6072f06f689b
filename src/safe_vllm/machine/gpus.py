"""The GPUs of this machine, through NVML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        nvml.nvmlShutdown()


def _all(nvml: Any) -> list[tuple[str, Gpu]]:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return [(_text(nvml.nvmlDeviceGetUUID(handle)), _gpu(nvml, handle)) for handle in handles]


def _gpu(nvml: Any, handle: Any) -> Gpu:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(_text(nvml.nvmlDeviceGetName(handle)), f"{major}.{minor}", _memory_mib(nvml, handle))


def _memory_mib(nvml: Any, handle: Any) -> int | None:
    """Return the memory; ``None`` where it is shared with the CPU and NVML does not count it (GB10)."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _visible(found: Sequence[tuple[str, Gpu]], wanted: str | None) -> Gpus:
    """Keep the GPUs that ``CUDA_VISIBLE_DEVICES`` names, in its order."""
    everything = tuple(gpu for _, gpu in found)
    if wanted is None:
        return Gpus(everything, None if everything else "NVML shows no GPU", has_driver=True)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if any(name.startswith("MIG-") for name in names):
        return Gpus(everything, "CUDA_VISIBLE_DEVICES names MIG slices; all GPUs are taken", has_driver=True)
    chosen = tuple(gpu for name in names for gpu in _named(found, name))
    return Gpus(chosen, None if chosen else "CUDA_VISIBLE_DEVICES shows no GPU", has_driver=True)


def _named(found: Sequence[tuple[str, Gpu]], name: str) -> tuple[Gpu, ...]:
    if name.isdigit():
        return (found[int(name)][1],) if int(name) < len(found) else ()
    return tuple(gpu for uuid, gpu in found if uuid.startswith(name))[:1]
