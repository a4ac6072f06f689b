"""What a report says of the machine and the software on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from safe_vllm.machine.facts import Machine
from safe_vllm.machine.levels import GpuMemory, Level
from safe_vllm.record.incident_setup import GpuFree, GpuKind, HostFree, Versions
from safe_vllm.verdict.evidence import Setup


def safe_vllm_version() -> str:
    """Return our own version."""
    try:
        return version("safe-vllm")
    except PackageNotFoundError:  # run from its source
        return "unknown"


def versions(machine: Machine, setup: Setup) -> Versions:
    """Return what runs by its own account, else what is installed."""
    installed = machine.installation
    told = setup.or_else(Setup(installed.vllm, installed.flashinfer))
    return Versions(
        safe_vllm=safe_vllm_version(),
        vllm=told.vllm,
        flashinfer=told.flashinfer,
        torch=installed.torch,
        torch_cuda=installed.torch_cuda,
        driver=machine.driver,
        driver_cuda=machine.driver_cuda,
        python=installed.python,
        architecture=machine.architecture,
    )


def gpus(machine: Machine) -> Iterator[GpuKind]:
    """Yield the GPUs, those that are alike together."""
    for gpu, count in Counter(machine.gpus).items():
        yield GpuKind(count, gpu.name, gpu.compute_capability, gpu.memory_mib)


def gpu_memory(before: Sequence[GpuMemory], after: Sequence[GpuMemory]) -> Iterator[GpuFree]:
    """Yield what each GPU had free before the first attempt and after this one."""
    first, last = ({gpu.uuid: gpu for gpu in each} for each in (before, after))
    for uuid, gpu in sorted({**last, **first}.items(), key=lambda known: known[1].place):
        yield GpuFree(gpu.place, gpu.total_mib, _free(first.get(uuid)), _free(last.get(uuid)))


def _free(gpu: GpuMemory | None) -> int | None:
    return gpu.free_mib if gpu else None


def host(levels: Sequence[Sequence[Level]]) -> Iterator[HostFree]:
    """Yield what the machine had left at the first attempt and at the last reading."""
    readings = [{level.key or level.name: level for level in reading} for reading in levels]
    for key, level in readings[0].items() if readings else ():
        last = readings[-1].get(key) if len(readings) > 1 else None
        yield HostFree(level.name, level.whole_bytes, level.free_bytes, last.free_bytes if last else None)
