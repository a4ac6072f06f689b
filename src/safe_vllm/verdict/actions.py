"""What each fault calls for."""

from __future__ import annotations

from safe_vllm.errors import Status
from safe_vllm.verdict.evidence import Action

_KERNEL = frozenset(
    (
        "illegal-memory-access illegal-instruction misaligned-address launch-failure device-assert "
        "gpu-coredump engine-signal library-exec-failed"
    ).split()
)
_MAY_PASS_IN_SERVICE = frozenset(["gpu-oom", "kv-cache", "host-oom", "shm", "collective-timeout", "nccl-init"])
_STATUS = {
    "stopped": Status.STOPPED,
    "none": Status.STOPPED,
    "bad-argument": Status.USAGE,
    "board": Status.HARDWARE,
    "port-in-use": Status.PASSING,
    "hub": Status.PASSING,
}


def action_for(fault: str, *, before_ready: bool) -> Action:
    """Return the action for ``fault``. Before the server was ready, a passing condition is not a likely story."""
    if fault == "none":
        return "none"
    if fault in _KERNEL:
        return "retry-safer"
    if fault in ("unknown", "hang", "collective-timeout"):
        return "retry-safer" if before_ready else "retry-same"
    if fault in _MAY_PASS_IN_SERVICE and not before_ready:
        return "retry-same"
    return "stop"


def status_for(fault: str, action: Action) -> int | None:
    """Return the exit status of a launch that ends with ``fault``; ``None`` unless it ends with it."""
    if action not in ("stop", "none"):
        return None
    return int(_STATUS.get(fault, Status.CONFIGURATION))
