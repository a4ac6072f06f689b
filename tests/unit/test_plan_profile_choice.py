"""The profile that describes the machine most exactly is chosen."""

from __future__ import annotations

from typing import Any

import pytest

from safe_vllm.errors import Trouble
from safe_vllm.machine.facts import Gpu, Installation, Machine, ProfileFile
from safe_vllm.machine.profile_files import read_profiles
from safe_vllm.plan.profile_choice import choose


def file(name: str, **fits: Any) -> ProfileFile:
    return ProfileFile(
        f"{name}.yaml", {"name": name, "description": "d", "ladder": [{"rung": "as-asked"}], "fits": fits}
    )


def one_of(gpu: str, capability: str, architecture: str = "x86_64") -> Machine:
    return Machine(architecture, (Gpu(f"NVIDIA {gpu}", capability),), has_driver=True)


B200 = Gpu("NVIDIA B200", "10.0")
CPU_TORCH = Installation(torch="2.13.0+cpu")


@pytest.mark.parametrize(
    ("machine", "name", "because"),
    [
        (Machine("x86_64", gpu_note="no driver"), "cpu", "no driver"),
        (Machine("aarch64", gpu_note="no driver"), "cpu", "no driver"),
        (Machine("x86_64", (B200,), installation=CPU_TORCH, has_driver=True), "cpu", "torch is a CPU build"),
        (Machine("x86_64", gpu_note="NVML failed", has_driver=True), "default", "no other profile fits"),
        (Machine("x86_64", installation=Installation(torch="2.9+rocm7.0")), "default", "no other profile fits"),
        (
            Machine("x86_64", installation=Installation(torch="2.9", torch_rocm="7.0")),
            "default",
            "no other profile fits",
        ),
        (one_of("A100-SXM4-80GB", "8.0"), "default", "no other profile fits"),
        (one_of("B200", "10.0"), "b200", "the GPU is NVIDIA B200"),
        (one_of("B200 MIG 1g.23gb", "10.0"), "b200", "the GPU is NVIDIA B200 MIG 1g.23gb"),
        (one_of("B300 SXM6 AC", "10.3"), "b300", "the GPU is NVIDIA B300 SXM6 AC"),
        (one_of("GB200", "10.0", "aarch64"), "gb200", "the GPU is NVIDIA GB200"),
        (one_of("GB300", "10.3", "aarch64"), "gb300", "the GPU is NVIDIA GB300"),
        (one_of("B200", "10.0", "aarch64"), "gb200", "the GPU's compute capability is 10.0"),
        (one_of("GB200", "10.0"), "b200", "the GPU's compute capability is 10.0"),
        (one_of("X", "10.3"), "b300", "the GPU's compute capability is 10.3"),
        (one_of("X", "10.3", "aarch64"), "gb300", "the GPU's compute capability is 10.3"),
        (one_of("H100 80GB HBM3", "9.0"), "h100", "the GPU is NVIDIA H100 80GB HBM3"),
        (one_of("H200", "9.0"), "h200", "the GPU is NVIDIA H200"),
        (one_of("H20", "9.0"), "h100", "the GPU's compute capability is 9.0"),
        (one_of("GH200 480GB", "9.0", "aarch64"), "gh200", "the GPU is NVIDIA GH200 480GB"),
        (one_of("RTX PRO 6000 Blackwell Server Edition", "12.0"), "rtx-pro-6000",
         "the GPU is NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        (one_of("GeForce RTX 5090", "12.0"), "rtx-pro-6000", "the GPU's compute capability is 12.0"),
        (one_of("GB10", "12.1", "aarch64"), "gb10", "the GPU is NVIDIA GB10"),
        (Machine("x86_64", (Gpu("NVIDIA H200", "9.0"), B200)), "h200", "the GPU is NVIDIA H200"),
    ],
)  # fmt: skip
def test_the_shipped_profile_for_a_machine_is(machine: Machine, name: str, because: str) -> None:
    profile, why = choose(read_profiles(None, None, {}), machine)
    assert (profile.name, why) == (name, because)


def test_a_profile_that_is_asked_for_need_not_fit() -> None:
    profile, because = choose(read_profiles("gb200", None, {}), Machine("x86_64"), "gb200")
    assert (profile.name, because) == ("gb200", "asked for")


def test_a_part_of_a_word_of_the_name_is_not_the_gpu() -> None:
    assert choose([file("a", gpus=["B20"]), file("b")], Machine("x86_64", (B200,)))[0].name == "b"


def test_of_two_profiles_that_fit_equally_the_later_one_is_chosen() -> None:
    files = [file(name, gpus=["B200"]) for name in ("one", "two")]
    assert choose(files, Machine("x86_64", (B200,)))[0].name == "two"


def test_a_machine_that_no_profile_fits_is_trouble() -> None:
    with pytest.raises(Trouble, match="no profile fits this machine"):
        choose([file("mine", architectures=["riscv64"])], Machine("x86_64"))


@pytest.mark.parametrize(
    ("vllm", "flashinfer", "name"),
    [
        ("0.23.0", "0.6.12", "both"),
        ("0.23.0+cu129", "0.6.12", "both"),
        ("0.23.1rc1.dev255+g4dcd10eb0", "0.6.12", "both"),
        ("0.23.0", None, "vllm"),
        ("0.23.0", "0.6.16", "vllm"),
        ("0.24.0", "0.6.12", "plain"),
        (None, "0.6.12", "plain"),
        ("a checkout", "0.6.12", "plain"),
    ],
)
def test_a_range_of_versions_fits_only_a_version_that_is_known_and_in_it(
    vllm: str | None, flashinfer: str | None, name: str
) -> None:
    files = [
        file("both", gpus=["B200"], vllm=">=0.20,<0.24", flashinfer="<0.6.16"),
        file("vllm", gpus=["B200"], vllm=">=0.20,<0.24"),
        file("plain", gpus=["B200"]),
    ]
    assert (
        choose(files, Machine("x86_64", (B200,), installation=Installation(vllm=vllm, flashinfer=flashinfer)))[0].name
        == name
    )


def test_the_reason_names_the_range_that_the_version_is_in() -> None:
    machine = Machine("x86_64", (B200,), installation=Installation(vllm="0.23.0"))
    assert (
        choose([file("a", gpus=["B200"], vllm="<0.24")], machine)[1]
        == "the GPU is NVIDIA B200, vLLM 0.23.0 is in <0.24"
    )
    assert choose([file("a"), file("b", vllm="<0.24")], machine)[1] == "vLLM 0.23.0 is in <0.24"
