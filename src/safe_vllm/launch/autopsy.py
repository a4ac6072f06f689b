"""Gathers what a launch knows of an attempt that failed, and has the report on it written."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from safe_vllm.attempt.order import Ended
from safe_vllm.machine.levels import GpuMemory, Level
from safe_vllm.patience import within
from safe_vllm.plan.command import Command, command
from safe_vllm.plan.ladder import Rung
from safe_vllm.policy.descent import End, Next, Past
from safe_vllm.preparing import Prepared
from safe_vllm.verdict.evidence import Verdict

if TYPE_CHECKING:
    from safe_vllm.record.incident import Earlier
    from safe_vllm.record.incident_making import Following

OF_VLLM = ("VLLM_", "FLASHINFER_", "TRTLLM_")
"""How the variables begin that vLLM and what it runs on read."""
GPUS_WITHIN_S = 2.0
NO_STACKS: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True)
class Failed:
    """An attempt that failed. Times are seconds of the wall clock since 1970."""

    number: int
    rung: Rung
    command: Command
    ended: Ended
    verdict: Verdict
    started_at: float
    ended_at: float


@dataclass(frozen=True)
class Circumstances:
    """What surrounded it."""

    prepared: Prepared
    launch: str
    salt: bytes
    """Of the marks that tell secrets apart; it is written nowhere."""
    history: Sequence[Past]
    """This attempt included."""
    gpus: Sequence[GpuMemory]
    """Before the first attempt."""
    levels: Sequence[Sequence[Level]]
    """Before each attempt."""
    decision: Next | End
    following: Rung | None
    """The rung that is run next; ``None``: none is."""
    pause_s: float | None


def write(failed: Failed, around: Circumstances, state: Path) -> tuple[Path | None, str | None]:
    """Write the report; return where it is, and what went wrong. It takes a while: to be called in a thread."""
    from safe_vllm.machine.cores import cores  # only a launch that failed needs these
    from safe_vllm.plan.fresh_caches import caches_of
    from safe_vllm.record import incidents
    from safe_vllm.record.incident_making import Material, incident_of

    prepared, ended = around.prepared, failed.ended
    environment, words = failed.command.environment, failed.rung.words
    verdict = advised_anew(failed.verdict, failed.rung, failed.command, prepared)
    tail = [(line.number, line.text) for line in ended.tail.last_lines()]
    root = verdict.evidence[0].number if verdict.evidence else None
    material = Material(
        salt=around.salt,
        launch=around.launch,
        attempt=failed.number,
        plan=prepared.plan,
        rung=failed.rung,
        command=failed.command,
        verdict=verdict,
        seen=ended.observations,
        machine=prepared.machine,
        started_at=failed.started_at,
        ended_at=failed.ended_at,
        following=_following(around),
        history=_earlier(around),
        around=[] if root is None else [(line.number, line.text) for line in ended.tail.lines_around(root)],
        tail=tail,
        gpus_before=around.gpus,
        gpus_after=_gpus(environment) if around.gpus else (),
        levels=around.levels,
        stacks=[(s.pid, s.title, s.text) for s in ended.stacks.taken] if ended.stacks else NO_STACKS,
        stacks_problem=ended.stacks.problem if ended.stacks else "",
        cores=cores(failed.started_at, environment, [text for _, text in tail], core_limit=_core_limit()),
        caches=caches_of(environment, prepared.dialect, words, prepared.config),
        suspect_caches=frozenset(_suspect_caches(around, environment, words)),
        config=prepared.config,
        unread=frozenset(_unread(environment, prepared)),
    )
    return incidents.record(state, incident_of(material), failed.ended_at)


def _core_limit() -> int | None:
    limit, _ = resource.getrlimit(resource.RLIMIT_CORE)
    return None if limit == resource.RLIM_INFINITY else limit


def advised_anew(verdict: Verdict, rung: Rung, command: Command, prepared: Prepared) -> Verdict:
    """Return the verdict with advice that is not in effect already, and that fits what was run."""
    from safe_vllm import known
    from safe_vllm.plan.running import Running
    from safe_vllm.verdict.in_effect import advised_with

    running, model = Running(rung.words, command.environment, prepared.config), prepared.machine.model
    is_mxfp4 = model is not None and model.weight_format == "mxfp4"
    return advised_with(verdict, known.advice(), running, is_mxfp4=is_mxfp4)


def _suspect_caches(around: Circumstances, environment: Mapping[str, str], words: Sequence[str]) -> Iterator[str]:
    """Yield the caches that the next attempt begins without because the same fault came twice."""
    from safe_vllm.plan.fresh_caches import caches_of

    decision, prepared, following = around.decision, around.prepared, _following(around)
    if isinstance(decision, End) or following.rung is None or following.command is None:
        return
    last = around.history[-1]
    if decision.fresh_caches and not last.fresh_caches and last.verdict.cache is None:
        after = caches_of(following.command.environment, prepared.dialect, following.rung.words, prepared.config)
        before = caches_of(environment, prepared.dialect, tuple(words), prepared.config)
        yield from {path for _, path in before} - {path for _, path in after}


def _unread(environment: Mapping[str, str], prepared: Prepared) -> Iterator[str]:
    """Yield the operator's variables that the installed versions do not read."""
    installed = prepared.machine.installation
    for name in environment if installed.vllm else ():
        if name.startswith(OF_VLLM) and prepared.dialect.reads(name, installed.flashinfer) is False:
            yield name


def _following(around: Circumstances) -> Following:
    from safe_vllm.record.incident_making import Following

    decision, prepared, rung = around.decision, around.prepared, around.following
    if isinstance(decision, End) or rung is None:
        return Following(decision.reason, status=decision.status if isinstance(decision, End) else None)
    return Following(decision.reason, rung, command(rung, prepared.vllm, prepared.environment), around.pause_s)


def _earlier(around: Circumstances) -> list[Earlier]:
    from safe_vllm.record.incident import Earlier

    names = [rung.name for rung in around.prepared.plan.ladder.rungs]
    return [
        Earlier(
            number,
            names[past.rung],
            past.verdict.fault,
            past.verdict.phase,
            round(past.ended_at_s - past.spawned_at_s, 3),
            past.ready_for_s if past.was_ready else None,
            past.verdict.reason,
            past.fresh_caches,
        )
        for number, past in enumerate(around.history, 1)
    ]


def _gpus(environment: Mapping[str, str]) -> tuple[GpuMemory, ...]:
    """Return the memory of the GPUs as it is now; a driver that does not answer is not to cost us the report."""
    from safe_vllm.machine.gpu_memory import gpu_memory

    found: Callable[[], tuple[GpuMemory, ...] | None] = partial(gpu_memory, environment)
    return within(GPUS_WITHIN_S, found) or ()
