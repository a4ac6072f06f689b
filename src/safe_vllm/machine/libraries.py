"""Directories that hold the CUDA 12 runtime."""

from __future__ import annotations

from pathlib import Path

from safe_vllm.machine.rooted import below

TARGETS = {"aarch64": ("sbsa-linux", "aarch64-linux"), "x86_64": ("x86_64-linux",)}
"""NVIDIA's names for the platforms of a toolkit. Arm servers such as Grace are ``sbsa``, Jetson is ``aarch64``."""

CUDA = "/usr/local/cuda"
RUNTIME = "libcudart.so.12"


def cuda12_directories(architecture: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the directories below /usr/local/cuda that hold ``libcudart.so.12``, the best one first."""
    targets = [f"{CUDA}/targets/{target}/lib" for target in TARGETS.get(architecture, ())]
    return tuple(place for place in (*targets, f"{CUDA}/lib64") if below(root, f"{place}/{RUNTIME}").exists())
