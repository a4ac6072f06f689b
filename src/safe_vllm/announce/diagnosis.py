"""What ``diagnose`` says about a log: for people, and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from safe_vllm.announce.banner import named, quoted, telling
from safe_vllm.announce.rungs import CHANGES, fitting, says_the_same
from safe_vllm.verdict.evidence import Evidence, Verdict

NOTHING = "nothing: it was asked to stop"
BLANK = "nothing can be said from this log; give vLLM's whole output, or its --exit-status"
NO_RUNG = "no rung of safe-vllm changes anything for a server that is started so; look at the lines above"
PASSING = {
    "port-in-use": "free the port, then start it again; it may also pass by itself",
    "hub": "make the model hub reachable, then start it again; it may also pass by itself",
}
"""What may pass by itself, though no safer settings help."""
ACTIONS = {
    "retry-safer": "start it again with safer settings",
    "retry-same": "start it again as it was; it may pass by itself",
    "stop": "do not start it again before this is changed",
    "none": "nothing needs to be done",
}
LINES_LIMIT = 6
TEXT_LIMIT = 160
"""Characters of a line that people are shown; programs get more."""


@dataclass(frozen=True)
class Attempt:
    """One start of vLLM that a log tells of."""

    number: int
    rung: str | None
    verdict: Verdict
    useless: frozenset[str] = frozenset()
    """Rungs that change nothing for a server that is started so."""
    is_blank: bool = False
    """Whether nothing is known of it."""

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
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where the signatures of the lines shown are explained."""


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
    shown = diagnosis.shown
    verdict = shown.verdict
    rungs = fitting(verdict.suspect, relieves, shown.useless) if verdict.action == "retry-safer" else []
    lines = [*_overview(diagnosis), verdict.reason, named(verdict)]
    lines += [_line(found, diagnosis.sources) for found in telling(verdict, LINES_LIMIT)]
    return [*lines, f"what to do: {_to_do(shown, rungs)}", *(f"  {line}" for line in _changes(verdict, rungs))]


def _line(found: Evidence, sources: Mapping[str, str]) -> str:
    """Return a line of the log; a link into source code says where it is printed, and helps nobody here."""
    link = sources.get(found.signature) if found.kind == "root" else None
    return f"{found.kind}  {quoted(found, 'the log', TEXT_LIMIT)}{_see(None if link and '/blob/' in link else link)}"


def _to_do(shown: Attempt, rungs: list[str]) -> str:
    verdict = shown.verdict
    if shown.is_blank:
        return BLANK
    if verdict.fault == "stopped":
        return NOTHING
    if verdict.action == "stop" and verdict.fault in PASSING:
        return PASSING[verdict.fault]
    return NO_RUNG if verdict.action == "retry-safer" and not rungs else ACTIONS[verdict.action]


def _changes(verdict: Verdict, rungs: list[str]) -> list[str]:
    """Return the rungs, then the advice that is not already said by one of them; each with its link."""
    advice = list(zip(verdict.advice, verdict.links, strict=True))
    lines = []
    for rung in rungs:
        same = [told for told in advice if says_the_same(told[0], rung)]
        lines.append(f"{rung}: {CHANGES[rung]}{_see(same[0][1] if same else None)}")
        advice = [told for told in advice if told not in same]
    return lines + [f"{text}{_see(link)}" for text, link in advice]


def _see(link: str | None) -> str:
    return f"; see {link}" if link else ""


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
