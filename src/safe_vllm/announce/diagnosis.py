"""What ``diagnose`` says about a log: for people, and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from safe_vllm.announce.banner import in_use, quoted, telling
from safe_vllm.plan.ladder import LESS_PARALLEL, NO_AUTOTUNE, NO_EXPERT_PARALLEL, TRITON
from safe_vllm.verdict.evidence import Verdict

NOTHING = "nothing: it was asked to stop"
ACTIONS = {
    "retry-safer": "start it again with safer settings",
    "retry-same": "start it again as it was; it may pass by itself",
    "stop": "do not start it again before this is changed",
    "none": "nothing needs to be done",
}
CHANGES = {
    NO_AUTOTUNE: "add --no-enable-flashinfer-autotune (vLLM 0.16 and later)",
    TRITON: "add --moe-backend triton (vLLM 0.17 and later; NVFP4 weights: cutlass or marlin)",
    LESS_PARALLEL: "put --tensor-parallel-size where --data-parallel-size was, on the same GPUs",
    NO_EXPERT_PARALLEL: "leave out --enable-expert-parallel",
}
"""What each rung means for someone who changes the command by hand."""
LINES_LIMIT = 6


@dataclass(frozen=True)
class Attempt:
    """One start of vLLM that a log tells of."""

    number: int
    rung: str | None
    verdict: Verdict

    @property
    def has_failed(self) -> bool:
        """Whether it ended, and nobody had asked for that."""
        return self.verdict.action != "none" and self.verdict.fault != "stopped"


@dataclass(frozen=True)
class Diagnosis:
    """What a log tells."""

    shown: Attempt
    """The last that failed, or the last."""
    attempts: tuple[Attempt, ...]
    """The last ones, in order."""
    left_out: int
    """How many came before these."""
    links: tuple[str, ...]
    """Where the cause and the advice are explained."""


def as_object(diagnosis: Diagnosis) -> dict[str, object]:
    """Return the diagnosis as one JSON object."""
    verdict = diagnosis.shown.verdict
    evidence = [{"line": found.number, "text": found.text, "kind": found.kind} for found in verdict.evidence]
    return {
        "fault": verdict.fault,
        "action": verdict.action,
        "phase": verdict.phase,
        "suspect": verdict.suspect,
        "backend": verdict.backend,
        "attention_backend": verdict.setup.attention_backend,
        "all2all_backend": verdict.setup.all2all_backend,
        "vllm": verdict.setup.vllm,
        "gpu": verdict.setup.gpu,
        "reason": verdict.reason,
        "evidence": evidence,
        "advice": list(verdict.advice),
        "exit_status": verdict.exit_status,
        "links": list(diagnosis.links),
        "attempts": [_as_entry(attempt) for attempt in diagnosis.attempts],
    }


def _as_entry(attempt: Attempt) -> dict[str, object]:
    verdict = attempt.verdict
    return {
        "attempt": attempt.number,
        "rung": attempt.rung,
        "fault": verdict.fault,
        "action": verdict.action,
        "phase": verdict.phase,
        "reason": verdict.reason,
    }


def as_lines(diagnosis: Diagnosis, relieves: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the diagnosis for people: the root line, what it means, what to change now, and which rung that is."""
    verdict = diagnosis.shown.verdict
    lines = [
        *_overview(diagnosis),
        verdict.reason,
        f"fault {verdict.fault}, phase {verdict.phase}, suspect {verdict.suspect}, {in_use(verdict)}",
    ]
    lines += [f"{found.kind}  {quoted(found, 'the log')}" for found in telling(verdict, LINES_LIMIT)]
    lines += [f"what to do: {NOTHING if verdict.fault == 'stopped' else ACTIONS[verdict.action]}"]
    if verdict.action == "retry-safer":
        lines += _rungs(verdict.suspect, relieves)
    lines += [f"  {advice}" for advice in verdict.advice]
    return [*lines, *(f"see {link}" for link in diagnosis.links)]


def _overview(diagnosis: Diagnosis) -> list[str]:
    """Return one line for each attempt, where there are several, and which of them the rest is about."""
    count = len(diagnosis.attempts) + diagnosis.left_out
    if count == 1:
        return []
    last, shown = diagnosis.attempts[-1], diagnosis.shown
    hidden = f", of which the last {len(diagnosis.attempts)} are listed" if diagnosis.left_out else ""
    lines = [f"the log tells of {count} starts of vLLM{hidden}"]
    lines += [f"  {_row(attempt)}" for attempt in diagnosis.attempts]
    if not shown.has_failed:
        return [*lines, "", f"none of them failed; the last, {shown.number}:"]
    if last is shown:
        return [*lines, "", f"the last, {shown.number}:"]
    return [*lines, "", f"the last start did not fail: {last.verdict.reason}", f"the last that failed, {shown.number}:"]


def _row(attempt: Attempt) -> str:
    verdict = attempt.verdict
    where = f" at {attempt.rung}" if attempt.rung else ""
    return f"{attempt.number}{where}: {verdict.fault}, phase {verdict.phase}, action {verdict.action}"


def _rungs(suspect: str, relieves: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the steps in order; where the suspect is known, only those that are an answer to it."""
    known = [rung for rung in CHANGES if suspect in relieves[rung]]
    return [f"  {rung}: {CHANGES[rung]}" for rung in known or CHANGES]
