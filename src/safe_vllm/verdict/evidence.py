"""What was observed of an attempt, and the verdict that is made of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass, fields
from typing import Literal

Kind = Literal["root", "echo", "advice", "benign", "marker"]
"""Is the cause; repeats it; only suggests; means nothing; tells where vLLM is or what it uses."""

Action = Literal["retry-safer", "retry-same", "stop", "none"]

PHASES = ("init", "autotune", "capture", "first-inference", "serving", "shutdown")

FAULTS = frozenset(
    "illegal-memory-access illegal-instruction misaligned-address launch-failure device-assert gpu-coredump "
    "engine-signal library-exec-failed hang collective-timeout gpu-oom kv-cache host-oom shm backend-refused "
    "bad-argument bad-config bad-model port-in-use hub permission no-gpu driver unsupported-gpu toolchain board "
    "disk-full nccl-init stopped none unknown".split()
)

SUSPECTS = frozenset(
    "autotune moe gemm attention all-reduce all-to-all graphs sampler speculation parallel none unknown".split()
)

LETHAL = frozenset(
    "illegal-memory-access illegal-instruction misaligned-address launch-failure device-assert gpu-coredump "
    "library-exec-failed engine-signal board".split()
)
"""Faults that no process survives."""

NVML = "NVML: "
"""How a line begins that NVML, rather than the output, told."""


def signal_name(number: int) -> str:
    """Return what people call a signal; real-time ones have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class Evidence:
    """One line of output that a signature matched."""

    number: int
    """Its place among all lines of the attempt, both streams together, from 1."""
    text: str
    """The line without colour codes and line end."""
    kind: Kind
    signature: str
    fault: str | None = None
    suspect: str | None = None
    process: str | None = None
    """The vLLM process that wrote it, such as ``Worker_TP0``, where the line says so."""
    phase: str = "init"
    """Where the server was when the line came."""
    at_s: float = 0.0
    """Seconds since the attempt was spawned."""
    can_be_caught: bool = False
    """Whether the GPU is as it was, so that whoever asked may go another way."""
    proves: bool = False
    """Whether the suspect is no guess: the line names the kernel or operator that failed."""
    cache: str | None = None
    """The file or directory with things made earlier that the line says is in use."""

    @property
    def arms(self) -> bool:
        """Whether a server that printed it, and then stays silent, can be held for dead: no process survives this."""
        return self.kind == "root" and self.fault in LETHAL and not self.can_be_caught


@dataclass(frozen=True)
class GpuEvent:
    """A fault of a GPU that the attempt uses, as NVML reported it. Whose doing it was NVML does not say."""

    xid: int | None
    """NVIDIA's number for the fault; ``None``: the GPU is gone."""
    place: int | None = None
    """The number of the GPU as CUDA counts."""
    bus: str | None = None
    """Its address as the kernel writes it, such as ``PCI:0000:65:00``."""
    at_s: float = 0.0
    """Seconds since the attempt was spawned."""

    @property
    def line(self) -> str:
        """What is said of it, in the form in which the kernel says it."""
        where = "" if self.place is None else f" on GPU {self.place}"
        return NVML + (f"GPU is lost{where}" if self.xid is None else f"Xid ({self.bus}): {self.xid}{where}")


@dataclass(frozen=True)
class ProcessEnd:
    """How a process below the leader ended."""

    name: str
    """Its title, such as ``VLLM::Worker_TP0``."""
    pid: int
    status: int | None
    """Exit status; a signal as its negative number; ``None`` where the kernel does not tell."""
    at_s: float = 0.0


@dataclass(frozen=True)
class Arguments:
    """Settings that rungs change, as vLLM's own line of arguments tells them."""

    data_parallel: bool = False
    expert_parallel: bool = False
    moe_backend: str = "auto"
    autotune: bool = True


