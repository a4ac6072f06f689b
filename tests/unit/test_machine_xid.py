"""What NVML reports of the visible GPUs, and how little it takes for it to report nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from test_machine_gpus import Nvml

from safe_vllm.machine.levels import Xid
from safe_vllm.machine.xid import Xids

WHOLE = 0xFFFFFFFF
GPUS = ["NVIDIA B200"] * 4


def report(gpu: int, xid: int, part: tuple[int, int] = (WHOLE, WHOLE)) -> SimpleNamespace:
    return SimpleNamespace(device=gpu, eventData=xid, gpuInstanceId=part[0], computeInstanceId=part[1])


def listen(nvml: Nvml, **environment: str) -> Xids:
    return Xids(environment, nvml=nvml)


def test_a_fault_is_told_with_the_number_of_the_gpu_and_its_address_as_the_kernel_writes_it() -> None:
    xids = listen(Nvml(GPUS, reports=[report(2, 79), report(0, 31)]))
    assert xids.wait()
    assert xids.taken() == (Xid(79, 2, "PCI:0000:a2:00"), Xid(31, 0, "PCI:0000:a0:00"))
    assert xids.wait()
    assert xids.taken() == ()


def test_only_the_visible_gpus_are_listened_to_and_numbered_as_cuda_does() -> None:
    nvml = Nvml(GPUS, reports=[report(1, 31), report(3, 48)])
    xids = listen(nvml, CUDA_VISIBLE_DEVICES="3,0")
    assert xids.wait()
    assert sorted(nvml.listened_to) == [0, 3]
    assert xids.taken() == (Xid(48, 0, "PCI:0000:a3:00"),)


def test_what_was_reported_is_kept_until_it_is_taken() -> None:
    """A wait that is made twice, since we were suspended in it, loses nothing."""
    nvml = Nvml(GPUS, reports=[report(0, 43)])
    xids = listen(nvml)
    assert xids.wait()
    assert xids.wait()
    assert [xid.number for xid in xids.taken()] == [43]


def test_a_flood_is_taken_in_pieces() -> None:
    nvml = Nvml(GPUS, reports=[report(0, 13)] * 1000)
    xids = listen(nvml)
    assert xids.wait()
    assert 0 < len(xids.taken()) < 1000
    assert nvml.reports


@pytest.mark.parametrize(
    ("part", "is_told"), [((7, 0), True), ((WHOLE, WHOLE), True), ((8, 0), False), ((7, 1), False)]
)
def test_of_a_slice_only_its_own_faults_and_those_of_the_whole_gpu_are_told(
    part: tuple[int, int], is_told: bool
) -> None:
    nvml = Nvml(GPUS, slices={1: [True, True]}, reports=[report(1, 94, part)])
    xids = listen(nvml, CUDA_VISIBLE_DEVICES="MIG-1a-0")
    assert xids.wait()
    assert nvml.listened_to == [1]
    assert bool(xids.taken()) is is_told


@pytest.mark.parametrize("call", ["init", "count", "create", "register"])
def test_a_driver_that_reports_to_nobody_is_let_go(call: str) -> None:
    nvml = Nvml(GPUS, failing=[call])
    xids = listen(nvml)
    assert not xids.wait()
    assert not nvml.is_open
    xids.close()
    assert xids.taken() == ()


def test_a_gpu_that_does_not_report_does_not_keep_the_others_from_it() -> None:
    xids = listen(Nvml(GPUS, lost=(0,), deaf=[1], reports=[report(2, 62)]))
    assert xids.wait()
    assert xids.taken() == (Xid(62, 2, "PCI:0000:a2:00"),)


def test_an_address_that_is_not_told_is_left_out() -> None:
    xids = listen(Nvml(GPUS[:1], failing=["pci"], reports=[report(0, 62)]))
    assert xids.wait()
    assert xids.taken() == (Xid(62, 0, None),)


@pytest.mark.parametrize(("visible", "gone"), [("0,1", Xid(None)), ("1", Xid(None, 0, "PCI:0000:a1:00"))])
def test_a_gpu_that_is_gone_is_told_once_and_nothing_after_it(visible: str, gone: Xid) -> None:
    xids = listen(Nvml(GPUS, reports=[Nvml.NVML_ERROR_GPU_IS_LOST]), CUDA_VISIBLE_DEVICES=visible)
    assert not xids.wait()
    assert xids.taken() == (gone,)


def test_any_other_error_ends_it_without_a_word() -> None:
    xids = listen(Nvml(GPUS, reports=[999]))
    assert not xids.wait()
    assert xids.taken() == ()


def test_in_the_end_the_gpus_are_let_go() -> None:
    nvml = Nvml(GPUS)
    xids = listen(nvml)
    assert xids.wait()
    assert nvml.is_open
    xids.close()
    assert not nvml.is_open
    assert not nvml.listened_to


def test_without_a_driver_nothing_is_loaded(tmp_path: Path) -> None:
    assert not Xids({}, tmp_path).wait()
