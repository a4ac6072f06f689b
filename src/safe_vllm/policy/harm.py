"""Whether starting again does harm: a pure function of what was left before each attempt."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from safe_vllm.machine.levels import Level

FALLS = 3
"""So many restarts in a row must have made it less."""
LEAST_FALL_BYTES = 256 << 20
"""A smaller change is anybody's."""
RESERVE_SHARE = 0.1
"""Memory that must be left, as a share of all: below it the kernel begins to end processes, ours or others'."""
DISK_RESERVE_BYTES = 1 << 30
DISK_FULL_BYTES = 50 << 20

HINTS = {
    "memory": "see what dead servers left (ls -l /dev/shm, ipcs -m, dmesg), or restart the machine",
    "disk": "remove core files and logs of old attempts, or keep them from being written (ulimit -c 0)",
}
GIB = 1 << 30


def harm(readings: Sequence[Sequence[Level]]) -> str | None:
    """Return why there should be no further attempt; the last reading was taken just now, the first at the start."""
    for level in readings[-1] if len(readings) > 1 else ():
        history = [known for reading in readings for known in reading if _key(known) == _key(level)]
        if reason := _of_disk(history) or _of_trend(history):
            return f"starting again makes things worse: {reason}; {HINTS[level.kind]}"
    return None


def _key(level: Level) -> str:
    return level.key or level.name


def _of_disk(history: Sequence[Level]) -> str | None:
    """A disk that was full from the start is not filled by us, and vLLM may need nothing of it."""
    first, last = history[0], history[-1]
    is_filled = last.kind == "disk" and last.free_bytes < DISK_FULL_BYTES <= first.free_bytes - last.free_bytes
    return f"{last.name} fell from {_gib(first)} to {_gib(last)} GiB since the first attempt" if is_filled else None


def _of_trend(history: Sequence[Level]) -> str | None:
    recent = history[-FALLS - 1 :]
    falls = [before.free_bytes - after.free_bytes for before, after in pairwise(recent)]
    if len(falls) < FALLS or min(falls) < LEAST_FALL_BYTES:
        return None
    last = recent[-1]
    reserve = last.whole_bytes * RESERVE_SHARE if last.kind == "memory" else DISK_RESERVE_BYTES
    if last.free_bytes - falls[-1] >= reserve:
        return None
    return f"{last.name} fell at each of the last {FALLS} restarts, from {_gib(recent[0])} to {_gib(last)} GiB"


def _gib(level: Level) -> str:
    return f"{level.free_bytes / GIB:.1f}"
