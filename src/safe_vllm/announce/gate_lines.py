"""The sentences about what must hold before the next attempt."""

from __future__ import annotations

from collections.abc import Sequence

from safe_vllm.machine.levels import GpuMemory, Holder

GIB_MIB = 1024
UNSEEN = "a process that cannot be seen from here"


def memory_awaited(before: Sequence[GpuMemory], short: Sequence[GpuMemory], limit_s: float) -> list[str]:
    """Say what is waited for."""
    lines = [f"waiting for GPU memory, at most {limit_s:.0f} s"]
    return lines + [f"  {_one(before, gpu)}; {_held(gpu.holders)}" for gpu in short]


def port_awaited(where: str, holder: str | None, limit_s: float) -> list[str]:
    """Say what is waited for."""
    return [f"waiting for {where}, at most {limit_s:.0f} s: it is taken by {holder or UNSEEN}"]


def memory_back(seconds: float, before: Sequence[GpuMemory], now: Sequence[GpuMemory]) -> list[str]:
    """Say that the GPUs have their memory back."""
    return [f"GPU memory is back after {seconds:.1f} s: {_all(before, now)}"]


def memory_held(seconds: float, before: Sequence[GpuMemory], short: Sequence[GpuMemory]) -> list[str]:
    """Say that GPUs do not have their memory back, who has it, and that the launch goes on."""
    lines = [f"GPU memory is not back after {seconds:.0f} s; going on all the same"]
    return lines + [f"  {_one(before, gpu)}; {_held(gpu.holders)}" for gpu in short]


def memory_unknown(seconds: float) -> list[str]:
    """Say that the driver no longer tells how much memory is free, and that the launch goes on."""
    return [
        f"NVML has not told the free GPU memory for {seconds:.0f} s; going on all the same; see dmesg for NVRM, Xid"
    ]


def port_free(seconds: float, where: str) -> list[str]:
    """Say that the address is free, where that took a while."""
    return [f"{where} is free after {seconds:.1f} s"] if seconds >= 1 else []


def port_taken(seconds: float, where: str, holder: str | None) -> str:
    """Return why there is no further attempt."""
    return f"{where} is still taken after {seconds:.0f} s, by {holder or UNSEEN}; stop it, or let vLLM listen elsewhere"


def socket_removed(path: str) -> list[str]:
    """Say that a file was removed that vLLM would have stumbled over."""
    return [f"removed {path}: the last attempt left it, and nobody listens there"]


def as_facts(before: Sequence[GpuMemory], now: Sequence[GpuMemory]) -> list[dict[str, object]]:
    """Return the memory of the GPUs as an event holds it."""
    free_before = {gpu.uuid: gpu.free_mib for gpu in before}
    return [
        {
            "gpu": gpu.place,
            "free_mib": gpu.free_mib,
            "before_mib": free_before.get(gpu.uuid),
            "total_mib": gpu.total_mib,
            "holders": [{"pid": by.pid, "name": by.name, "mib": by.mib, "ours": by.is_ours} for by in gpu.holders],
        }
        for gpu in now
    ]


def _all(before: Sequence[GpuMemory], now: Sequence[GpuMemory]) -> str:
    """Return the figures of the one GPU that has least, where there are several."""
    least = min(now, key=lambda gpu: gpu.free_mib - _before(before, gpu), default=None)
    if least is None:
        return "no GPU tells how much it has"
    others = f" (of {len(now)} GPUs the one that lacks most)" if len(now) > 1 else ""
    lost = f"; {len(before) - len(now)} of {len(before)} can no longer be read" if len(now) < len(before) else ""
    return f"{_one(before, least)}{others}{lost}"


def _one(before: Sequence[GpuMemory], gpu: GpuMemory) -> str:
    return f"GPU {gpu.place} has {_gib(gpu.free_mib)} GiB free, {_gib(_before(before, gpu))} before the first attempt"


def _before(before: Sequence[GpuMemory], gpu: GpuMemory) -> int:
    return next((known.free_mib for known in before if known.uuid == gpu.uuid), gpu.free_mib)


def _held(holders: Sequence[Holder]) -> str:
    if not holders:
        return "the driver names nobody who holds it"
    return f"held by {', '.join(map(_holder, holders))}"


def _holder(holder: Holder) -> str:
    whose = "started by this launch" if holder.is_ours else "not started by this launch"
    size = "" if holder.mib is None else f", {holder.mib} MiB"
    return f"{holder.name or UNSEEN} ({holder.pid}{size}, {whose})"


def _gib(mib: int) -> str:
    return f"{mib / GIB_MIB:.1f}"
