"""What a start needs besides GPUs: shared memory, memory, disk, and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding, Level, size
from safe_vllm.machine.condition import GIB, MIB, Disk, Limit

SHM_NEEDED = GIB
SHM_OF_DOCKER = 64 * MIB
"""What a container has without --shm-size: https://docs.vllm.ai/en/stable/deployment/docker/"""
MEMORY_NEEDED = 8 * GIB
CORE_IS_HUGE = 10 * GIB
DISK_NEEDED = {"HF_HOME": 10 * GIB, "XDG_STATE_HOME": 100 * MIB}
DISK_NEEDED_OTHERWISE = 2 * GIB
DISK_FULL = 50 * MIB
FILES_NEEDED = 65535
"""vLLM raises its own limit to this: https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/utils/system_utils.py"""
FILES_FEW = 4096
PROCESSES_NEEDED = 4096
TASKS_NEEDED = 1024
STACK_NEEDED = 8 * MIB


def shared_memory(case: Case) -> Iterator[Finding]:
    """Look at /dev/shm, through which the processes of one engine and NCCL talk."""
    total, free = case.state.shm_total_bytes, case.state.shm_free_bytes
    if total is None or free is None:
        why = "the processes of an engine talk through it"
        yield Finding("shared-memory", "warning", "/dev/shm cannot be read", why, "mount a tmpfs at /dev/shm")
        return
    what = f"/dev/shm has {size(free)} free of {size(total)}"
    is_needed, is_likely = case.ranks > 1 or case.engines > 1, len(case.machine.gpus) > 1
    if free >= SHM_NEEDED or not (is_needed or is_likely):
        yield Finding("shared-memory", "ok", what)
        return
    why = "with more than one GPU, engines die with SIGBUS at the start, or NCCL fails, when it is full"
    do = "start the container with --ipc=host or --shm-size=16g; in Kubernetes mount an emptyDir with medium: Memory"
    if total >= SHM_NEEDED:
        do = "remove what dead servers left there (ls -l /dev/shm), when nothing uses it"
    is_certain = is_needed and free <= SHM_OF_DOCKER
    yield Finding("shared-memory", "problem" if is_certain else "warning", what, why, do)


def memory(case: Case) -> Iterator[Finding]:
    """Look at how much memory the processes may use."""
    found = case.state.memory_bytes
    if found is None:
        return
    what = f"{size(found)}, {'a limit of the control group' if case.state.is_memory_limited else 'all there is'}"
    if found < MEMORY_NEEDED:
        why = "each engine needs several GiB beside the GPU; the kernel ends what goes beyond with SIGKILL"
        yield Finding("memory", "warning", what, why, "raise the container's memory limit, or use a larger machine")
    else:
        yield Finding("memory", "ok", what)


def core_files(case: Case) -> Iterator[Finding]:
    """Look at what becomes of a core dump: nothing, or a file as large as all memory that a process has mapped."""
    limit, pattern = case.state.limits.get("core"), case.state.core_pattern
    if limit is None or pattern is None:
        return
    kept = "of any size" if limit.soft is None else f"of at most {size(limit.soft)}"
    what = f"{kept}, written to {pattern!r}" if limit.soft != 0 else "none are written"
    if pattern.startswith("|") or (limit.soft is not None and limit.soft < CORE_IS_HUGE):
        yield Finding("core-files", "ok", what)
    else:
        why = (
            "an engine's core file can have tens of GiB: it fills the disk, and delays the restart while it is written"
        )
        do = "ulimit -c 0 (LimitCORE=0, docker --ulimit core=0), or let systemd-coredump keep them within bounds"
        yield Finding("core-files", "warning", what, why, do)


