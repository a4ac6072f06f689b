"""The words of a report: what names of ours mean to somebody who does not know them."""

from __future__ import annotations

from safe_vllm.record.incident import Incident, Root
from safe_vllm.record.markdown import said
from safe_vllm.verdict.evidence import signal_name

FAULTS = {
    "engine-signal": "a process crashed in native code",
    "gpu-coredump": "GPU core dump",
    "gpu-oom": "out of GPU memory",
    "host-oom": "out of host memory",
    "kv-cache": "no room for the KV cache",
    "shm": "out of shared memory",
    "hub": "model hub not reached",
    "no-gpu": "no usable GPU",
    "nccl-init": "communication between GPUs could not be set up",
    "device-assert": "assertion failed on the GPU",
    "launch-failure": "GPU kernel could not run",
    "library-exec-failed": "execution error of a CUDA library",
    "illegal-memory-access": "illegal memory access on the GPU",
    "board": "hardware fault of a GPU",
    "disk-full": "disk full",
    "unknown": "unknown fault",
}
"""Those that their names do not tell."""
PHASES = {
    "init": "while starting",
    "autotune": "while autotuning kernels",
    "capture": "while capturing CUDA graphs",
    "first-inference": "at the first inference",
    "serving": "while serving",
    "shutdown": "while shutting down",
}
ACTIONS = {
    "retry-safer": "safer settings may help",
    "retry-same": "it may pass by itself with the same settings",
    "stop": "no change of kernels or parallelism helps",
    "none": "nothing needs to be done",
}
STATUSES = {
    0: "it was asked to stop",
    2: "the command line is wrong",
    69: "a hardware fault: this node needs attention",
    70: "attempts or rungs are spent",
    71: "a process of the old server survived SIGKILL",
    75: "a condition that may pass",
    78: "no retry can help",
}
"""Of ``safe-vllm``."""
KINDS = {"root": "names a cause too", "echo": "only repeats it or follows from it"}
CRASHES = frozenset({4, 5, 6, 7, 8, 11})
"""Signals that a process brings on itself; with others vLLM clears up."""
LATE = frozenset(
    "illegal-memory-access illegal-instruction misaligned-address launch-failure device-assert "
    "library-exec-failed".split()
)
"""Faults of kernels, which run on while the program goes on."""
NOTICED_LATE = (
    "CUDA reports such a fault late: the line and the frames where it was noticed need not be those of the kernel that "
    "faulted. `CUDA_LAUNCH_BLOCKING=1`, or a GPU core dump with `CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1`, tells."
)
NO_PROGRESS = (
    "No progress means: while starting, that nothing was printed and vLLM's processes read and wrote no data for as "
    "long as the phase may take (the limit differs from phase to phase); in service, that requests waited without a "
    "token."
)


def fault(name: str) -> str:
    """Return a fault in words."""
    return FAULTS.get(name, name.replace("-", " "))


def title(incident: Incident) -> str:
    """Return what a report is about."""
    version = incident.versions.vllm or "(version unknown)"
    death = incident.death
    return f"vLLM {version}: {fault(death.fault)} {PHASES.get(death.phase, f'in phase {death.phase}')}"


def ending(incident: Incident) -> str:
    """Return how ``vllm serve`` ended, and what was killed by a signal below it."""
    status = incident.death.exit_status
    server = "`vllm serve`, the API server,"
    if status is None:
        return "safe-vllm ended it"
    how = f"was killed by {signal_name(-status)} ({status})" if status < 0 else f"ended with status {status}"
    killed = next(((end.title, -(end.status or 0)) for end in incident.ends if -(end.status or 0) in CRASHES), None)
    return f"{server} {how}" + (f"; {said(killed[0])} was killed by {signal_name(killed[1])}" if killed else "")


def place(root: Root) -> str:
    """Return where a line is and who wrote it."""
    return f"line {root.line} below" + (f", written by {said(root.process)}" if root.process else "")
