"""What NVML tells about free memory, and whom it names; a GPU or driver that does not tell is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from safe_vllm.machine.gpu_memory import gpu_memory
from safe_vllm.machine.levels import GpuMemory, Holder

MIB = 1 << 20


@dataclass
class Nvml:
    """NVML with GPUs of 80 GiB, each with so many MiB free; a handle is an index."""

    free: list[int]
    holders: list[tuple[int, int | None]] = field(default_factory=list)
    failing: Collection[str] = ()
    mute: Collection[int] = ()
    """The GPUs that do not tell their memory."""
    is_open: bool = False

    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None:
        self._call("init")
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        self._call("count")
        return len(self.free)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        assert self.is_open
        return int(uuid.removeprefix("GPU-"))

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA B200"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 10, 0

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        if handle in self.mute:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(free=self.free[handle] * MIB, total=81_920 * MIB)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        self._call("holders")
        return [SimpleNamespace(pid=pid, usedGpuMemory=mib and mib * MIB) for pid, mib in self.holders]

    def _call(self, name: str) -> None:
        if name in self.failing:
            raise self.NVMLError(f"{name} failed")


def read(nvml: Nvml, **environment: str) -> tuple[GpuMemory, ...] | None:
    found = gpu_memory(environment, nvml=nvml)
    assert not nvml.is_open
    return found


def test_every_gpu_tells_what_it_has_free() -> None:
    assert read(Nvml([100, 200])) == (GpuMemory("GPU-0", 0, 100, 81_920), GpuMemory("GPU-1", 1, 200, 81_920))


def test_only_visible_gpus_count_in_the_order_of_cuda() -> None:
    found = read(Nvml([100, 200, 300]), CUDA_VISIBLE_DEVICES="2,0")
    assert found == (GpuMemory("GPU-2", 0, 300, 81_920), GpuMemory("GPU-0", 1, 100, 81_920))


def test_a_gpu_that_shares_the_memory_of_the_cpu_is_left_out() -> None:
    assert read(Nvml([100, 200], mute=[0])) == (GpuMemory("GPU-1", 1, 200, 81_920),)


@pytest.mark.parametrize("call", ["init", "count"])
def test_a_driver_that_fails_tells_nothing(call: str) -> None:
    assert read(Nvml([100], failing=[call])) is None


def test_without_a_driver_nothing_is_loaded(tmp_path: Path) -> None:
    assert gpu_memory({}, tmp_path) is None


def holders(*found: tuple[int, int | None]) -> tuple[Holder, ...]:
    memory = read(Nvml([100], holders=list(found)))
    assert memory is not None
    return memory[0].holders


def test_who_holds_memory_is_named_and_told_to_be_ours_or_not() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ours = Holder(child.pid, Path(sys.executable).name, 70_000, is_ours=True)
        assert holders((child.pid, 70_000)) == (ours,)
        child.communicate()
    (parent,) = holders((os.getppid(), None))
    assert (parent.mib, parent.is_ours) == (None, False)
    assert parent.name


def test_a_holder_that_cannot_be_seen_from_here_has_no_name() -> None:
    assert holders((1 << 30, 70_000)) == (Holder(1 << 30, None, 70_000),)


def test_free_memory_is_told_although_its_holders_are_not() -> None:
    assert read(Nvml([100], holders=[(1, 1)], failing=["holders"])) == (GpuMemory("GPU-0", 0, 100, 81_920),)
