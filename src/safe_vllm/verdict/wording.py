"""The sentence that says what happened."""

from __future__ import annotations

import re

from safe_vllm.verdict import ends, xids
from safe_vllm.verdict.cause import Cause
from safe_vllm.verdict.evidence import Observations
from safe_vllm.verdict.lines import after_wrapper

_WHEN = {
    "init": "while it was starting",
    "autotune": "while kernels were being autotuned",
    "capture": "while CUDA graphs were being captured",
    "first-inference": "at the first inference",
    "serving": "while serving",
    "shutdown": "while shutting down",
}
_WHAT = {
    "illegal-memory-access": "hit an illegal memory access on the GPU",
    "illegal-instruction": "ran an illegal instruction on the GPU",
    "misaligned-address": "used a misaligned address on the GPU",
    "launch-failure": "could not run a GPU kernel",
    "device-assert": "failed an assertion on the GPU",
    "gpu-coredump": "was ended by a GPU core dump",
    "library-exec-failed": "got an execution error from a CUDA library",
    "engine-signal": "crashed in native code",
    "hang": "made no progress",
    "collective-timeout": "waited in vain for the other ranks",
    "gpu-oom": "ran out of GPU memory",
    "kv-cache": "found no room for the KV cache",
    "host-oom": "was killed for want of host memory",
    "shm": "ran out of shared memory",
    "backend-refused": "refused the requested backend",
    "bad-argument": "rejected the command line",
    "bad-config": "rejected the configuration",
    "bad-model": "could not use the model",
    "port-in-use": "found its port in use",
    "hub": "could not reach the model hub",
    "permission": "was not permitted",
    "no-gpu": "found no usable GPU",
    "driver": "could not work with this driver",
    "unsupported-gpu": "could not run on this GPU",
    "toolchain": "could not build or load code that it needs",
    "board": "met a hardware fault of the GPU",
    "disk-full": "ran out of disk space",
    "nccl-init": "could not set up communication between GPUs",
}
_QUOTED = frozenset(
    (
        "gpu-oom kv-cache host-oom shm backend-refused bad-argument bad-config bad-model port-in-use hub "
        "permission no-gpu driver unsupported-gpu toolchain board disk-full nccl-init"
    ).split()
)
_NO_VLLM = "vllm-missing"
_LONGEST_QUOTE = 240
_PREFIX = re.compile(r"^(?:\([^()]* pid=\d+\) )*(?:[A-Z]+ \d\d-\d\d [\d:]+ \[?[\w./-]+:\d+\] )?\s*")


def reason(cause: Cause, seen: Observations, phase: str) -> str:
    """Return one sentence that names the process, what happened to it, and when."""
    when = _WHEN[phase]
    if cause.fault == "none":
        return "nothing in the output tells of a failure"
    if cause.fault == "stopped":
        return "it was told to stop by someone else"
    if cause.line and cause.line.signature == _NO_VLLM:
        return f"there is no vLLM to start: {quote(cause.line.text)}"
    if signal := _signal(cause, seen):
        return f"{_who(cause)} was killed by {signal} {when}"
    is_of_those_who_wait = cause.fault == "hang" and cause.line is not None and cause.line.kind == "echo"
    if seen.ended_by_us and (not cause.line or is_of_those_who_wait):  # what we saw says more
        said = f"a real request was not answered {when}: {seen.ended_by_us}"
        return f"{seen.ended_by_us} {when}" if cause.fault == "hang" else said
    if cause.fault == "unknown" and cause.line and cause.line.kind == "echo" and cause.line.fault:
        return f"{_who(cause)} failed {when}: {quote(cause.line.text)}"
    if cause.fault == "unknown":
        return f"vLLM {_exit(seen.leader_status)} {when}, and no known cause was printed"
    sentence = f"{_who(cause)} {_WHAT[cause.fault]} {when}"
    is_quoted = cause.line and (cause.fault in _QUOTED or xids.is_xid(cause.line))
    return f"{sentence}: {quote(cause.line.text)}" if cause.line and is_quoted else sentence


def quote(text: str) -> str:
    """Return what ``text`` says without what stored it and the writer's prefix, shortened."""
    said = _PREFIX.sub("", text[after_wrapper(text) :]).strip()
    return said if len(said) <= _LONGEST_QUOTE else said[: _LONGEST_QUOTE - 1] + "…"


def _who(cause: Cause) -> str:
    if cause.end:
        return cause.end.name
    return (cause.line.process if cause.line else None) or "vLLM"


def _signal(cause: Cause, seen: Observations) -> str | None:
    if cause.line and not cause.end and not cause.was_killed:
        return None
    number = ends.signal_of(cause.end.status if cause.end else seen.leader_status)
    return ends.SIGNALS.get(number) if number else None


def _exit(status: int | None) -> str:
    if status is None:
        return "ended in a way that is not known"
    name = ends.SIGNALS.get(ends.signal_of(status) or 0) or (f"signal {-status}" if status < 0 else None)
    return f"was killed by {name}" if name else f"ended with status {status}"
