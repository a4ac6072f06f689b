"""Makes the report of what a launch knows, and hides its secrets."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

from safe_vllm.machine.cores import Cores
from safe_vllm.machine.facts import Machine
from safe_vllm.machine.levels import GpuMemory, Level
from safe_vllm.plan.command import Command
from safe_vllm.plan.explain import difference
from safe_vllm.plan.ladder import Plan, Rung
from safe_vllm.plan.veil import Veil, veil_of
from safe_vllm.record.incident import (
    CacheUsed,
    Core,
    Death,
    Earlier,
    Ended,
    Incident,
    LogLine,
    Root,
    Sequel,
    StackOf,
    Times,
    Variable,
)
from safe_vllm.record.incident_surroundings import gpu_memory, gpus, host, versions
from safe_vllm.verdict.evidence import Observations, Verdict

PREFIXES = (
    "VLLM_ FLASHINFER_ TRTLLM_ CUDA_ CUBLAS_ CUDNN_ NCCL_ NVIDIA_ NVSHMEM_ UCX_ TORCH PYTORCH_ TRITON_ OMP_ HF_ "
    "TRANSFORMERS_ SAFE_VLLM_"
).split()
NAMES = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "RAY_ADDRESS", "VIRTUAL_ENV", "XDG_CACHE_HOME"})
"""Variables that matter, with those that begin so."""
NAMES_ALONE = ("HF_", "TRANSFORMERS_")
"""Of these the value is not told: it says more of the operator than of the fault."""
NOT_VLLMS = ("SAFE_VLLM_",)
"""These do not belong to the command: vLLM does not read them."""
MOST = 64
"""Of whatever there may be many of."""
_XID = re.compile(r"\bXid\b.{0,40}\d")

T = TypeVar("T")
NO_CORES = Cores()


@dataclass(frozen=True)
class Following:
    """What comes after the attempt, as the launch decided it."""

    decision: str
    """One sentence."""
    rung: Rung | None = None
    command: Command | None = None
    pause_s: float | None = None
    status: int | None = None


@dataclass(frozen=True)
class Material:
    """What a launch knows of an attempt that failed."""

    salt: bytes
    """Random bytes of this launch that are written nowhere: the marks of secrets are made with it."""
    launch: str
    attempt: int
    plan: Plan
    rung: Rung
    command: Command
    verdict: Verdict
    seen: Observations
    machine: Machine
    started_at: float
    """Seconds of the wall clock since 1970."""
    ended_at: float
    following: Following
    history: Sequence[Earlier] = ()
    around: Sequence[tuple[int, str]] = ()
    """Numbers and texts of the lines around the root line."""
    tail: Sequence[tuple[int, str]] = ()
    gpus_before: Sequence[GpuMemory] = ()
    gpus_after: Sequence[GpuMemory] = ()
    levels: Sequence[Sequence[Level]] = ()
    """What the machine had left, at each attempt."""
    stacks: Sequence[tuple[int, str, str]] = ()
    """Process numbers, titles and texts."""
    stacks_problem: str = ""
    cores: Cores = NO_CORES
    caches: Sequence[tuple[str, str]] = ()
    """What is kept, and where."""
    suspect_caches: Collection[str] = ()
    """Those of the paths, or of what is kept there, that may have brought the fault, besides the one that the verdict
    names."""
    config: Mapping[str, object] | None = None
    """What the operator's configuration file says: it may hold secrets."""


def incident_of(found: Material) -> Incident:
    """Return the report. It takes as long as the output is to be looked through, and a launch asks in a thread."""
    following = found.following.command.environment if found.following.command else {}
    veil = veil_of(found.salt, found.command.argv, {**following, **found.command.environment}, found.config)
    incident = Incident(
        launch=found.launch,
        attempt=found.attempt,
        rung=found.rung.name,
        profile=found.plan.profile,
        ladder=tuple(rung.name for rung in found.plan.ladder.rungs),
        times=_times(found),
        death=_death(found),
        sequel=_sequel(found, veil),
        command=command_line(found.rung, found.command, veil),
        versions=versions(found.machine, found.verdict.setup),
        gpus=tuple(gpus(found.machine)),
        gpu_memory=tuple(gpu_memory(found.gpus_before, found.gpus_after)),
        host=tuple(host(found.levels)),
        xid=tuple(_xid(found)),
        caches=tuple(_caches(found)),
        environment=tuple(_environment(found.command.environment, veil)),
        ends=tuple(Ended(end.name, end.pid, end.status) for end in found.seen.ends[:MOST]),
        stacks=tuple(StackOf(*stack) for stack in found.stacks),
        stacks_problem=found.stacks_problem,
        cores=tuple(Core(file.path, file.size_bytes, file.kind) for file in found.cores.files),
        core_place=found.cores.where,
        history=tuple(found.history[-MOST:]),
        around=tuple(LogLine(*line) for line in found.around),
        tail=tuple(LogLine(*line) for line in found.tail),
    )
    return _veiled(incident, veil)


