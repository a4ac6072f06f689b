"""Directories with CUDA runtimes are found, each once, the best one for the machine first."""

from __future__ import annotations

from pathlib import Path

import pytest

from safe_vllm.machine.facts import CudaLibrary
from safe_vllm.machine.libraries import cuda12_directories, cuda_libraries

CUDA = "/usr/local/cuda"
PACKAGES = "/opt/venv/lib/python3.12/site-packages"


def library(root: Path, directory: str, *names: str) -> None:
    place = root / directory.lstrip("/")
    place.mkdir(parents=True, exist_ok=True)
    for name in names or ("libcudart.so.12",):
        (place / name).touch()


def directories(root: Path, architecture: str = "x86_64", search: str = "") -> list[str]:
    packages = [root / PACKAGES.lstrip("/")]
    found = cuda_libraries(architecture, packages, {"LD_LIBRARY_PATH": search}, root)
    return [each.directory for each in found]


def test_on_arm_servers_jetsons_directory_comes_second_and_the_link_last(tmp_path: Path) -> None:
    for directory in ("lib64", "targets/aarch64-linux/lib", "targets/sbsa-linux/lib", "targets/x86_64-linux/lib"):
        library(tmp_path, f"{CUDA}/{directory}")
    assert cuda12_directories("aarch64", tmp_path) == (
        f"{CUDA}/targets/sbsa-linux/lib",
        f"{CUDA}/targets/aarch64-linux/lib",
        f"{CUDA}/lib64",
    )
    assert cuda12_directories("x86_64", tmp_path) == (f"{CUDA}/targets/x86_64-linux/lib", f"{CUDA}/lib64")
    assert cuda12_directories("riscv64", tmp_path) == (f"{CUDA}/lib64",)


def test_on_jetson_its_own_directory_comes_first(tmp_path: Path) -> None:
    for directory in ("targets/aarch64-linux/lib", "targets/sbsa-linux/lib"):
        library(tmp_path, f"{CUDA}/{directory}")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").touch()
    expected = [f"{CUDA}/targets/aarch64-linux/lib", f"{CUDA}/targets/sbsa-linux/lib"]
    assert list(cuda12_directories("aarch64", tmp_path)) == expected
    assert directories(tmp_path, "aarch64") == expected


def test_only_a_toolkit_of_cuda_12_is_for_the_preload(tmp_path: Path) -> None:
    library(tmp_path, f"{CUDA}/targets/sbsa-linux/lib", "libcudart.so.13")
    library(tmp_path, f"{CUDA}-12.8/lib64")
    library(tmp_path, f"{PACKAGES}/nvidia/cuda_runtime/lib")
    assert cuda12_directories("aarch64", tmp_path) == ()


@pytest.mark.parametrize(
    ("names", "runtimes"),
    [
        (("libcudart.so.13", "libcudart.so.13.0.96", "libcudart.so"), ("libcudart.so.13",)),
        (("libcudart.so.13", "libcudart.so.12", "libcublas.so.12"), ("libcudart.so.12", "libcudart.so.13")),
        (("libcudart.so.11.0", "libcudart.so.11.8.89"), ("libcudart.so.11.0",)),
    ],
)
def test_a_runtime_has_the_name_that_programs_ask_for(
    tmp_path: Path, names: tuple[str, ...], runtimes: tuple[str, ...]
) -> None:
    library(tmp_path, f"{CUDA}/lib64", *names)
    assert cuda_libraries("x86_64", (), {}, tmp_path) == (CudaLibrary(f"{CUDA}/lib64", runtimes),)


def test_every_usual_place_is_looked_at(tmp_path: Path) -> None:
    places = [
        f"{CUDA}/targets/x86_64-linux/lib",
        f"{CUDA}-13.0/lib64",
        f"{CUDA}-12.10/targets/x86_64-linux/lib",
        f"{CUDA}-12.9/lib64",
        f"{PACKAGES}/nvidia/cuda_runtime/lib",
        f"{PACKAGES}/nvidia/cu13/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/opt/conda/lib",
    ]
    for place in (*sorted(places), "/relative"):
        library(tmp_path, place)
    assert directories(tmp_path, search="relative:/opt/conda/lib::/nowhere") == places


def test_a_directory_with_several_names_counts_once_under_the_first(tmp_path: Path) -> None:
    library(tmp_path, f"{CUDA}-12.8/targets/x86_64-linux/lib")
    (tmp_path / "usr/local/cuda-12.8/lib64").symlink_to("targets/x86_64-linux/lib")
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.8")
    assert directories(tmp_path, search=f"{CUDA}/lib64") == [f"{CUDA}/targets/x86_64-linux/lib"]


def test_where_there_is_no_runtime_there_is_no_directory(tmp_path: Path) -> None:
    library(tmp_path, f"{CUDA}/lib64", "libcublas.so.12")
    assert directories(tmp_path) == []
