"""The Xids of a report: NVIDIA's numbers for faults, the GPU of each, and whose process it was."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from safe_vllm.verdict import xids
from safe_vllm.verdict.evidence import NVML, GpuEvent, ProcessEnd

_LINE = re.compile(r"\bXid\b.{0,40}\d")
_PREFIX = re.compile(r"\((?P<name>[\w:.-]+) pid=(?P<pid>\d+)[,)]")


def lines(texts: Iterable[str], events: Iterable[GpuEvent]) -> list[str]:
    """Return the lines of output that name an Xid, and what NVML reported, each once."""
    reported = [event.line for event in events]
    return list(dict.fromkeys([*filter(_LINE.search, texts), *reported]))


def notes(
    found: Sequence[str], texts: Iterable[str], ends: Sequence[ProcessEnd], events: Sequence[GpuEvent]
) -> list[str]:
    """Return a sentence on each of the lines: on which GPU it was, and whether by one of vLLM's processes."""
    ours = {pid: name for text in texts for name, pid in _PREFIX.findall(text)} | {str(e.pid): e.name for e in ends}
    places = {event.bus: event.place for event in events if event.bus and event.place is not None}
    return list(dict.fromkeys(_note(line, ours, places) for line in found))


def _note(line: str, ours: dict[str, str], places: dict[str, int]) -> str:
    told, is_reported = xids.LINE.search(line), line.startswith(NVML)
    if told is None:
        return "a GPU is lost, as NVML reported" if is_reported else "a line names one: see below"
    place = places.get(told["bus"])
    gpu = f"the GPU at {told['bus']}" + ("" if place is None else f" (GPU {place} as CUDA counts)")
    return ", ".join([f"Xid {told['number']} on {gpu}", *_who(told, ours, is_reported=is_reported)])


def _who(told: re.Match[str], ours: dict[str, str], *, is_reported: bool) -> Iterator[str]:
    if told["pid"] is None:
        yield "reported by NVML, which does not tell the process" if is_reported else "without a process"
    elif told["pid"] in ours:
        yield f"by pid {told['pid']}, which is {ours[told['pid']]} of this attempt"
    else:
        name = f" ({told['name'].strip()})" if told["name"] else ""
        yield f"by pid {told['pid']}{name}, which is not known as one of vLLM's here (containers count pids otherwise)"