def disks(case: Case) -> Iterator[Finding]:
    """Look at the space for models, compiled kernels and our own state. What shares a file system is told once."""
    places = case.state.disks
    locked = [disk for disk in places if not disk.is_writable]
    short = [disk for disk in places if disk.is_writable and _is_short(disk)]
    if locked:
        why = "what would be kept there is downloaded or compiled anew at each start, or the start fails"
        yield Finding("disk", "warning", f"cannot be written: {_named(locked)}", why, _elsewhere(locked))
    for free in sorted({disk.free_bytes or 0 for disk in short}):
        full = [disk for disk in short if disk.free_bytes == free]
        why = "a start that meets a full disk fails, and no safer setting helps against that"
        level: Level = "problem" if free < DISK_FULL else "warning"
        yield Finding("disk", level, f"{size(free)} free for {_named(full)}", why, f"make room, or {_elsewhere(full)}")
    known = [disk.free_bytes for disk in places if disk.free_bytes is not None]
    if known and not locked and not short:
        yield Finding("disk", "ok", f"at least {size(min(known))} free for models, kernels and state")


def _is_short(disk: Disk) -> bool:
    needed = DISK_NEEDED.get(disk.setting, DISK_NEEDED_OTHERWISE)
    return disk.free_bytes is not None and disk.free_bytes < needed


def _named(disks: Sequence[Disk]) -> str:
    return ", ".join(f"{disk.purpose} ({disk.path})" for disk in disks)


def _elsewhere(disks: Sequence[Disk]) -> str:
    return f"let {', '.join(disk.setting for disk in disks)} lead to where there is room and this user may write"


def limits(case: Case) -> Iterator[Finding]:
    """Look at the resource limits of this process, which vLLM inherits."""
    wrong = [*_limits(case), *_tasks(case)]
    yield from wrong
    if case.state.limits and not wrong:
        yield Finding("limits", "ok", "open files, processes, stack and locked memory are enough")


def _limits(case: Case) -> Iterator[Finding]:
    found = case.state.limits
    yield from _files(found.get("nofile"))
    if _is_below(found.get("nproc"), PROCESSES_NEEDED):
        why = "every worker has hundreds of threads; without room for more it ends with: can't start new thread"
        what = f"no more than {_soft(found, 'nproc')} processes and threads"
        yield Finding("limits", "warning", what, why, _raise("nproc=-1", "NPROC=infinity"))
    if _is_below(found.get("stack"), STACK_NEEDED):
        why = "compiling kernels recurses deeply and ends with SIGSEGV on a small stack"
        what = f"the stack has {size(_soft(found, 'stack'))}"
        yield Finding("limits", "warning", what, why, _raise("stack=67108864", "STACK=64M"))
    if case.state.has_infiniband and _is_below(found.get("memlock"), 64 * GIB):
        why = "NCCL must lock memory to use InfiniBand"
        what = f"no more than {size(_soft(found, 'memlock'))} of memory can be locked"
        yield Finding("limits", "warning", what, why, _raise("memlock=-1", "MEMLOCK=infinity"))


def _soft(limits: Mapping[str, Limit], name: str) -> int:
    found = limits.get(name)
    return found.soft or 0 if found else 0


def _files(limit: Limit | None) -> Iterator[Finding]:
    if limit is None or not _is_below(limit, FILES_NEEDED) or limit.hard is None or limit.hard >= FILES_NEEDED:
        return
    what = f"open files: {limit.soft}, and no more than {limit.hard} can be had"
    why = f"vLLM asks for {FILES_NEEDED}, is refused, and stays at {limit.soft}: every connection needs one"
    level: Level = "warning" if _is_below(limit, FILES_FEW) else "note"
    yield Finding("limits", level, what, why, _raise("nofile=65535", "NOFILE=65535"))


def _tasks(case: Case) -> Iterator[Finding]:
    count = case.state.process_limit
    if count is not None and count < TASKS_NEEDED:
        what = f"the control group allows {count} processes and threads"
        why = "every worker has hundreds of threads; without room for more it ends with: can't start new thread"
        yield Finding("limits", "warning", what, why, "raise it: docker --pids-limit=-1, TasksMax=infinity in a unit")


def _is_below(limit: Limit | None, needed: int) -> bool:
    return limit is not None and limit.soft is not None and limit.soft < needed


def _raise(docker: str, unit: str) -> str:
    return f"raise it: docker --ulimit {docker}, Limit{unit} in a unit"
