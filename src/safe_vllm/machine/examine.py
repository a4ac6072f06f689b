"""Reads the state of this machine. What cannot be read is ``None``: odd machines are what this is for."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from safe_vllm.machine import hub
from safe_vllm.machine.condition import Condition, Disk, LibraryPath, Limit, Port
from safe_vllm.machine.rooted import below, exists, is_directory, text_of

LIMITS = {
    "core": resource.RLIMIT_CORE,
    "nofile": resource.RLIMIT_NOFILE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "nproc": resource.RLIMIT_NPROC,
    "stack": resource.RLIMIT_STACK,
}
SHM = "/dev/shm"
LIBRARY_PATHS = ("CUDA_LIB_PATH", "LD_LIBRARY_PATH")

MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PROCESS_LIMITS = ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")
"""Control groups of version 2 and of version 1, as a container sees its own."""
CONTAINER_SIGNS = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman", "/run/.singularity": "Singularity"}


def examine(
    environment: Mapping[str, str],
    port: Port | None = None,
    pins: Mapping[str, str] | None = None,
    *,
    root: Path = Path("/"),
) -> Condition:
    """Return the state of this machine; ``port`` and ``pins`` are what others found out about those."""
    total, free = space(below(root, SHM))
    memory, is_limited = _memory(root)
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in environment
    search = environment.get("PATH", os.defpath)
    return Condition(
        shm_total_bytes=total,
        shm_free_bytes=free,
        core_pattern=_line(root, "/proc/sys/kernel/core_pattern"),
        limits=dict(_limits()),
        disks=tuple(_disk(*each) for each in places(environment)),
        memory_bytes=memory,
        is_memory_limited=is_limited,
        process_limit=_number(root, PROCESS_LIMITS),
        kernel=platform.release() or None,
        container="Kubernetes" if in_kubernetes else _container(root, environment),
        in_kubernetes=in_kubernetes,
        init=_line(root, "/proc/1/comm"),
        is_init=os.getpid() == 1,
        port=port,
        library_paths=tuple(_library_paths(environment, root)),
        nvcc=shutil.which("nvcc", path=search),
        ninja=shutil.which("ninja", path=search),
        has_infiniband=exists(below(root, "/dev/infiniband")),
        pins=pins or {},
    )


def places(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the directories that a server writes to: what is kept there, which, and the variable that moves it.

    https://docs.vllm.ai/en/stable/configuration/env_vars/ (VLLM_CACHE_ROOT)
    https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_configuration_tutorial.html
    https://github.com/flashinfer-ai/flashinfer/blob/v0.6.12/flashinfer/jit/env.py#L51
    """
    home = environment.get("HOME") or "/"
    cache = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    state = environment.get("XDG_STATE_HOME") or f"{home}/.local/state"
    flashinfer = f"{environment.get('FLASHINFER_WORKSPACE_BASE') or home}/.cache/flashinfer"
    yield "Hugging Face cache", hub.cache({"HOME": home, **environment}) or home, "HF_HOME"
    yield "vLLM's cache", environment.get("VLLM_CACHE_ROOT") or f"{cache}/vllm", "VLLM_CACHE_ROOT"
    yield "FlashInfer's kernels", flashinfer, "FLASHINFER_WORKSPACE_BASE"
    yield "Triton's kernels", environment.get("TRITON_CACHE_DIR") or f"{home}/.triton/cache", "TRITON_CACHE_DIR"
    torch = environment.get("TORCHINDUCTOR_CACHE_DIR") or environment.get("TMPDIR") or "/tmp"
    yield "torch's kernels", torch, "TORCHINDUCTOR_CACHE_DIR"
    yield "our own state", f"{state}/safe-vllm", "XDG_STATE_HOME"


def space(path: Path) -> tuple[int | None, int | None]:
    """Return total and free bytes of a file system, as this user may have them."""
    try:
        found = os.statvfs(path)
    except (OSError, ValueError):  # ValueError: a name with a NUL in it
        return None, None
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def _disk(purpose: str, path: str, setting: str) -> Disk:
    """Return a directory; of one that does not exist yet, what holds for the nearest one above it."""
    place = nearest(Path(path))
    return Disk(purpose, path, setting, space(place)[1], os.access(place, os.W_OK | os.X_OK))


def nearest(path: Path) -> Path:
    """Return the directory, or the nearest one above it that exists."""
    try:
        return next((each for each in (path, *path.parents) if is_directory(each)), Path("/"))
    except (OSError, ValueError):
        return Path("/")


def _limits() -> Iterator[tuple[str, Limit]]:
    for name, number in LIMITS.items():
        soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(number))
        yield name, Limit(soft, hard)


def _memory(root: Path) -> tuple[int | None, bool]:
    """Return how many bytes there are, and whether that is less than the machine has."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", text_of(below(root, "/proc/meminfo")) or "", re.MULTILINE)
    whole, limit = int(found[1]) << 10 if found else None, _number(root, MEMORY_LIMITS)
    is_limited = limit is not None and (whole is None or limit < whole)
    return (limit if is_limited else whole), is_limited


def _number(root: Path, names: Iterable[str]) -> int | None:
    texts = (_line(root, name) for name in names)
    return next((int(text) for text in texts if text and text.isascii() and text.isdigit()), None)


def _line(root: Path, name: str) -> str | None:
    text = text_of(below(root, name), 4096)
    return text.strip() if text else None


def _container(root: Path, environment: Mapping[str, str]) -> str | None:
    by_file = (name for sign, name in CONTAINER_SIGNS.items() if exists(below(root, sign)))
    return next(by_file, None) or environment.get("container") or None


def _library_paths(environment: Mapping[str, str], root: Path) -> Iterator[LibraryPath]:
    for variable in LIBRARY_PATHS:
        for path in filter(None, environment.get(variable, "").split(":")):
            yield _library_path(variable, path, below(root, path) if path.startswith("/") else Path(path))


def _library_path(variable: str, path: str, place: Path) -> LibraryPath:
    try:
        names = [each.name for each in place.glob("libcudart.so.*")] if is_directory(place) else None
    except (OSError, ValueError):
        names = None
    majors = {found[1] for name in names or () if (found := re.match(r"libcudart\.so\.(\d+)", name))}
    return LibraryPath(variable, path, names is not None, tuple(sorted(majors)))
