"""GPUs are read through NVML where there is a driver, and its troubles are told, not raised."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from safe_vllm.machine.facts import Gpu
from safe_vllm.machine.gpus import NO_DRIVER, Gpus, gpus, gpus_through


@dataclass
class Nvml:
    """NVML with these GPUs, or with a failing call."""

    names: list[str] = field(default_factory=list)
    failing: str = ""
    lost: tuple[int, ...] = ()
    is_open: bool = False

    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None:
        self._call("init")
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False
        self._call("shutdown")

    def nvmlDeviceGetCount(self) -> int:
        self._call("count")
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}{handle}{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        name = self.names[handle]
        return name.encode() if handle else name

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 10, 0

    def _call(self, name: str) -> None:
        if name == self.failing:
            raise self.NVMLError(f"{name} failed")


def test_nvml_is_not_asked_without_a_driver(tmp_path: Path) -> None:
    assert gpus({}, tmp_path) == Gpus((), NO_DRIVER, has_driver=False)


def test_name_and_capability_are_read() -> None:
    nvml = Nvml(["NVIDIA B200", "NVIDIA B200"])
    gpu = Gpu("NVIDIA B200", "10.0")
    assert gpus_through(nvml, {}) == Gpus((gpu, gpu), None, has_driver=True)
    assert not nvml.is_open


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ["b"]),
        ("2,0", ["c", "a"]),
        (" 1 , 2", ["b", "c"]),
        ("GPU-222", ["c"]),
        ("GPU-1", ["b"]),
        ("0,9", ["a"]),
    ],
)
def test_the_visible_gpus_count_in_their_order(visible: str, names: list[str]) -> None:
    found = gpus_through(Nvml(["a", "b", "c"]), {"CUDA_VISIBLE_DEVICES": visible})
    assert [gpu.name for gpu in found.found] == names
    assert found.note is None


@pytest.mark.parametrize("visible", ["", "-1", "9"])
def test_hidden_gpus_are_told_from_no_gpus(visible: str) -> None:
    found = gpus_through(Nvml(["a"]), {"CUDA_VISIBLE_DEVICES": visible})
    assert found == Gpus((), "CUDA_VISIBLE_DEVICES shows no GPU", has_driver=True)


def test_slices_of_a_gpu_are_taken_for_the_gpu() -> None:
    found = gpus_through(Nvml(["a"]), {"CUDA_VISIBLE_DEVICES": "MIG-1234"})
    assert [gpu.name for gpu in found.found] == ["a"]
    assert found.note is not None


def test_a_driver_without_a_gpu_is_said() -> None:
    assert gpus_through(Nvml(), {}) == Gpus((), "NVML shows no GPU", has_driver=True)


def test_troubles_of_nvml_become_a_note() -> None:
    assert gpus_through(Nvml(failing="init"), {}).note == "NVML cannot be used: init failed"
    nvml = Nvml(["a"], failing="count")
    assert gpus_through(nvml, {}) == Gpus((), "NVML failed: count failed", has_driver=True)
    assert not nvml.is_open


@pytest.mark.parametrize(("visible", "names"), [(None, ["a", "c"]), ("1,2", ["c"]), ("2", ["c"]), ("GPU-2", ["c"])])
def test_a_lost_gpu_takes_no_other_with_it(visible: str | None, names: list[str]) -> None:
    nvml = Nvml(["a", "b", "c"], lost=(1,))
    found = gpus_through(nvml, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert [gpu.name for gpu in found.found] == names
    assert found.note == "GPU 1 cannot be read: GPU is lost"


def test_where_every_gpu_is_lost_the_note_says_so() -> None:
    found = gpus_through(Nvml(["a", "b"], lost=(0, 1)), {})
    assert found == Gpus((), "GPU 0 cannot be read: GPU is lost; GPU 1 cannot be read: GPU is lost", has_driver=True)


def test_what_was_read_stays_where_nvml_cannot_be_closed() -> None:
    assert gpus_through(Nvml(["a"], failing="shutdown"), {}).found == (Gpu("a", "10.0"),)
