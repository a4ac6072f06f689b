"""How much memory and disk this machine has left for the next attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from safe_vllm.machine.examine import nearest, places, space
from safe_vllm.machine.levels import Level
from safe_vllm.machine.rooted import below, text_of

COREDUMPS = "/var/lib/systemd/coredump"
RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")
RECLAIMABLE_V1 = ("total_inactive_file", "total_active_file")
"""What the kernel gives back when a control group comes to its limit: it does not count as used."""


def levels(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[Level, ...]:
    """Return what is left of the memory and of each file system that attempts write to."""
    return (*_memory(root), *_group_memory(root), *_disks(environment, root))


def _memory(root: Path) -> Iterator[Level]:
    figures = dict(re.findall(r"^(\w+):\s+(\d+) kB", text_of(below(root, "/proc/meminfo")) or "", re.MULTILINE))
    if {"MemAvailable", "MemTotal"} <= figures.keys():
        yield Level("memory", "memory", int(figures["MemAvailable"]) << 10, int(figures["MemTotal"]) << 10)


def _group_memory(root: Path) -> Iterator[Level]:
    """Yield what the tightest of our control groups still allows."""
    found = [level for folder in _groups(root) if (level := _of_group(folder))]
    if found:
        yield min(found, key=lambda level: level.free_bytes)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the control groups that we are in, each below the next; a container sees its own as the top one."""
    text = text_of(below(root, "/proc/self/cgroup")) or ""
    for hierarchy, top in (("0::", "/sys/fs/cgroup"), (r"\d+:memory:", "/sys/fs/cgroup/memory")):
        if found := re.search(rf"^{hierarchy}(/.*)$", text, re.MULTILINE):
            group = Path(found[1])
            yield from (below(root, top) / str(each).lstrip("/") for each in (group, *group.parents))


def _of_group(folder: Path) -> Level | None:
    limit = _number(folder, "memory.max") or _number(folder, "memory.limit_in_bytes")
    used = _number(folder, "memory.current") or _number(folder, "memory.usage_in_bytes")
    if limit is None or used is None or limit >= 1 << 60:  # the first version's way to say "none"
        return None
    figures = dict(re.findall(r"^(\w+) (\d+)$", text_of(folder / "memory.stat") or "", re.MULTILINE))
    names = RECLAIMABLE_V1 if "total_inactive_file" in figures else RECLAIMABLE
    back = sum(int(figures.get(name, 0)) for name in names)
    return Level("memory", "memory of the control group", max(0, limit - max(0, used - back)), limit)


def _number(folder: Path, name: str) -> int | None:
    text = (text_of(folder / name, 64) or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _disks(environment: Mapping[str, str], root: Path) -> Iterator[Level]:
    """Yield each file system once, under the name of the first thing that is kept there."""
    seen: set[int | None] = {None}
    for purpose, path in (*((purpose, path) for purpose, path, _ in places(environment)), *_others(environment, root)):
        place = nearest(Path(path))
        total, free = space(place)
        if total and free is not None and (number := _file_system(place)) not in seen:
            seen.add(number)
            yield Level("disk", f"space for {purpose} ({place})", free, total, f"disk {number}")


def _others(environment: Mapping[str, str], root: Path) -> Iterator[tuple[str, str]]:
    yield "temporary files", environment.get("TMPDIR") or "/tmp"
    pattern = (text_of(below(root, "/proc/sys/kernel/core_pattern")) or "").strip()
    if not pattern.startswith("|"):
        yield "core files", _absolute(Path(pattern).parent)
    elif "systemd-coredump" in pattern:
        yield "core files", COREDUMPS
    if given := environment.get("CUDA_COREDUMP_FILE"):
        yield "GPU core files", _absolute(Path(given).parent)


def _absolute(path: Path) -> str:
    try:
        return str(Path.cwd() / path)
    except FileNotFoundError:  # removed under our feet
        return str(path)


def _file_system(place: Path) -> int | None:
    try:
        return place.stat().st_dev
    except OSError:
        return None
