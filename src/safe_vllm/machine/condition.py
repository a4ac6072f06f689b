"""The values that describe the state of a machine: what a start of vLLM needs from it besides GPUs and packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Disk:
    """A directory that will be written to."""

    purpose: str
    """What is kept there, such as ``Hugging Face cache``."""
    path: str
    setting: str
    """The variable that moves it elsewhere."""
    free_bytes: int | None = None
    """Of its file system, for this user; ``None``: not known."""
    is_writable: bool = True


@dataclass(frozen=True)
class Limit:
    """A resource limit of this process. ``None``: unlimited."""

    soft: int | None = None
    hard: int | None = None


@dataclass(frozen=True)
class Port:
    """The address that the server will bind to, and whether that is possible now."""

    host: str
    """Empty: every address."""
    number: int
    trouble: str | None = None
    """What the kernel said; ``None``: it can be bound."""
    holder: str | None = None
    """Who has a socket there, as far as ``/proc`` shows it."""


@dataclass(frozen=True)
class LibraryPath:
    """A directory that a variable names for libraries."""

    variable: str
    path: str
    exists: bool = True
    cuda_majors: tuple[str, ...] = ()
    """Of the CUDA runtimes in it, such as ``12``."""


@dataclass(frozen=True)
class Condition:
    """The state of a machine. ``None``: it could not be read."""

    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    core_pattern: str | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)
    """By the name that ``ulimit`` and systemd know: core, nofile, memlock, nproc, stack."""
    disks: tuple[Disk, ...] = ()
    memory_bytes: int | None = None
    """What the processes may use: the machine's memory, or less where a control group limits it."""
    is_memory_limited: bool = False
    process_limit: int | None = None
    """Of the control group; ``None``: none."""
    kernel: str | None = None
    """Its release, such as ``6.15.2``."""
    container: str | None = None
    """What kind of container this is in; ``None``: in none, as far as can be seen."""
    in_kubernetes: bool = False
    init: str | None = None
    """The name of process 1."""
    is_init: bool = False
    """Whether we are process 1 ourselves."""
    port: Port | None = None
    """``None``: it listens nowhere, or on what cannot be tried."""
    library_paths: tuple[LibraryPath, ...] = ()
    nvcc: str | None = None
    ninja: str | None = None
    has_infiniband: bool = False
    pins: Mapping[str, str] = field(default_factory=dict)
    """Versions that the metadata of the installed vLLM asks for, by distribution."""
    lost_model: str | None = None
    """The path that the command names as its model, where nothing is there."""
    config_trouble: str | None = None
    """Why the file that the command names with ``--config`` is not read."""
