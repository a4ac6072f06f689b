"""What exit statuses tell, of the leader and of the processes below it."""

from __future__ import annotations

import re

from safe_vllm.verdict.evidence import ProcessEnd

SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
           9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 31: "SIGSYS"}  # fmt: skip
FAULT_SIGNALS = frozenset({4, 5, 6, 7, 8, 11})
"""Signals that a process brings on itself."""
ABORT, BUS, KILL = 6, 7, 9
ASKED_SIGNALS = frozenset({2, 15})

_VLLM = re.compile(r"VLLM::|(?:EngineCore|Worker|VllmWorker|APIServer|ApiServer|DPCoordinator|vllm\b)")
_ENGINE = re.compile(r"EngineCore|Worker|VllmWorker|RayWorker|rank\d|TP\d")


def signal_of(status: int | None) -> int | None:
    """Return the signal that ``status`` tells of, also as a shell or a container writes it (128 + signal)."""
    if status is None:
        return None
    number = -status if status < 0 else status - 128
    return number if number in SIGNALS else None


def is_vllm(end: ProcessEnd) -> bool:
    """Whether the process is vLLM's own, rather than a compiler or a resource tracker."""
    return bool(_VLLM.match(end.name))


def is_engine(name: str | None) -> bool:
    """Whether ``name``, as a log prefix has it, is that of an engine or worker."""
    return bool(name and _ENGINE.match(name))


def by_fault(ends: tuple[ProcessEnd, ...]) -> ProcessEnd | None:
    """Return the first of vLLM's processes that a fault signal ended."""
    ours = [end for end in ends if is_vllm(end) and signal_of(end.status) in FAULT_SIGNALS]
    return min(ours, key=lambda end: end.at_s, default=None)


def by_kill(ends: tuple[ProcessEnd, ...]) -> ProcessEnd | None:
    """Return the first of vLLM's processes to end, if SIGKILL ended it. Later kills are vLLM clearing up."""
    ours = sorted((end for end in ends if is_vllm(end)), key=lambda end: end.at_s)
    return ours[0] if ours and signal_of(ours[0].status) == KILL else None
