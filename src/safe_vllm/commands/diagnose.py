"""The story of ``diagnose``: a log is read, observed, and judged as a death of a live server would be."""

from __future__ import annotations

import json
import shlex
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from safe_vllm import known
from safe_vllm.announce.diagnosis import Attempt, Diagnosis, as_lines, as_object
from safe_vllm.announce.rungs import without_effect
from safe_vllm.errors import Status, Trouble
from safe_vllm.machine import log_file
from safe_vllm.plan.ladder import RELIEVES
from safe_vllm.plan.running import Running
from safe_vllm.record import incidents
from safe_vllm.verdict.arguments import arguments, is_on_cpu
from safe_vllm.verdict.evidence import Verdict
from safe_vllm.verdict.in_effect import advised_with
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.lives import Life, lives
from safe_vllm.verdict.told_words import told_words
from safe_vllm.verdict.unwrap import unwrapped

MOST_ATTEMPTS = 32
"""Of a log that tells of more, the last are listed."""


def of(path: str | None, exit_status: int | None, on_progress: Callable[[int], None]) -> Diagnosis:
    """Return what a log tells; ``exit_status`` is how it ended. Raises Trouble when it cannot be read."""
    _raise_for_report(path)
    signatures = known.signatures()
    chunks = unwrapped(log_file.chunks(path, on_progress))
    attempts: deque[Attempt] = deque(maxlen=MOST_ATTEMPTS)
    failed: Attempt | None = None
    count = 0
    for count, life in enumerate(lives(chunks, exit_status, signatures), 1):
        attempt = _attempt(life, count)
        failed = attempt if attempt.has_failed else failed
        attempts.append(attempt)
    shown = failed or attempts[-1]
    roots = (found.signature for found in shown.verdict.evidence if found.kind == "root")
    sources = {name: link for name in roots if (link := signatures.link(name))}
    links = dict.fromkeys(link for link in (*sources.values(), *shown.verdict.links) if link)
    return Diagnosis(shown, tuple(attempts), count - len(attempts), tuple(links), sources)


def _raise_for_report(path: str | None) -> None:
    """Raise Trouble for the path that a launch tells of its report: that is a directory, and judged already."""
    with suppress(OSError):  # what may not be looked at is complained of by whoever reads it
        if path and incidents.at(Path(path)):
            hint = f"show it with `safe-vllm status {shlex.quote(path)}`"
            raise Trouble(f"{path} is a report and no log", hint=hint, status=Status.USAGE)


def told(diagnosis: Diagnosis, output: str) -> str:
    """Return the diagnosis as text or as one JSON object."""
    if output == "json":
        return json.dumps(as_object(diagnosis), ensure_ascii=False, indent=2)
    return "\n".join(as_lines(diagnosis, RELIEVES))


def _attempt(life: Life, count: int) -> Attempt:
    evidence, seen = life.observations.evidence, life.observations
    verdict = _judged(life, is_all=count == 1)
    useless = without_effect(arguments(evidence), is_on_cpu=is_on_cpu(evidence) or verdict.backend == "CPU")
    is_blank = count == 1 and not life.is_vllm and not seen.has_ended and verdict.fault == "none"
    return Attempt(life.number or count, life.rung, verdict, useless, is_blank)


def _advised(verdict: Verdict, life: Life) -> Verdict:
    """Return the verdict without advice that was in effect already, as far as the log tells what was."""
    words = told_words(life.observations.evidence)
    return verdict if words is None else advised_with(verdict, known.advice(), Running(words, {}))


def _judged(life: Life, *, is_all: bool) -> Verdict:
    """Return the verdict on a life. A log without a line of vLLM's gets one by rule, and says so."""
    verdict = _advised(judge(life.observations, known.advice()), life)
    if life.is_vllm or life.rung or not is_all or verdict.fault not in ("none", "unknown"):
        return verdict
    lines = f"{life.lines} {'line' if life.lines == 1 else 'lines'}"
    said = f"no line of vLLM's was recognised in {lines}" if life.lines else "the log is empty"
    status = life.observations.leader_status
    rest = "nothing can be said from it" if status is None else f"all that is known is the status {status}"
    return replace(verdict, reason=f"{said}; {rest}")
