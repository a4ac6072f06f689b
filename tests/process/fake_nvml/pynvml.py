"""NVML as its Python binding shows it, with the GPUs that a JSON file tells of at the time of each call.

``FAKE_NVML`` names the file: ``{"gpus": [{"free_mib": …, "total_mib": …, "holders": [[PID, MIB], …]}]}``, with
``"hangs"`` or ``"is_broken"`` beside it where the driver is in trouble.
Each reading of memory leaves a line in the file beside it that ends with ``.calls``.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What NVML answers when it does not."""


def _told() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(Path(os.environ["FAKE_NVML"]).read_text())
    return told


def _gpu(handle: int) -> dict[str, Any]:
    gpu: dict[str, Any] = _told()["gpus"][handle]
    return gpu


def nvmlInit() -> None:
    """Fail where the driver is broken."""
    if _told().get("is_broken"):
        raise NVMLError("Unknown Error")


def nvmlShutdown() -> None:
    """Do nothing."""


def nvmlSystemGetDriverVersion() -> str:
    return "580.95.05"


def nvmlSystemGetCudaDriverVersion_v2() -> int:
    return 13000


def nvmlDeviceGetCount() -> int:
    return len(_told()["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetHandleByUUID(uuid: str) -> int:
    return int(uuid.removeprefix("GPU-"))


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-{handle}"


def nvmlDeviceGetName(handle: int) -> str:
    return "NVIDIA H100 80GB HBM3"


def nvmlDeviceGetCudaComputeCapability(handle: int) -> tuple[int, int]:
    return 9, 0


def nvmlDeviceGetMigMode(handle: int) -> list[int]:
    return [0, 0]


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    """Return the figures of now, or hang as a driver does that waits for a dead GPU."""
    with Path(os.environ["FAKE_NVML"] + ".calls").open("a") as file:
        file.write(f"{handle}\n")
    if _told().get("hangs"):
        threading.Event().wait()
    gpu = _gpu(handle)
    return SimpleNamespace(free=gpu["free_mib"] << 20, total=gpu["total_mib"] << 20)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=mib << 20) for pid, mib in _gpu(handle).get("holders", [])]
