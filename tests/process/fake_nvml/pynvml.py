"""NVML as its Python binding shows it, with the GPUs that a JSON file tells of at the time of each call.

``FAKE_NVML`` names the file: ``{"gpus": [{"free_mib": …, "total_mib": …, "holders": [[PID, MIB], …]}]}``, with
``"hangs"``, ``"hangs_for_listeners"`` or ``"is_broken"`` beside it where the driver is in trouble.
``"xids": [[GPU, XID], …]`` are the faults that were reported up to now; without it nobody is told of any. An ``XID`` of
``null`` is a GPU that is gone.
Each reading of memory leaves a line in the file beside it that ends with ``.calls``. Each wait for a fault, and the end
of waiting, leaves one in that which ends with ``.waits``: how many of the faults were dealt with.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What NVML answers when it does not."""

    def __init__(self, text: str, value: int = 999) -> None:
        super().__init__(text)
        self.value = value


NVML_ERROR_TIMEOUT = 10
NVML_ERROR_GPU_IS_LOST = 15
nvmlEventTypeXidCriticalError = 8


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


def nvmlDeviceGetPciInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(busId=f"00000000:{0x65 + handle:02X}:00.0".encode())


def nvmlEventSetCreate() -> SimpleNamespace:
    if _told().get("hangs_for_listeners"):
        threading.Event().wait()
    if "xids" not in _told():
        raise NVMLError("Not Supported", 3)
    return SimpleNamespace(seen=len(_told()["xids"]), gpus=set())


def nvmlDeviceRegisterEvents(handle: int, types: int, events: SimpleNamespace) -> None:
    assert types == nvmlEventTypeXidCriticalError
    events.gpus.add(handle)


def nvmlEventSetWait_v2(events: SimpleNamespace, timeout_ms: int) -> SimpleNamespace:
    """Return the next fault of a registered GPU, as soon as the file tells of it."""
    if timeout_ms:
        _note_dealt_with(events)
    until = time.monotonic() + timeout_ms / 1000
    while True:
        for gpu, xid in _told()["xids"][events.seen :]:
            events.seen += 1
            if gpu in events.gpus and xid is None:
                raise NVMLError("GPU is lost", NVML_ERROR_GPU_IS_LOST)
            if gpu in events.gpus:
                whole = 0xFFFFFFFF
                return SimpleNamespace(device=gpu, eventData=xid, gpuInstanceId=whole, computeInstanceId=whole)
        if time.monotonic() >= until:
            raise NVMLError("Timeout", NVML_ERROR_TIMEOUT)
        time.sleep(0.02)


def nvmlEventSetFree(events: SimpleNamespace) -> None:
    """Let those who watch know."""
    _note_dealt_with(events)


def _note_dealt_with(events: SimpleNamespace) -> None:
    with Path(os.environ["FAKE_NVML"] + ".waits").open("a") as file:
        file.write(f"{events.seen}\n")
