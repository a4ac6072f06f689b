"""The report on one failed attempt, as a value. Nothing in it holds a secret."""

from __future__ import annotations

from dataclasses import dataclass, field

from safe_vllm.record.incident_setup import GpuFree, GpuKind, HostFree, Versions

FORM = 1
"""Of the form of reports. It grows when a field changes its meaning or goes, not when one comes."""


@dataclass(frozen=True)
class LogLine:
    """One line of vLLM's output."""

    line: int
    """Its place among all lines of the attempt, both streams together, from 1."""
    text: str
    alike: int = 0
    """So many lines that differ from it in figures alone followed, and are left out."""


@dataclass(frozen=True)
class Root:
    """A line that the verdict rests on."""

    line: int
    text: str
    kind: str
    """``root``: it is the cause; ``echo``: it repeats it; any other: the last that was seen before a hang."""
    process: str | None = None


@dataclass(frozen=True)
class Times:
    """When it was. Times of day are UTC."""

    started: str
    ended: str
    ready_after_s: float | None = None
    """Since the spawn; ``None``: it never was."""
    ready_for_s: float | None = None


@dataclass(frozen=True)
class Death:
    """The verdict."""

    fault: str
    phase: str
    suspect: str
    is_suspect_known: bool
    """Whether a line names what failed; else it is a guess."""
    backend: str | None
    action: str
    reason: str
    """One sentence."""
    exit_status: int | None
    """vLLM's, a signal as its negative number; ``None``: it was ended by safe-vllm."""
    evidence: tuple[Root, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sequel:
    """What came after it."""

    decision: str
    """One sentence."""
    rung: str | None = None
    """The next one; ``None``: there is no further attempt."""
    pause_s: float | None = None
    """Before it, about; ``None``: not known."""
    status: int | None = None
    """That the launch ends with."""
    changes: tuple[str, ...] = ()
    """Flags and variables that differ, one a line."""
    command: str | None = None
    """As a line for a shell."""


@dataclass(frozen=True)
class CacheUsed:
    """What vLLM keeps from start to start, and where."""

    what: str
    path: str
    is_suspect: bool = False
    because: str = ""
    """Why it is suspect."""


@dataclass(frozen=True)
class Variable:
    """An environment variable; ``None``: only its name is told."""

    name: str
    value: str | None
    is_unread: bool = False
    """Whether the installed versions do not read it."""


@dataclass(frozen=True)
class Setting:
    """What the command or vLLM itself says of how it runs."""

    name: str
    value: str


@dataclass(frozen=True)
class Untried:
    """A rung that has not been run in this launch, and why."""

    rung: str
    because: str


@dataclass(frozen=True)
class Ended:
    """A process of vLLM's that ended by itself. ``None``: the kernel does not tell how."""

    title: str
    pid: int
    status: int | None
    """A signal as its negative number."""


@dataclass(frozen=True)
class StackOf:
    """Where one process was, as py-spy said."""

    pid: int
    title: str
    text: str


@dataclass(frozen=True)
class Core:
    """A core file."""

    path: str
    size_bytes: int
    kind: str
    """``process`` or ``gpu``."""


@dataclass(frozen=True)
class Earlier:
    """An attempt of the same launch, this one included."""

    attempt: int
    rung: str
    fault: str
    phase: str
    seconds: float
    """From spawn to its end."""
    ready_for_s: float | None = None
    """``None``: it never was."""
    reason: str = ""
    """What was said of its end."""
    has_fresh_caches: bool = False
    """Whether it ran with caches that began empty in this launch."""
    report: str | None = None
    """The name of the report on it, where that is another one, and known."""


@dataclass(frozen=True)
class Incident:
    """The report on one failed attempt."""

    launch: str
    attempt: int
    rung: str
    profile: str
    ladder: tuple[str, ...]
    times: Times
    death: Death
    sequel: Sequel
    command: str
    """What was run, as a line for a shell, without safe-vllm."""
    versions: Versions
    gpus: tuple[GpuKind, ...] = ()
    gpu_memory: tuple[GpuFree, ...] = ()
    host: tuple[HostFree, ...] = ()
    xid: tuple[str, ...] = ()
    """Lines of output that name an Xid, and what NVML reported of the GPUs."""
    xid_notes: tuple[str, ...] = ()
    """Of each Xid, a sentence: on which GPU, and whose process it was."""
    settings: tuple[Setting, ...] = ()
    """Model, parallelism and backends."""
    untried: tuple[Untried, ...] = ()
    """The rungs of the ladder that have not been run, and those that it does not have."""
    is_observed: bool = False
    """Whether nothing may be changed: vLLM runs as it was typed, and is started once."""
    directory: str = ""
    """Where the files of this report are; empty: it is in no file."""
    caches: tuple[CacheUsed, ...] = ()
    environment: tuple[Variable, ...] = ()
    """The variables that matter."""
    ends: tuple[Ended, ...] = ()
    stacks: tuple[StackOf, ...] = ()
    stacks_problem: str = ""
    """Why there are none of a server that hung; empty: nobody asked, or there are."""
    cores: tuple[Core, ...] = ()
    core_place: str = ""
    """A sentence about where core files would be."""
    history: tuple[Earlier, ...] = ()
    around: tuple[LogLine, ...] = ()
    """The lines around the root line."""
    tail: tuple[LogLine, ...] = ()
    """The end of the output; where it is shortened, what does not stand in ``around`` already."""
    form: int = field(default=FORM)

    @property
    def root(self) -> Root | None:
        """The line that names the cause, if any does."""
        return self.death.evidence[0] if self.death.evidence else None
