"""Directories that hold CUDA runtimes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from safe_vllm.machine.facts import CudaLibrary
from safe_vllm.machine.jetson import is_jetson
from safe_vllm.machine.rooted import below, exists

TARGETS = {"aarch64": ("sbsa-linux", "aarch64-linux"), "x86_64": ("x86_64-linux",)}
"""NVIDIA's names for the platforms of a toolkit. Arm servers such as Grace are ``sbsa``, Jetson is ``aarch64``."""

CUDA = "/usr/local/cuda"
RUNTIME_12 = "libcudart.so.12"
RUNTIME = re.compile(r"libcudart\.so\.\d+(\.0)?$")
"""A runtime under the name that programs ask for; CUDA 11 has a zero in it."""

WHEELS = ("nvidia/cuda_runtime/lib", "nvidia/cu12/lib", "nvidia/cu13/lib")
"""Where the distributions nvidia-cuda-runtime-cu12 and nvidia-cuda-runtime keep it, below the packages."""


def cuda12_directories(architecture: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the directories below /usr/local/cuda that hold ``libcudart.so.12``, the best one first."""
    places = _toolkit(CUDA, architecture, root)
    return tuple(place for place in places if exists(below(root, f"{place}/{RUNTIME_12}")))


def cuda_libraries(
    architecture: str, packages: Iterable[Path], environment: Mapping[str, str], root: Path = Path("/")
) -> tuple[CudaLibrary, ...]:
    """Return every directory with a CUDA runtime once: toolkits, the packages' own, the system's, LD_LIBRARY_PATH's."""
    toolkits = [CUDA, *_versioned(root)]
    wheels = [_unrooted(each / wheel, root) for each in packages for wheel in WHEELS]
    system = [f"/usr/lib/{architecture}-linux-gnu", "/usr/lib64"]
    asked = [place for place in environment.get("LD_LIBRARY_PATH", "").split(":") if place.startswith("/")]
    places = [*(place for each in toolkits for place in _toolkit(each, architecture, root)), *wheels, *system, *asked]
    found: dict[str, CudaLibrary] = {}
    for place in places:
        if runtimes := _runtimes(below(root, place)):
            found.setdefault(os.path.realpath(below(root, place)), CudaLibrary(place, runtimes))
    return tuple(found.values())


def _toolkit(home: str, architecture: str, root: Path) -> list[str]:
    targets = TARGETS.get(architecture, ())
    ordered = reversed(targets) if is_jetson(root) else targets
    return [*(f"{home}/targets/{target}/lib" for target in ordered), f"{home}/lib64"]


def _versioned(root: Path) -> Iterator[str]:
    """Yield the toolkits beside the current one, the newest first."""
    found = {path.name: re.findall(r"\d+", path.name) for path in below(root, CUDA).parent.glob("cuda-*")}
    for name in sorted(found, key=lambda name: [int(number) for number in found[name]], reverse=True):
        yield f"/usr/local/{name}"


def _unrooted(path: Path, root: Path) -> str:
    return f"/{path.relative_to(root)}" if path.is_relative_to(root) else str(path)


def _runtimes(directory: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in directory.glob("libcudart.so.*") if RUNTIME.match(path.name)))
