"""How much memory the visible GPUs have free, and who has the rest, through NVML."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safe_vllm.machine.gpus import binding, visible
from safe_vllm.machine.levels import GpuMemory, Holder
from safe_vllm.machine.rooted import text_of


def gpu_memory(
    environment: Mapping[str, str], root: Path = Path("/"), nvml: Any = None
) -> tuple[GpuMemory, ...] | None:
    """Return the memory of the visible GPUs that tell it; ``None``: there is no driver, or it does not answer."""
    if (nvml := nvml or binding(root)) is None:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return tuple(_memory(nvml, [place.names for place in visible(nvml, environment)]))
    except nvml.NVMLError:
        return None
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _memory(nvml: Any, names: Sequence[Sequence[str]]) -> Iterator[GpuMemory]:
    """Yield what is free. A GPU that shares the memory of the CPU, or fell off the bus, has nothing to tell."""
    for place, (uuid, *_) in ((at, known) for at, known in enumerate(names) if known):
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            found = nvml.nvmlDeviceGetMemoryInfo(handle)
            yield GpuMemory(uuid, place, found.free >> 20, found.total >> 20, tuple(_holders(nvml, handle)))


def _holders(nvml: Any, handle: Any) -> Iterator[Holder]:
    try:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return
    for process in found:
        used, ancestors = process.usedGpuMemory, list(_ancestors(process.pid))
        yield Holder(process.pid, _name(process.pid), None if used is None else used >> 20, os.getpid() in ancestors)


def _name(pid: int) -> str | None:
    """Return what a process calls itself: vLLM's processes write a title where the command line was."""
    words = (text_of(Path(f"/proc/{pid}/cmdline")) or "").split("\0")
    name = Path(words[0]).name if words[0].startswith("/") else words[0]
    return name.strip() or (text_of(Path(f"/proc/{pid}/comm")) or "").strip() or None


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        fields = (text_of(Path(f"/proc/{pid}/stat")) or "").rpartition(")")[2].split()
        if len(fields) < 2:
            return
        pid = int(fields[1])
        yield pid