@dataclass(frozen=True)
class Setup:
    """The software and hardware that ran, as far as anything told. ``None``: nothing did."""

    vllm: str | None = None
    """Version."""
    flashinfer: str | None = None
    """Version."""
    gpu: str | None = None
    """Name, such as ``NVIDIA B200``."""
    compute_capability: str | None = None
    architecture: str | None = None
    """As ``uname -m`` prints it."""
    attention_backend: str | None = None
    all2all_backend: str | None = None

    def or_else(self, other: Setup) -> Setup:
        """Return this, and what it does not tell from ``other``."""
        return Setup(**{field.name: getattr(self, field.name) or getattr(other, field.name) for field in fields(self)})


@dataclass(frozen=True)
class Observations:
    """Everything seen of one attempt that bears on why it ended."""

    leader_status: int | None
    """Exit status of ``vllm serve``, a signal as its negative number; ``None``: it was ended by us."""
    evidence: tuple[Evidence, ...] = ()
    ends: tuple[ProcessEnd, ...] = ()
    gpu_events: tuple[GpuEvent, ...] = ()
    """The first ones; those that bear on the end are among the evidence too."""
    phase: str = "init"
    """The last phase that was reached before anything went wrong."""
    backend: str | None = None
    """The MoE backend that vLLM said it uses."""
    setup: Setup = Setup()
    health_answered: bool = False
    was_ready: bool = False
    was_proven: bool = False
    """Whether it served for the whole proving window and answered a real request at its end."""
    canary: Literal["unsent", "answered", "failed", "hung"] = "unsent"
    stop_requested: bool = False
    """By us, on behalf of the operator."""
    ended_by_us: str | None = None
    """Why we ended it although nobody asked (a hang, a fault that vLLM did not notice)."""
    said: tuple[str, str | None] | None = None
    """The fault and the suspect that an earlier verdict of ours named; they count where nothing else tells."""
    is_over: bool = False
    """Whether it ended, though nobody may know how: in a log that goes on with another start."""
    uptime_s: float = 0.0
    """How long it had been ready, or alive if it never was."""
    ended_at_s: float = 0.0
    """Seconds from the spawn until it ended; 0: not known, it ended with the last that was seen of it."""

    @property
    def has_ended(self) -> bool:
        """Whether it is known to be over, by more than what it printed."""
        return self.leader_status is not None or bool(self.ended_by_us) or self.is_over


@dataclass(frozen=True)
class Advised:
    """What an expert would try, and what shows that it is followed already, or of no use."""

    text: str
    """One sentence that names the setting."""
    link: str | None = None
    """Where it is said to help."""
    sets: tuple[str, ...] = ()
    """Flags as ``--flag value`` and variables as ``NAME=value``, all of which it says to set."""
    leaves_out: str | None = None
    """A flag that it says to leave out."""
    needs_tuning: bool = False
    """Whether it is of use only where kernels are tuned."""
    makes: str | None = None
    """What there is once it was followed: ``process`` or ``gpu`` for a core file, ``stacks``."""


@dataclass(frozen=True)
class Verdict:
    """What kind of death it was, and what that calls for."""

    fault: str
    action: Action
    phase: str
    reason: str
    """One sentence."""
    suspect: str = "unknown"
    backend: str | None = None
    """In use: the attention or all-to-all backend where that is the suspect, else the MoE backend."""
    evidence: tuple[Evidence, ...] = ()
    """The lines it rests on, the root first."""
    advised: tuple[Advised, ...] = ()
    setup: Setup = Setup()
    exit_status: int | None = None
    """For ``stop``: the status that the launch ends with."""
    before_ready: bool = True
    is_suspect_known: bool = False
    """Whether a kernel or an operator was named; where a fault was noticed, or when, is only a hint."""
    cache: str | None = None
    """The file or directory with things made earlier, a tuned tactic or compiled code, that may have done it."""

    @property
    def advice(self) -> tuple[str, ...]:
        """What an expert would try, one sentence each."""
        return tuple(one.text for one in self.advised)

    @property
    def links(self) -> tuple[str | None, ...]:
        """Where each piece of advice comes from."""
        return tuple(one.link for one in self.advised)
