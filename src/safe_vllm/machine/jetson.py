"""Jetson boards, whose GPU is part of the chip: older ones have no NVML that would tell about it."""

from __future__ import annotations

from pathlib import Path

from safe_vllm.machine.facts import Gpu
from safe_vllm.machine.rooted import below, exists, text_of

SIGNS = ("/etc/nv_tegra_release", "/dev/nvhost-gpu", "/dev/nvgpu")
"""The release file of NVIDIA's Linux for Tegra, and the devices of its GPU driver, which containers see."""

DEVICE_TREE = "/proc/device-tree"
CAPABILITIES = {"tegra194": "7.2", "tegra234": "8.7", "tegra264": "11.0"}
"""Xavier, Orin, Thor: https://developer.nvidia.com/cuda-gpus"""


def is_jetson(root: Path = Path("/")) -> bool:
    """Return whether this is a Jetson board."""
    return any(exists(below(root, sign)) for sign in SIGNS)


def board(root: Path = Path("/")) -> Gpu | None:
    """Return the GPU of the board as the device tree names it; ``None`` where the tree is hidden or unknown to us."""
    compatible = text_of(below(root, f"{DEVICE_TREE}/compatible")) or ""
    chip = next((chip for chip in CAPABILITIES if f"nvidia,{chip}" in compatible.split("\0")), None)
    name = (text_of(below(root, f"{DEVICE_TREE}/model")) or "").strip("\0")
    return Gpu(name or "NVIDIA Jetson", CAPABILITIES[chip]) if chip else None
