"""What the check-up says about the architecture and the GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import B200, H100, MACHINE, case, levels, told

from safe_vllm.checks import hardware
from safe_vllm.machine.facts import Gpu, Machine


@pytest.mark.parametrize(("name", "level"), [("x86_64", "ok"), ("aarch64", "ok"), ("riscv64", "warning")])
def test_only_an_architecture_without_wheels_is_told(name: str, level: str) -> None:
    assert levels(hardware.architecture, case(machine=replace(MACHINE, architecture=name))) == [level]


def test_gpus_are_counted_with_their_capability_and_driver() -> None:
    [(level, text)] = told(hardware.gpus, case())
    assert (level, text) == ("ok", "2 x NVIDIA B200 (compute capability 10.0), driver 580.95.05 |  | ")


def test_a_driver_that_shows_no_gpu_is_a_problem() -> None:
    machine = replace(MACHINE, gpus=(), gpu_note="NVML shows no GPU")
    [(level, text)] = told(hardware.gpus, case(machine=machine))
    assert level == "problem"
    assert text.startswith("NVML shows no GPU | a driver is loaded")


def test_a_cuda_build_without_a_driver_is_a_problem_and_a_cpu_build_is_not() -> None:
    bare = replace(MACHINE, gpus=(), has_driver=False, gpu_note="no NVIDIA driver on this machine")
    [(level, text)] = told(hardware.gpus, case(machine=bare))
    assert (level, "--gpus all" in text) == ("problem", True)
    assert levels(hardware.gpus, case(machine=bare, installed={"torch_cuda": None})) == ["ok"]


def test_gpus_of_different_kinds_are_a_warning() -> None:
    [first, second] = told(hardware.gpus, case(machine=replace(MACHINE, gpus=(B200, H100))))
    assert first[1].startswith("1 x NVIDIA B200 (compute capability 10.0), 1 x NVIDIA H100 80GB HBM3")
    assert (second[0], "different kinds" in second[1]) == ("warning", True)


def test_what_nvml_noted_is_a_note_and_does_not_count() -> None:
    machine = replace(MACHINE, gpu_note="CUDA uses one MIG slice per process")
    assert levels(hardware.gpus, case(machine=machine)) == ["ok", "note"]


def test_a_gpu_that_is_too_old_for_flashinfer_is_a_warning() -> None:
    machine = replace(MACHINE, gpus=(Gpu("Tesla V100", "7.0"),))
    assert levels(hardware.gpus, case(machine=machine)) == ["ok", "warning"]
    assert levels(hardware.gpus, case(machine=replace(MACHINE, gpus=(Gpu("Tesla T4", "7.5"),)))) == ["ok"]


@pytest.mark.parametrize(
    ("environment", "level", "said"),
    [
        ({"CUDA_VISIBLE_DEVICES": ""}, "problem", "no GPU at all"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "problem", "no GPU at all"),
        ({"CUDA_VISIBLE_DEVICES": "0,0"}, "problem", "name each GPU once"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,7"}, "warning", "names 3, and 2 can be seen"),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, "warning", "set it to all"),
    ],
)
def test_variables_that_hide_gpus_are_told(environment: dict[str, str], level: str, said: str) -> None:
    [(found, text)] = told(hardware.visible, case(environment=environment))
    assert (found, said in text) == (level, True)


@pytest.mark.parametrize(
    "environment",
    [{}, {"CUDA_VISIBLE_DEVICES": "1,0"}, {"NVIDIA_VISIBLE_DEVICES": "all"}, {"CUDA_VISIBLE_DEVICES": "0"}],
)
def test_variables_that_hide_nothing_are_not_told(environment: dict[str, str]) -> None:
    assert told(hardware.visible, case(environment=environment)) == []


def test_an_empty_list_of_gpus_is_as_it_should_be_on_a_machine_without_any() -> None:
    bare = Machine("x86_64")
    environment = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    assert told(hardware.visible, case(machine=bare, environment=environment)) == []


@pytest.mark.parametrize(("given", "count"), [("graphics", 1), ("compute", 1), ("compute,utility", 0), ("all", 0)])
def test_a_container_needs_the_compute_and_utility_libraries(given: str, count: int) -> None:
    inside = case(environment={"NVIDIA_DRIVER_CAPABILITIES": given}, state={"container": "Docker"})
    assert levels(hardware.visible, inside) == ["warning"] * count
    assert levels(hardware.visible, case(environment={"NVIDIA_DRIVER_CAPABILITIES": given})) == []


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("m -tp 4", "problem"),
        ("m -tp 2 -dp 2", "problem"),
        ("m -tp 2", "ok"),
        ("m -dp 2 -pp 1", "ok"),
        ("m -dp 16 -dpl 2", "ok"),
        ("m -tp 16 --nnodes 8", None),
        ("m -tp 16 --distributed-executor-backend ray", None),
        ("", None),
    ],
)
def test_the_command_must_not_need_more_gpus_than_there_are(words: str, level: str | None) -> None:
    assert levels(hardware.count, case(*words.split())) == ([level] if level else [])
