"""Makes the report of what a launch knows, and hides its secrets."""

from __future__ import annotations

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
from safe_vllm.plan.running import Running
from safe_vllm.plan.veil import Veil, veil_of
from safe_vllm.record import incident_xid
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
    Setting,
    StackOf,
    Times,
    Untried,
)
from safe_vllm.record.incident_advice import opening
from safe_vllm.record.incident_command import command_line, settings, variables
from safe_vllm.record.incident_ladder import untried
from safe_vllm.record.incident_surroundings import gpu_memory, gpus, host, versions
from safe_vllm.verdict.evidence import Observations, Verdict

MOST = 64
"""Of whatever there may be many of."""
LOADED = "the output names it: what is kept there was in use, and may have brought the fault"
BLAMED = "the same fault struck in the same phase twice, and what is kept there was kept between"

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
    unread: Collection[str] = ()
    """Variables that the installed versions do not read, besides those of the plan."""


def incident_of(found: Material) -> Incident:
    """Return the report. It takes as long as the output is to be looked through, and a launch asks in a thread."""
    following = found.following.command.environment if found.following.command else {}
    veil = veil_of(found.salt, found.command.argv, {**following, **found.command.environment}, found.config)
    texts = [line.text for line in found.verdict.evidence] + [text for _, text in (*found.around, *found.tail)]
    xid = incident_xid.lines(texts, found.seen.gpu_events)[:MOST]
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
        xid=tuple(xid),
        xid_notes=tuple(incident_xid.notes(xid, texts, found.seen.ends, found.seen.gpu_events)),
        settings=tuple(_settings(found, veil)),
        untried=tuple(_untried(found)),
        is_observed=found.plan.observed is not None,
        caches=tuple(_caches(found)),
        environment=tuple(variables(found.command.environment, {*found.plan.unread, *found.unread}, veil)),
        ends=tuple(Ended(end.name, end.pid, end.status) for end in found.seen.ends[:MOST]),
        stacks=tuple(StackOf(*stack) for stack in found.stacks),
        stacks_problem=found.stacks_problem,
        cores=_cores(found),
        core_place=found.cores.where,
        history=tuple(found.history[-MOST:]),
        around=tuple(LogLine(*line) for line in found.around),
        tail=tuple(LogLine(*line) for line in found.tail),
    )
    return _veiled(incident, veil)


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
        advice=_advice(found),
    )


def _advice(found: Material) -> tuple[str, ...]:
    """Return what to do with what there is, and the advice, but for how to make that."""
    cores, next_one = _cores(found), found.following
    there = {*(core.kind for core in cores), *(["stacks"] if found.stacks else [])}
    left = [one for one in found.verdict.advised if one.makes not in there]
    first = opening(cores, found.machine.installation.python)
    if next_one.rung is None or next_one.command is None:
        return (*first, *(one.text for one in left))
    after, tries = Running(next_one.rung.words, next_one.command.environment, found.config), found.attempt + 1
    return (*first, *(f"{one.text} (attempt {tries} tries it)" if after.has(one) else one.text for one in left))


def _cores(found: Material) -> tuple[Core, ...]:
    return tuple(Core(file.path, file.size_bytes, file.kind) for file in found.cores.files)


def _sequel(found: Material, veil: Veil) -> Sequel:
    following = found.following
    rung, command = following.rung, following.command
    return Sequel(
        decision=_decision(following.decision, found.verdict.reason),
        rung=rung.name if rung else None,
        pause_s=None if following.pause_s is None else round(following.pause_s, 1),
        status=following.status,
        changes=difference(found.rung, rung, found.plan.unread) if rung else (),
        command=command_line(rung, command, veil) if rung and command else None,
    )


def _decision(decision: str, reason: str) -> str:
    """Return what was decided, without what the report says elsewhere: why vLLM died."""
    return decision if decision == reason else decision.removesuffix(f": {reason}")


def _untried(found: Material) -> Iterator[Untried]:
    following = found.following.rung
    tried = [past.rung for past in found.history]
    return untried(found.plan, found.rung.name, tried, following.name if following else None, found.verdict)


def _settings(found: Material, veil: Veil) -> Iterator[Setting]:
    """Yield what the command asks for, what no rung may change, and what vLLM said that it uses."""
    yield from settings(found.rung.words, found.command.environment, found.config, veil)
    told = found.verdict.setup
    if found.plan.pins:
        yield Setting("pinned with --pin", ", ".join(sorted(found.plan.pins)))
    for name, value in (
        ("MoE backend, by its output", found.seen.backend),
        ("attention backend, by its output", told.attention_backend),
        ("all-to-all backend, by its output", told.all2all_backend),
    ):
        if value:
            yield Setting(name, value)


def _caches(found: Material) -> Iterator[CacheUsed]:
    named, is_there = found.verdict.cache, False
    for what, path in found.caches:
        is_named = named is not None and (named == path or named.startswith(f"{path.rstrip('/')}/"))
        is_there = is_there or is_named
        is_blamed = path in found.suspect_caches or what in found.suspect_caches
        yield CacheUsed(what, path, is_named or is_blamed, LOADED if is_named else BLAMED if is_blamed else "")
    if named is not None and not is_there:
        yield CacheUsed("what the output names", named, True, LOADED)
