"""Profiles are understood strictly, and the most exact one is chosen."""

from __future__ import annotations

from typing import Any

import pytest

from safe_vllm.errors import Trouble
from safe_vllm.machine.facts import Gpu, Installation, Machine, ProfileFile
from safe_vllm.machine.profile_files import read_profiles
from safe_vllm.plan.profile import choose, parse


def content(**more: Any) -> dict[str, Any]:
    return {"name": "mine", "description": "d", "ladder": [{"rung": "as-asked"}], **more}


def trouble(**more: Any) -> str:
    with pytest.raises(Trouble) as caught:
        parse(content(**more), "/x/mine.yaml")
    return caught.value.message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"fit": {}}, "/x/mine.yaml: unknown key 'fit', did you mean 'fits'?"),
        ({"fits": {"gpu": []}}, "/x/mine.yaml: fits: unknown key 'gpu', did you mean 'gpus'?"),
        ({"fits": {"zzz": 1}}, "expected one of: gpus, compute_capabilities, architectures, has_gpu"),
        ({"ladder": [{"rung": "as-asked", "env": {}}]}, "ladder[0]: unknown key 'env', expected one of: rung,"),
        ({"ladder": [{"rung": "tritn"}]}, "ladder[0].rung: unknown value 'tritn', did you mean 'triton'?"),
        ({"cuda_lib_path": "x"}, "cuda_lib_path: unknown value 'x', expected one of: auto, unset"),
        ({"environment": {"A": 1}}, "environment[...]: expected `str`, got `int`"),
        ({"environment": []}, "environment: expected a mapping, got a list"),
        ({"name": "other"}, "/x/mine.yaml: name: expected 'mine', as the file is called, got 'other'"),
        ({"ladder": []}, "ladder must start with as-asked"),
        ({"ladder": [{"rung": "triton"}]}, "ladder must start with as-asked"),
        ({"ladder": [{"rung": "as-asked"}, {"rung": "triton"}, {"rung": "no-autotune"}]}, "keep this order"),
        ({"ladder": [{"rung": "as-asked"}, {"rung": "as-asked"}]}, "each once"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_was_expected(more: dict[str, Any], message: str) -> None:
    assert message in trouble(**more)


def test_a_missing_key_and_a_file_that_is_no_mapping_are_named() -> None:
    with pytest.raises(Trouble, match=r"mine\.yaml: object missing required field `name`"):
        parse({}, "mine.yaml")
    with pytest.raises(Trouble, match=r"mine\.yaml: expected a mapping, got a list"):
        parse([], "mine.yaml")


B200 = Gpu("NVIDIA B200", "10.0")
GB200 = Gpu("NVIDIA GB200", "10.0")
CPU_TORCH = Installation(torch="2.13.0+cpu")


@pytest.mark.parametrize(
    ("machine", "name", "because"),
    [
        (Machine("x86_64", gpu_note="no driver"), "cpu", "no driver"),
        (Machine("aarch64", gpu_note="no driver"), "cpu", "no driver"),
        (Machine("x86_64", (B200,), has_driver=True), "b200", "the GPU is NVIDIA B200"),
        (Machine("aarch64", (GB200,), has_driver=True), "gb200", "the GPU is NVIDIA GB200"),
        (Machine("aarch64", (B200,), has_driver=True), "gb200", "the GPU's compute capability is 10.0"),
        (Machine("x86_64", (GB200,), has_driver=True), "b200", "the GPU's compute capability is 10.0"),
        (Machine("x86_64", (Gpu("NVIDIA X", "10.3"),)), "b200", "the GPU's compute capability is 10.3"),
        (Machine("aarch64", (Gpu("NVIDIA GB300", "10.3"),)), "gb200", "the GPU is NVIDIA GB300"),
        (Machine("x86_64", (Gpu("NVIDIA B200 MIG 1g.23gb", "10.0"),)), "b200", "the GPU is NVIDIA B200 MIG 1g.23gb"),
        (Machine("x86_64", (Gpu("NVIDIA H200", "9.0"), B200)), "default", "no other profile fits"),
        (Machine("x86_64", gpu_note="NVML failed", has_driver=True), "default", "no other profile fits"),
        (Machine("x86_64", installation=Installation(torch="2.9+rocm7.0")), "default", "no other profile fits"),
        (Machine("x86_64", (B200,), installation=CPU_TORCH, has_driver=True), "cpu", "torch is a CPU build"),
    ],
)
def test_the_shipped_profile_for_a_machine_is(machine: Machine, name: str, because: str) -> None:
    profile, why = choose(read_profiles(None, None, {}), machine)
    assert (profile.name, why) == (name, because)


def test_a_profile_that_is_asked_for_need_not_fit() -> None:
    profile, because = choose(read_profiles("gb200", None, {}), Machine("x86_64"), "gb200")
    assert (profile.name, because) == ("gb200", "asked for")


def test_a_part_of_a_word_of_the_name_is_not_the_gpu() -> None:
    files = [ProfileFile("a.yaml", content(name="a", fits={"gpus": ["B20"]})), ProfileFile("b.yaml", content(name="b"))]
    assert choose(files, Machine("x86_64", (B200,)))[0].name == "b"


def test_of_two_profiles_that_fit_equally_the_later_one_is_chosen() -> None:
    files = [ProfileFile(f"{name}.yaml", content(name=name, fits={"gpus": ["B200"]})) for name in ("one", "two")]
    assert choose(files, Machine("x86_64", (B200,)))[0].name == "two"


def test_a_machine_that_no_profile_fits_is_trouble() -> None:
    files = [ProfileFile("mine.yaml", content(fits={"architectures": ["riscv64"]}))]
    with pytest.raises(Trouble, match="no profile fits this machine"):
        choose(files, Machine("x86_64"))
