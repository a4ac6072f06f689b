"""What ``diagnose`` says about a log: for people, and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from safe_vllm.announce.banner import quoted, telling
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
    TRITON: "add --moe-backend triton (vLLM 0.17 and later; NVFP4 weights: marlin)",
    LESS_PARALLEL: "put --tensor-parallel-size where --data-parallel-size was, on the same GPUs",
    NO_EXPERT_PARALLEL: "leave out --enable-expert-parallel",
}
"""What each rung means for someone who changes the command by hand."""
LINES_LIMIT = 6


def as_object(verdict: Verdict, links: Sequence[str]) -> dict[str, object]:
    """Return the verdict as one JSON object."""
    evidence = [{"line": found.number, "text": found.text, "kind": found.kind} for found in verdict.evidence]
    return {
        "fault": verdict.fault,
        "action": verdict.action,
        "phase": verdict.phase,
        "suspect": verdict.suspect,
        "backend": verdict.backend,
        "reason": verdict.reason,
        "evidence": evidence,
        "advice": list(verdict.advice),
        "exit_status": verdict.exit_status,
        "links": list(links),
    }


def as_lines(verdict: Verdict, relieves: Mapping[str, frozenset[str]], links: Sequence[str]) -> list[str]:
    """Return the verdict for people: the root line, what it means, what to change now, and which rung that is."""
    lines = [
        verdict.reason,
        f"fault {verdict.fault}, phase {verdict.phase}, suspect {verdict.suspect}, "
        f"MoE backend {verdict.backend or 'not named in the log'}",
    ]
    lines += [f"{found.kind}  {quoted(found)}" for found in telling(verdict, LINES_LIMIT)]
    lines += [f"what to do: {NOTHING if verdict.fault == 'stopped' else ACTIONS[verdict.action]}"]
    if verdict.action == "retry-safer":
        lines += _rungs(verdict.suspect, relieves)
    lines += [f"  {advice}" for advice in verdict.advice]
    return [*lines, *(f"see {link}" for link in links)]


def _rungs(suspect: str, relieves: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the steps in order; where the suspect is known, only those that are an answer to it."""
    known = [rung for rung in CHANGES if suspect in relieves[rung]]
    return [f"  {rung}: {CHANGES[rung]}" for rung in known or CHANGES]
