"""GPUs are read through NVML where there is a driver, and its troubles are told, not raised."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from safe_vllm.machine.facts import Gpu
from safe_vllm.machine.gpus import NO_DRIVER, ONE_SLICE, UNORDERED, Gpus, gpus, gpus_through
from safe_vllm.machine.jetson import board, is_jetson

MIB = 1 << 20
SLICE = "MIG-1a-0"


@dataclass
class Nvml:
    """NVML with these GPUs, or with failing calls. A handle is an index, that of a slice a pair of them."""

    names: list[str] = field(default_factory=list)
    failing: Collection[str] = ()
    lost: tuple[int, ...] = ()
    deaf: Collection[int] = ()
    """The GPUs that report to nobody."""
    slices: dict[int, list[bool]] = field(default_factory=dict)
    """The GPUs in MIG mode, with whether there is a slice at each index."""
    is_open: bool = False

    reports: list[SimpleNamespace | int] = field(default_factory=list)
    """What there is to report, or the numbers of the errors that are answered instead; then there is nothing more."""
    listened_to: list[int] = field(default_factory=list)

    NVML_ERROR_TIMEOUT = 10
    NVML_ERROR_GPU_IS_LOST = 15
    nvmlEventTypeXidCriticalError = 8

    class NVMLError(Exception):
        value = 999

    def nvmlInit(self) -> None:
        self._call("init")
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False
        self._call("shutdown")

    def nvmlSystemGetDriverVersion(self) -> bytes:
        self._call("driver")
        return b"580.95.05"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        self._call("cuda")
        return 12090

    def nvmlDeviceGetCount(self) -> int:
        self._call("count")
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetUUID(self, handle: int | tuple[int, int]) -> str:
        if isinstance(handle, tuple):
            return "MIG-{}a-{}".format(*handle)
        return f"GPU-{handle}{handle}{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        name = self.names[handle]
        return name.encode() if handle else name

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        self._call("capability")
        return 10, 3

    def nvmlDeviceGetMemoryInfo(self, handle: int | tuple[int, int]) -> SimpleNamespace:
        self._call("memory")
        return SimpleNamespace(total=(10 if isinstance(handle, tuple) else 80) * MIB)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        self._call("mig")
        return [1, 1] if handle in self.slices else [0, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return len(self.slices[handle])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> tuple[int, int]:
        if not self.slices[handle][index]:
            raise self.NVMLError("Not Found")
        return handle, index

    def nvmlDeviceGetGpuInstanceId(self, handle: tuple[int, int]) -> int:
        return handle[1] + 7

    def nvmlDeviceGetComputeInstanceId(self, handle: tuple[int, int]) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int | tuple[int, int]:
        if uuid.startswith("MIG-"):
            return int(uuid[4]), int(uuid[-1])
        return int(uuid[-1])

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: tuple[int, int]) -> int:
        return handle[0]

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        self._call("pci")
        return SimpleNamespace(busId=f"00000000:{0xA0 + handle:X}:00.0".encode())

    def nvmlEventSetCreate(self) -> str:
        self._call("create")
        return "events"

    def nvmlDeviceRegisterEvents(self, handle: int, types: int, events: str) -> None:
        assert (self.is_open, types, events) == (True, self.nvmlEventTypeXidCriticalError, "events")
        self._call("register")
        if handle in self.deaf:
            raise self.NVMLError("Not Supported")
        self.listened_to.append(handle)

    def nvmlEventSetWait_v2(self, events: str, timeout_ms: int) -> SimpleNamespace:
        assert self.is_open
        assert 0 <= timeout_ms <= 5000
        report = self.reports.pop(0) if self.reports else self.NVML_ERROR_TIMEOUT
        if isinstance(report, int):
            error = self.NVMLError(f"error {report}")
            error.value = report
            raise error
        return report

    def nvmlEventSetFree(self, events: str) -> None:
        self.listened_to.clear()

    def _call(self, name: str) -> None:
        if name in self.failing:
            raise self.NVMLError(f"{name} failed")


WITHOUT = Nvml(failing=["init"])


def seen(found: tuple[Gpu, ...] = (), note: str | None = None) -> Gpus:
    return Gpus(found, note, has_driver=True, driver="580.95.05", driver_cuda="12.9")


def names(found: Gpus) -> list[str]:
    return [gpu.name for gpu in found.found]


def write(root: Path, path: str, text: str = "") -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_nvml_is_not_asked_without_a_driver(tmp_path: Path) -> None:
    assert gpus({}, tmp_path) == Gpus((), NO_DRIVER, has_driver=False)


def test_name_capability_memory_and_driver_are_read() -> None:
    nvml = Nvml(["NVIDIA B300 SXM6 AC", "NVIDIA B300 SXM6 AC"])
    gpu = Gpu("NVIDIA B300 SXM6 AC", "10.3", 80)
    assert gpus_through(nvml, {}) == seen((gpu, gpu))
    assert not nvml.is_open


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ("memory", Gpu("NVIDIA GB10", "10.3", None)),
        ("capability", Gpu("NVIDIA GB10", None, 80)),
        ("mig", Gpu("NVIDIA GB10", "10.3", 80)),
    ],
)
def test_a_question_that_a_gpu_does_not_answer_hides_nothing_else(failing: str, expected: Gpu) -> None:
    assert gpus_through(Nvml(["NVIDIA GB10"], failing=[failing]), {}) == seen((expected,))


def test_a_driver_that_does_not_tell_its_version_hides_no_gpu() -> None:
    found = gpus_through(Nvml(["a"], failing=["driver", "cuda"]), {})
    assert (found.driver, found.driver_cuda, names(found)) == (None, None, ["a"])


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", ["b"]),
        ("2,0", ["c", "a"]),
        (" 1 , 2", ["b", "c"]),
        ("GPU-222", ["c"]),
        ("GPU-1", ["b"]),
        ("0,9", ["a"]),
        ("0,-1,1", ["a"]),
    ],
)
def test_the_visible_gpus_count_in_their_order(visible: str, expected: list[str]) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    found = gpus_through(Nvml(["a", "b", "c"]), environment)
    assert names(found) == expected
    assert found.note is None


@pytest.mark.parametrize("visible", ["", "-1", "9"])
def test_hidden_gpus_are_told_from_no_gpus(visible: str) -> None:
    found = gpus_through(Nvml(["a"]), {"CUDA_VISIBLE_DEVICES": visible})
    assert found == seen((), "CUDA_VISIBLE_DEVICES shows no GPU")


@pytest.mark.parametrize(("visible", "note"), [(None, UNORDERED), ("1", UNORDERED), ("GPU-1", None)])
def test_numbers_of_gpus_that_differ_are_doubtful(visible: str | None, note: str | None) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus_through(Nvml(["a", "b"]), environment).note == note
    assert gpus_through(Nvml(["a", "a"]), environment).note is None


@pytest.mark.parametrize("visible", [SLICE, "MIG-1a", "MIG-GPU-111/7/0", "1"])
def test_a_visible_slice_has_the_name_of_its_gpu_and_its_own_memory(visible: str) -> None:
    nvml = Nvml(["NVIDIA H100 80GB HBM3"] * 2, slices={1: [True, False, True]})
    found = gpus_through(nvml, {"CUDA_VISIBLE_DEVICES": visible})
    assert found == seen((Gpu("NVIDIA H100 80GB HBM3", "10.3", 10, is_slice=True),), ONE_SLICE)


def test_slices_keep_the_order_of_the_variable() -> None:
    nvml = Nvml(["a", "b"], slices={0: [True], 1: [True, True]})
    found = gpus_through(nvml, {"CUDA_VISIBLE_DEVICES": f"MIG-1a-1,MIG-0a-0,{SLICE}"})
    assert names(found) == ["b", "a", "b"]


def test_without_the_variable_cuda_shows_one_slice_and_no_whole_gpu() -> None:
    found = gpus_through(Nvml(["a", "a"], slices={1: [False, True, True]}), {})
    assert found == seen((Gpu("a", "10.3", 10, is_slice=True),), ONE_SLICE)


def test_a_gpu_in_mig_mode_without_a_slice_is_of_no_use() -> None:
    found = gpus_through(Nvml(["a", "a"], slices={0: [False, False]}), {})
    assert found == seen((Gpu("a", "10.3", 80),), "GPU 0 is in MIG mode and has no slice")


def test_a_driver_without_a_gpu_is_said() -> None:
    assert gpus_through(Nvml(), {}) == seen((), "NVML shows no GPU")


def test_troubles_of_nvml_become_a_note() -> None:
    assert gpus_through(Nvml(failing=["init"]), {}).note == "NVML cannot be used: init failed"
    nvml = Nvml(["a"], failing=["count"])
    assert gpus_through(nvml, {}) == seen((), "NVML failed: count failed")
    assert not nvml.is_open


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, ["a", "a"]), ("1,2", ["a"]), ("2", ["a"]), ("1", []), ("GPU-2", ["a"])]
)
def test_a_lost_gpu_takes_no_other_with_it(visible: str | None, expected: list[str]) -> None:
    nvml = Nvml(["a", "a", "a"], lost=(1,))
    found = gpus_through(nvml, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert names(found) == expected
    assert found.note == "GPU 1 cannot be read: GPU is lost"


def test_where_every_gpu_is_lost_the_note_says_so() -> None:
    found = gpus_through(Nvml(["a", "b"], lost=(0, 1)), {})
    assert found == seen((), "GPU 0 cannot be read: GPU is lost; GPU 1 cannot be read: GPU is lost")


def test_what_was_read_stays_where_nvml_cannot_be_closed() -> None:
    assert gpus_through(Nvml(["a"], failing=["shutdown"]), {}).found == (Gpu("a", "10.3", 80),)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.57.08  Thu May 29", "575.57.08"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build", "580.95.05"),
        ("something else 12.3", None),
    ],
)
def test_the_kernel_module_tells_the_drivers_version_where_nvml_does_not(
    tmp_path: Path, text: str, version: str | None
) -> None:
    write(tmp_path, "/proc/driver/nvidia/version", text)
    found = gpus({}, tmp_path, WITHOUT)
    assert found.has_driver
    assert found.driver == version


def test_a_board_without_nvml_is_known_by_its_device_tree(tmp_path: Path) -> None:
    write(tmp_path, "/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3")
    write(
        tmp_path, "/proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0"
    )
    write(tmp_path, "/proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    found = gpus({}, tmp_path, WITHOUT)
    assert found.found == (Gpu("NVIDIA Jetson AGX Orin Developer Kit", "8.7"),)
    assert found.has_driver
    assert gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path, WITHOUT).found == ()


def test_a_board_tells_what_its_nvml_does_not(tmp_path: Path) -> None:
    write(tmp_path, "/etc/nv_tegra_release")
    write(tmp_path, "/proc/device-tree/compatible", "nvidia,tegra234\0")
    found = gpus({}, tmp_path, Nvml(["Orin (nvgpu)"], failing=["capability", "memory"]))
    assert found.found == (Gpu("Orin (nvgpu)", "8.7"),)


def test_a_board_in_a_container_may_hide_its_device_tree(tmp_path: Path) -> None:
    write(tmp_path, "/dev/nvhost-gpu")
    assert is_jetson(tmp_path)
    assert board(tmp_path) is None
    assert gpus({}, tmp_path, WITHOUT).found == ()
