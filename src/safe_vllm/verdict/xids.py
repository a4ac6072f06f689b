"""Xids: the numbers by which NVIDIA's driver reports faults, in lines of the kernel and as NVML tells them.

What each means: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

import re

from safe_vllm.verdict.evidence import NVML, Evidence, Observations

XID = "xid-"
"""Signatures of Xids have names that begin so."""
LINE = re.compile(r"\bXid \((?P<bus>[^)]*)\): (?P<number>\d+)(?:, pid='?(?P<pid>\d+)'?(?:, name=(?P<name>[^,]+))?)?")
_MAYBE_OURS = re.compile(r"VLLM|vllm|python|pt_|ray::|<")
"""How the driver calls vLLM's processes, or any that has not named itself."""
_PREFIX = re.compile(r"\([^()]* pid=(\d+)[,)]")


def number(line: Evidence | None) -> int | None:
    """Return the Xid that a line tells of."""
    found = LINE.search(line.text) if line and line.signature.startswith(XID) else None
    return int(found["number"]) if found else None


def is_xid(line: Evidence) -> bool:
    """Whether a line is about an Xid that a process brings about, rather than a broken board."""
    return line.signature.startswith(XID) and line.kind == "echo"


def is_reported(line: Evidence) -> bool:
    """Whether NVML told it, rather than the output."""
    return line.text.startswith(NVML)


def pids(seen: Observations) -> frozenset[int]:
    """Return the processes of the attempt, as far as anything names them."""
    named = (int(pid) for line in seen.evidence for pid in _PREFIX.findall(line.text))
    return frozenset([*named, *(end.pid for end in seen.ends)])


def is_of_another(line: Evidence, ours: frozenset[int]) -> bool:
    """Whether a line of the kernel names a process that is not vLLM's.

    A number alone proves nothing: the kernel counts the processes of a container otherwise than the container does.
    """
    told = LINE.search(line.text) if is_xid(line) else None
    if told is None or told["name"] is None:
        return False
    return int(told["pid"]) not in ours and not _MAYBE_OURS.match(told["name"])
