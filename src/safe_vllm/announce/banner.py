"""The sentences that ``serve`` says, as plain lines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from safe_vllm.announce.gate_lines import UNSEEN
from safe_vllm.machine.facts import Installation
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.plan.explain import difference, ladder_line, variable_line
from safe_vllm.plan.ladder import Plan, Rung
from safe_vllm.plan.secrets import hide
from safe_vllm.verdict.evidence import Evidence, Observations, Verdict, signal_name

TEXT_LIMIT = 300
"""Characters of a quoted line. Some of vLLM's are thousands long."""
TELLING = 40
"""So many characters at the end of a line tell whether a sentence already holds it."""
AVOIDS = "it avoids a known"
"""So begins the reason for a rung that a known fault leads to."""
OUTPUT = "this attempt's output"
LINES_LIMIT = 8
"""Lines of evidence in an event: the root and what came of it."""


def opening(plan: Plan, vllm_version: str | None) -> list[str]:
    """Say what will be run and what comes after it."""
    first = plan.observed or plan.ladder.rungs[plan.entry]
    lines = [
        f"vLLM {vllm_version or '(version unknown)'}, profile {plan.profile} ({plan.because})",
        f"ladder: {ladder_line(plan.ladder, plan.entry)}",
        *([plan.entry_because] if plan.entry_because else []),
        *([f"caches: those in {plan.caches}, with which {first.name} held"] if plan.caches else []),
        *(["observed only: vLLM runs as it was typed, and nothing is changed or ended"] if plan.observed else []),
    ]
    lines += [f"{first.name} sets {variable_line(name, value, plan.unread)}" for name, value in first.environment]
    return lines + list(plan.notes)


def opening_facts(plan: Plan, vllm: Sequence[str], installation: Installation) -> dict[str, object]:
    """Return the same as an event holds it, with the first command as far as it may be shown."""
    first = plan.observed or plan.ladder.rungs[plan.entry]
    return {
        "profile": plan.profile,
        "ladder": [rung.name for rung in plan.ladder.rungs],
        "entry": first.name,
        "because": plan.entry_because,
        "fixed_in": list(plan.fixed_in),
        "argv": list(hide((*vllm, "serve", *first.words))),
        "versions": {"vllm": installation.vllm, "flashinfer": installation.flashinfer, "torch": installation.torch},
    }


def forget(fingerprint: str, state_dir: str | None) -> str:
    """Return the command that drops what is remembered of one fingerprint."""
    return shlex.join(("safe-vllm", *(("--state-dir", state_dir) if state_dir else ()), "forget", fingerprint))


def way_back(plan: Plan, start_at: str | None) -> str | None:
    """Return how to come back to the first rung of a launch that does not start there; ``None``: as after any step."""
    if not plan.entry:
        return None
    if start_at:
        return "stop, and start without --start-at"
    first, names = plan.ladder.rungs[plan.entry], [rung.name for rung in plan.ladder.rungs]
    is_known = (first.because or "").startswith(AVOIDS)
    return f"upgrade, or try it with --start-at {names[0]}" if is_known else None


def taken(place: Endpoint, holder: str | None, command: str | None, *, is_late: bool = False) -> list[str]:
    """Say that somebody else already answers where vLLM shall, and who that is as far as it can be seen.

    ``is_late``: since vLLM was started, so that it may still get there.
    """
    where, way_out = (place.uds, "--uds") if place.uds else (f"{place.host}:{place.port}", "--port")
    return [
        f"somebody already answers at {where}: {holder or UNSEEN}; stop it, or give vLLM another {way_out}",
        *([f"  its command: {_shortened(command)}"] if command else []),
        "  this attempt is not ready: the answer is that of the other server"
        if is_late
        else "  this attempt is not asked whether it is ready: the answer would be that of the other server",
    ]


def ready(after_s: float, rung: Rung, note: str) -> list[str]:
    """Say that the server works."""
    return [f"ready after {after_s:.0f} s at rung {rung.name}" + (f" ({note})" if note else "")]


def would_end(why: str) -> list[str]:
    """Say that a server would be ended now, were it not only observed."""
    return [f"observed only: this server would be ended now, and another one started: {why}"]


def stopping(left_s: float) -> list[str]:
    """Say that a stop was asked for, and how long vLLM has for it, in seconds."""
    return [f"asked to stop: vLLM has {left_s:.0f} s to end; another signal hurries"]


def death(attempt: int, rung: Rung, seconds: float, observations: Observations, verdict: Verdict) -> list[str]:
    """Say what died, in which phase, and the line that says so."""
    lines = [
        f"attempt {attempt} at {rung.name} ended after {seconds:.0f} s: {verdict.reason}",
        f"  {named(verdict)}; {_ending(observations.leader_status)}",
    ]
    lines += [f"  {quoted(root, OUTPUT)}" for root in telling(verdict, 1) if root.text[-TELLING:] not in verdict.reason]
    return lines + [f"  what may help: {advice}" for advice in verdict.advice]


def _ending(status: int | None) -> str:
    if status is None:
        return "vLLM was ended by safe-vllm"
    return f"vLLM's exit status was {status}" if status >= 0 else f"vLLM was killed by {signal_name(-status)}"


def named(verdict: Verdict) -> str:
    """Return the fault, the phase, and what else is known: the suspect, and its backend or that of MoE layers."""
    parts = [f"fault {verdict.fault}", f"phase {verdict.phase}"]
    parts += [f"suspect {verdict.suspect}"] if verdict.suspect not in ("unknown", "none") else []
    kind = {"attention": "attention", "all-to-all": "all-to-all"}.get(verdict.suspect, "MoE")
    return ", ".join([*parts, f"{kind} backend {verdict.backend}"] if verdict.backend else parts)


def quoted(evidence: Evidence, place: str, limit: int = TEXT_LIMIT) -> str:
    """Return a line of vLLM's as we show it, and where it stands in ``place``."""
    return f"line {evidence.number} of {place}: {_shortened(evidence.text, limit)}"


def telling(verdict: Verdict, limit: int) -> list[Evidence]:
    """Return the first lines that a verdict rests on, the root before what came of it."""
    return [found for found in verdict.evidence if found.kind in ("root", "echo")][:limit]


def shown(verdict: Verdict) -> list[dict[str, object]]:
    """Return the lines that a verdict rests on, as an event holds them."""
    lines = telling(verdict, LINES_LIMIT)
    return [{"line": found.number, "text": _shortened(found.text), "kind": found.kind} for found in lines]


def _shortened(text: str, limit: int = TEXT_LIMIT) -> str:
    return text if len(text) <= limit else text[:limit] + "..."


def step(attempt: int, before: Rung, after: Rung, pause_s: float, reason: str, unread: frozenset[str]) -> list[str]:
    """Say what is tried next, and what is different about it."""
    when = f"in {pause_s:.0f} s" if pause_s >= 1 else "now"
    changes = [f"  {line}" for line in difference(before, after, unread)]
    if before.name == after.name:
        return [f"attempt {attempt} starts {when} at {after.name} again: {reason}", *changes]
    return [f"attempt {attempt} starts {when} at {after.name}; what changes:", *changes]


def in_full(reason: str, advice: Sequence[str]) -> str:
    """Return why a launch ended, and what may help."""
    return f"{reason}; what may help: {'; '.join(advice)}" if advice else reason


def closing(status: int, reason: str) -> list[str]:
    """Say how the launch ended."""
    return [f"ended with status {status}: {reason}"]
