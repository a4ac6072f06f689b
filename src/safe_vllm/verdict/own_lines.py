"""Reading what safe-vllm wrote between the lines of vLLM: no evidence, but it tells where attempts begin and end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from safe_vllm.verdict.ends import SIGNALS
from safe_vllm.verdict.evidence import FAULTS, PHASES, SUSPECTS, ProcessEnd
from safe_vllm.verdict.lines import after_wrapper

PREFIX = "safe-vllm: "
_NUMBERS = {name: number for number, name in SIGNALS.items()}


@dataclass(frozen=True)
class Note:
    """What one line of ours tells of an attempt. ``None`` and false: it does not tell."""

    begins: bool = False
    """Whether an attempt begins here."""
    closes: bool = False
    """Whether the launch ends here."""
    attempt: int | None = None
    rung: str | None = None
    fault: str | None = None
    phase: str | None = None
    suspect: str | None = None
    backend: str | None = None
    """Of MoE layers."""
    is_over: bool = False
    status: int | None = None
    """Of the leader, a signal as its negative number."""
    ends: tuple[ProcessEnd, ...] = ()
    ended_by_us: str | None = None
    canary_failed: bool = False
    stop_requested: bool = False


def note(text: str) -> Note | None:
    """Return what ``text`` tells, if it is a line of ours."""
    at = after_wrapper(text)
    if not text.startswith(PREFIX, at):
        return None
    said = text[at + len(PREFIX) :]
    if said.startswith('{"'):
        return _of_event(said)
    for pattern, tell in _SENTENCES:
        if found := pattern.match(said):
            return tell(found)
    return Note()


def _ended(found: re.Match[str]) -> Note:
    killed = re.match(r"(VLLM::\S+) was killed by (SIG[A-Z]+) ", found[3])
    ends = (ProcessEnd(killed[1], 0, -_NUMBERS[killed[2]]),) if killed and killed[2] in _NUMBERS else ()
    return Note(attempt=int(found[1]), rung=found[2], is_over=True, ends=ends)


def _how(found: re.Match[str]) -> Note:
    end = _by_us(found["fault"]) if found["by_us"] else _by_status(found["status"], found["signal"])
    return replace(end, backend=found["backend"], **_judged(found.groupdict()))


def _by_status(status: str | None, signal: str | None) -> Note:
    killed_by = _NUMBERS.get(signal or "")
    return Note(is_over=True, status=int(status) if status else -killed_by if killed_by else None)


def _by_us(fault: str) -> Note:
    return Note(is_over=True, ended_by_us="safe-vllm ended it", canary_failed=fault == "unknown")


def _judged(said: Mapping[str, object]) -> dict[str, Any]:
    """Return our own verdict, as far as it is in words of ours."""
    words = {"fault": FAULTS, "phase": frozenset(PHASES), "suspect": SUSPECTS}
    return {key: said[key] for key, known in words.items() if isinstance(said.get(key), str) and said[key] in known}


_SENTENCES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Note]], ...] = (
    (re.compile(r"vLLM .*, profile \S+ \("), lambda _: Note(begins=True, attempt=1)),
    (re.compile(r"attempt (\d+) at (\S+) ended after \d+ s: (.*)"), _ended),
    (
        re.compile(
            r"  fault (?P<fault>[\w-]+), phase (?P<phase>[\w-]+)(?:, suspect (?P<suspect>[\w-]+))?"
            r"(?:, (?:MoE backend (?:not named|(?P<backend>[^;]+))|[^;]*))?; "
            r"(?:vLLM's exit status was (?P<status>\d+)|vLLM was killed by (?P<signal>SIG\w+|signal \d+)"
            r"|vLLM was ended (?P<by_us>by safe-vllm))$"
        ),
        _how,
    ),
    (
        re.compile(r"attempt (\d+) starts (?:now|in \d+ s) at ([^\s;]+)"),
        lambda found: Note(begins=True, attempt=int(found[1]), rung=found[2]),
    ),
    (re.compile(r"ready after \d+ s at rung (\S+)"), lambda found: Note(rung=found[1], phase="serving")),
    (re.compile(r"asked to stop: "), lambda _: Note(stop_requested=True)),
    (re.compile(r"ended with status \d+: "), lambda _: Note(closes=True)),
)


def _of_event(said: str) -> Note:
    try:
        event: dict[str, Any] = json.loads(said)
    except (ValueError, RecursionError):
        return Note()
    name, attempt, rung = event.get("event"), event.get("attempt"), event.get("rung")
    attempt, rung = attempt if isinstance(attempt, int) else None, rung if isinstance(rung, str) else None
    if name == "launch-started":
        return Note(begins=True, attempt=1)
    if name in ("attempt-started", "step"):
        return Note(begins=True, attempt=attempt, rung=rung)
    if name == "attempt-ended":
        return _ended_event(event, attempt, rung)
    if name == "ready":
        return Note(attempt=attempt, rung=rung, phase="serving")
    return Note(rung=rung, closes=name == "launch-ended", stop_requested=name == "stop-asked")


def _ended_event(event: dict[str, Any], attempt: int | None, rung: str | None) -> Note:
    status, ended = event.get("status"), event.get("ended")
    by_us = _by_us(str(event.get("fault"))) if status is None else Note()
    return Note(
        attempt=attempt,
        rung=rung,
        is_over=True,
        status=status if isinstance(status, int) else None,
        ends=tuple(_end(end) for end in ended if isinstance(end, dict)) if isinstance(ended, list) else (),
        ended_by_us=by_us.ended_by_us,
        canary_failed=by_us.canary_failed,
        **_judged(event),
    )


def _end(end: dict[str, Any]) -> ProcessEnd:
    status = end.get("status")
    return ProcessEnd(str(end.get("title")), 0, status if isinstance(status, int) else None)