def command_line(rung: Rung, command: Command, veil: Veil) -> str:
    """Return a command as a line for a shell: the variables that matter to vLLM, and every word."""
    ours = dict(rung.environment)
    names = [name for name in command.environment if name in ours or _is_vllms(name)]
    words = [f"{name}={shlex.quote(veil.variable(name, command.environment[name]))}" for name in sorted(names)]
    return " ".join([*words, shlex.join(veil.words(command.argv))])


def _is_vllms(name: str) -> bool:
    return _matters(name) and not name.startswith((*NAMES_ALONE, *NOT_VLLMS))


def _matters(name: str) -> bool:
    return name in NAMES or name.startswith(tuple(PREFIXES))


def _veiled(value: T, veil: Veil) -> T:
    """Return a value with every text in it cleared: what was forgotten above is not forgotten here."""
    if isinstance(value, str):
        return veil.text(value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(_veiled(each, veil) for each in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _veiled(getattr(value, each.name), veil) for each in fields(value)})
    return value


def _times(found: Material) -> Times:
    seen = found.seen
    ready_for_s = round(seen.uptime_s, 3) if seen.was_ready else None
    ready_after_s = round(max(0.0, seen.ended_at_s - seen.uptime_s), 3) if seen.was_ready and seen.ended_at_s else None
    return Times(utc(found.started_at), utc(found.ended_at), ready_after_s, ready_for_s)


def utc(at: float) -> str:
    """Return a time of day for people, from seconds since 1970."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _death(found: Material) -> Death:
    verdict = found.verdict
    first, others = verdict.evidence[:1], verdict.evidence[1:]
    telling = [*first, *(line for line in others if line.kind in ("root", "echo"))]
    return Death(
        fault=verdict.fault,
        phase=verdict.phase,
        suspect=verdict.suspect,
        is_suspect_known=verdict.is_suspect_known,
        backend=verdict.backend,
        action=verdict.action,
        reason=verdict.reason,
        exit_status=found.seen.leader_status,
        evidence=tuple(Root(line.number, line.text, line.kind, line.process) for line in telling[:MOST]),
        advice=verdict.advice,
    )


def _sequel(found: Material, veil: Veil) -> Sequel:
    following = found.following
    rung, command = following.rung, following.command
    return Sequel(
        decision=following.decision,
        rung=rung.name if rung else None,
        pause_s=None if following.pause_s is None else round(following.pause_s, 1),
        status=following.status,
        changes=difference(found.rung, rung, found.plan.unread) if rung else (),
        command=command_line(rung, command, veil) if rung and command else None,
    )


def _xid(found: Material) -> Iterator[str]:
    lines = [line.text for line in found.verdict.evidence] + [text for _, text in (*found.around, *found.tail)]
    yield from list(dict.fromkeys(line for line in lines if _XID.search(line)))[:MOST]


def _caches(found: Material) -> Iterator[CacheUsed]:
    named, is_there = found.verdict.cache, False
    for what, path in found.caches:
        is_named = named is not None and (named == path or named.startswith(f"{path.rstrip('/')}/"))
        is_there = is_there or is_named
        yield CacheUsed(what, path, is_named or path in found.suspect_caches or what in found.suspect_caches)
    if named is not None and not is_there:
        yield CacheUsed("what the output names", named, True)


def _environment(environment: Mapping[str, str], veil: Veil) -> Iterator[Variable]:
    for name in sorted(filter(_matters, environment)):
        is_told = not name.startswith(NAMES_ALONE)
        yield Variable(name, veil.variable(name, environment[name]) if is_told else None)
