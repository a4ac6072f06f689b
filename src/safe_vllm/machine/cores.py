"""Core files: where the kernel and the CUDA driver put them, and which of them an attempt has left."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safe_vllm.machine.rooted import below, text_of

MOST_ENTRIES = 10_000
"""Of one directory; a larger one is not looked through to its end."""
MOST_FILES = 64
EARLY_S = 1.0
"""Clocks of file systems tick coarsely: a file may seem that much older than it is."""
GPU_PATTERNS = ("core_%t_%h_%p.nvcudmp", "core.cuda.%h.%p")
"""Where ``CUDA_COREDUMP_FILE`` says nothing, in the working directory.

https://docs.nvidia.com/cuda/cuda-gdb/index.html#gpu-core-dump-support
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__COREDUMP.html
"""
COLLECTORS = {
    "systemd-coredump": ("systemd-coredump", "/var/lib/systemd/coredump", "core.*", "coredumpctl list"),
    "apport": ("apport", "/var/crash", "*.crash", "ls /var/crash"),
    "abrt-hook-ccpp": ("abrt", "/var/spool/abrt", "ccpp-*", "abrt list"),
}
"""By what is in the pattern: the name, the directory, the names of files, and how to look.

https://www.freedesktop.org/software/systemd/man/latest/systemd-coredump.html
https://wiki.ubuntu.com/Apport
https://abrt.readthedocs.io/en/latest/conf.html
"""
_WRITTEN = re.compile(r"coredump: Writing ELF file to (/\S+)")


@dataclass(frozen=True)
class CoreFile:
    """A file with the memory of a dead process."""

    path: str
    size_bytes: int
    """As long as it is; of a file with holes, more than it takes."""
    kind: str = "process"
    """``process`` or ``gpu``."""


@dataclass(frozen=True)
class Cores:
    """The core files of one attempt."""

    files: tuple[CoreFile, ...] = ()
    where: str = ""
    """A sentence about where they would be."""

    @property
    def size_bytes(self) -> int:
        """How large they are together."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class _Place:
    directory: Path
    name: re.Pattern[str]
    kind: str


def cores(
    started_at: float,
    environment: Mapping[str, str],
    lines: Sequence[str] = (),
    *,
    directory: str | None = None,
    core_limit: int | None = None,
    root: Path = Path("/"),
    most_entries: int = MOST_ENTRIES,
) -> Cores:
    """Return the core files that came since ``started_at``, seconds of the wall clock since 1970.

    ``lines`` of output may name GPU core dumps; ``directory`` is where vLLM ran, ``None``: where we do; ``core_limit``
    is its RLIMIT_CORE in bytes, ``None``: none. Other programs may have died at the same time: names do not tell.
    """
    pattern = (text_of(below(root, "/proc/sys/kernel/core_pattern"), 4096) or "").strip()
    here = directory or _here()
    places = [*_kernels(pattern, here, root, core_limit), *_drivers(environment, here, root)]
    found: dict[str, CoreFile] = {}
    for place in places:
        found.update((file.path, file) for file in _new(place, started_at, root, most_entries))
    found.update((file.path, file) for file in _written(lines, root))
    return Cores(tuple(found.values())[:MOST_FILES], _where(pattern, here, core_limit))


def _here() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # removed under our feet
        return "/"


def _kernels(pattern: str, here: str, root: Path, core_limit: int | None) -> Iterator[_Place]:
    if pattern.startswith("|"):
        for sign, (_, directory, name, _look) in COLLECTORS.items():
            if sign in pattern:
                yield _Place(below(root, directory), re.compile(fnmatch.translate(name)), "process")
    elif pattern and core_limit != 0:
        has_pid = "%p" in pattern or (text_of(below(root, "/proc/sys/kernel/core_uses_pid"), 16) or "0").strip() == "0"
        yield _place(pattern, here, "process", root, "" if has_pid else r"\.\d+")


def _drivers(environment: Mapping[str, str], here: str, root: Path) -> Iterator[_Place]:
    is_on = ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_ENABLE_USER_TRIGGERED_COREDUMP")
    given = environment.get("CUDA_COREDUMP_FILE")
    if given or any(environment.get(name, "0") not in ("", "0") for name in is_on):
        for pattern in (given,) if given else GPU_PATTERNS:
            yield _place(pattern, here, "gpu", root)


def _place(pattern: str, here: str, kind: str, root: Path, after: str = "") -> _Place:
    """Return where files of this pattern are. A directory with a ``%`` in it has many names, and is not looked for."""
    path = Path(here) / pattern
    return _Place(below(root, path.parent), re.compile(_expression(path.name) + after), kind)


def _expression(name: str) -> str:
    """Return what the names of files fit that are made of this pattern: see core(5)."""
    parts = re.split(r"(%.)", name)
    numbers = dict.fromkeys(("%p", "%P", "%i", "%I", "%u", "%g", "%s", "%t", "%c", "%d", "%C"), r"-?\d+")
    known = {**numbers, "%%": "%"}
    return "".join(known.get(part, ".*") if part.startswith("%") else re.escape(part) for part in parts)


def _new(place: _Place, started_at: float, root: Path, most_entries: int) -> Iterator[CoreFile]:
    try:
        with os.scandir(place.directory) as entries:
            for _, entry in zip(range(most_entries), entries, strict=False):
                if place.name.fullmatch(entry.name) and (file := _file(Path(entry.path), place.kind, root, started_at)):
                    yield file
    except (OSError, ValueError):  # not there, not ours to look at, a NUL in the name
        return


def _written(lines: Sequence[str], root: Path) -> Iterator[CoreFile]:
    """Yield the files that the driver said it writes."""
    for line in lines:
        if (said := _WRITTEN.search(line)) and (file := _file(below(root, said[1]), "gpu", root)):
            yield file


def _file(path: Path, kind: str, root: Path, started_at: float = 0.0) -> CoreFile | None:
    try:
        known = path.lstat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(known.st_mode) or known.st_mtime < started_at - EARLY_S:
        return None
    return CoreFile(f"/{path.relative_to(root)}", known.st_size, kind)


def _where(pattern: str, here: str, core_limit: int | None) -> str:
    if not pattern:
        return "the kernel does not tell where it puts core files (/proc/sys/kernel/core_pattern)"
    if pattern.startswith("|"):
        return _collected(pattern, core_limit)
    if core_limit == 0:
        return "the limit on core files is 0, so the kernel writes none (ulimit -c)"
    return f"core files are written to {Path(here) / pattern}"


def _collected(pattern: str, core_limit: int | None) -> str:
    known = next((what for sign, what in COLLECTORS.items() if sign in pattern), None)
    if known is None:
        return f"core files are handed to {pattern[1:].split()[0] if pattern[1:].split() else 'nobody'}"
    said = f"core files are collected by {known[0]} in {known[1]}; see them with: {known[3]}"
    return f"{said}; the limit on core files is 0, so it may keep none" if core_limit == 0 else said
