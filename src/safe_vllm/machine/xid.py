"""Faults that the driver reports of the visible GPUs while somebody listens, through NVML's events.

Many containers, virtual GPUs and old drivers report nothing to anybody. The kernel's log would tell whose doing a fault
was, but it takes a privilege to read, and counts processes otherwise than a container does: it is left alone.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlEvents.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safe_vllm.machine.gpus import binding, visible
from safe_vllm.machine.levels import Xid

WAIT_MS = 5000
_WHOLE_GPU = 0xFFFFFFFF
"""What NVML gives as the slice where a fault is not one slice's alone."""
_MOST_AT_ONCE = 256


@dataclass(frozen=True)
class _Watched:
    handle: int | None
    place: int
    bus: str | None
    part: tuple[int, int] | None = None
    """The slice of it, where it is divided."""

    def is_hit(self, event: Any) -> bool:
        part = event.gpuInstanceId, event.computeInstanceId
        is_part = self.part is None or _WHOLE_GPU in part or part == self.part
        return self.handle == _address(event.device) and is_part


@dataclass
class Xids:
    """What is reported, from the first ``wait`` on. To be used in a thread of its own: a driver may never answer."""

    environment: Mapping[str, str]
    root: Path = Path("/")
    nvml: Any = None
    """``None``: the one of this machine."""
    events: Any = None
    watched: tuple[_Watched, ...] = ()
    unread: list[Xid] = field(default_factory=list)

    def wait(self) -> bool:
        """Wait for a few seconds, or until something is reported; return whether there is any use in waiting on."""
        if self.events is None and not self._open():
            return False
        for count in range(_MOST_AT_ONCE):  # one bad kernel may make the driver report a fault for each of its parts
            try:
                event = self.nvml.nvmlEventSetWait_v2(self.events, 0 if count else WAIT_MS)
            except self.nvml.NVMLError as error:
                return self._on_error(getattr(error, "value", None))
            hits = (gpu for gpu in self.watched if gpu.is_hit(event))
            self.unread += [Xid(int(event.eventData), hit.place, hit.bus) for hit in hits]
        return True

    def taken(self) -> tuple[Xid, ...]:
        """Return what was reported since the last time. Not to be called while somebody waits."""
        taken, self.unread = tuple(self.unread), []
        return taken

    def close(self) -> None:
        """Let go of the GPUs."""
        if self.events is None:
            return
        with suppress(self.nvml.NVMLError):
            self.nvml.nvmlEventSetFree(self.events)
        with suppress(self.nvml.NVMLError):
            self.nvml.nvmlShutdown()
        self.events = None

    def _open(self) -> bool:
        self.nvml = self.nvml or binding(self.root)
        if self.nvml is None:
            return False
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError:
            return False
        try:
            self.events = self.nvml.nvmlEventSetCreate()
            self.watched = tuple(self._registered())
        except self.nvml.NVMLError:
            pass
        if self.watched:
            return True
        with suppress(self.nvml.NVMLError):
            self.nvml.nvmlShutdown()
        self.events = None
        return False

    def _registered(self) -> Iterator[_Watched]:
        """Yield the GPUs that report to us. One that cannot does not keep the others from it."""
        names = [place.names for place in visible(self.nvml, self.environment)]
        for place, (uuid, *_) in ((at, known) for at, known in enumerate(names) if known):
            with suppress(self.nvml.NVMLError):
                yield self._register(place, self.nvml.nvmlDeviceGetHandleByUUID(uuid), is_slice=uuid.startswith("MIG-"))

    def _register(self, place: int, handle: Any, *, is_slice: bool) -> _Watched:
        nvml, part = self.nvml, None
        if is_slice:  # only the whole GPU reports
            part = nvml.nvmlDeviceGetGpuInstanceId(handle), nvml.nvmlDeviceGetComputeInstanceId(handle)
            handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self.events)
        return _Watched(_address(handle), place, _bus(nvml, handle), part)

    def _on_error(self, code: object) -> bool:
        if code == self.nvml.NVML_ERROR_GPU_IS_LOST:
            lost = self.watched[0] if len(self.watched) == 1 else None  # of several, nobody says which
            self.unread.append(Xid(None, lost.place, lost.bus) if lost else Xid(None))
        return bool(code == self.nvml.NVML_ERROR_TIMEOUT)


def _address(handle: Any) -> int | None:
    """Return what tells one GPU from another: a lost one tells no name any more."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _bus(nvml: Any, handle: Any) -> str | None:
    try:
        address = nvml.nvmlDeviceGetPciInfo(handle).busId
    except nvml.NVMLError:
        return None
    text = address.decode() if isinstance(address, bytes) else str(address)
    domain, bus, device = text.lower().split(":")
    return f"PCI:{domain[-4:]}:{bus}:{device.split('.')[0]}"
