"""Makes a report short enough to be pasted: an issue on GitHub takes 65,536 characters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from safe_vllm.record.incident import Incident, LogLine, StackOf
from safe_vllm.record.incident_collapse import collapsed, without_clients

LINE_CHARACTERS = 600
AROUND_CHARACTERS = 18_000
TAIL_CHARACTERS = 10_000
STACKS_CHARACTERS = 14_000
COMMAND_CHARACTERS = 10_000
LEAST_STACK_CHARACTERS = 800
BEFORE_SHARE = 0.4
"""Of what is shown around the root line."""
CUT = "…"
MOST_LINES = 8
"""Of evidence: the root, and what came of it."""
MOST_ROWS = 40
ROW_CHARACTERS = 300
FEWEST_CHARACTERS = 60
"""Of a text that is cut."""

T = TypeVar("T")


def shortened(incident: Incident, share: float = 1.0) -> Incident:
    """Return the report with as much of the output and the stacks as fits. ``share`` makes it still shorter."""
    telling = {line.line for line in incident.death.evidence}
    incident = replace(incident, around=collapsed(incident.around, telling))
    around = _around(incident, int(AROUND_CHARACTERS * share))
    last = around[-1].line if around else 0
    tail = collapsed([line for line in incident.tail if line.line > last], telling)
    command, following = _commands(incident, int(COMMAND_CHARACTERS * share))
    rest = _bounded(_fewer(incident), max(FEWEST_CHARACTERS, int(ROW_CHARACTERS * share)))
    evidence = _bounded(incident.death.evidence[:MOST_LINES], LINE_CHARACTERS)
    return replace(
        rest,
        command=command,
        sequel=replace(rest.sequel, command=following),
        death=replace(
            rest.death,
            reason=cut(incident.death.reason),
            evidence=tuple(
                replace(short, text=cut(without_clients(whole.text)))
                for short, whole in zip(evidence, incident.death.evidence, strict=False)
            ),
        ),
        stacks=_stacks(incident.stacks, int(STACKS_CHARACTERS * share)),
        around=around,
        tail=tuple(_fitting(reversed(tail), int(TAIL_CHARACTERS * share))[::-1]),
    )


def _commands(incident: Incident, limit: int) -> tuple[str, str | None]:
    following = incident.sequel.command
    return cut(incident.command, limit), following if following is None else cut(following, limit)


def _fewer(incident: Incident) -> Incident:
    """Return the report with no more rows than somebody reads, and without what is shortened in ways of its own."""
    return replace(
        incident,
        command="",
        sequel=replace(incident.sequel, command=None),
        environment=incident.environment[: 2 * MOST_ROWS],
        xid=incident.xid[:MOST_LINES],
        xid_notes=incident.xid_notes[:MOST_LINES],
        history=incident.history[-MOST_ROWS:],
        stacks=(),
        around=(),
        tail=(),
    )


def _bounded(value: T, limit: int) -> T:
    """Return a value with no text in it longer than ``limit``, and no row of it with too many."""
    if isinstance(value, str):
        return cut(value, limit)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(_bounded(each, limit) for each in value[: 2 * MOST_ROWS])  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _bounded(getattr(value, each.name), limit) for each in fields(value)})
    return value


def cut(text: str, limit: int = LINE_CHARACTERS) -> str:
    """Return a text of at most ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + CUT


def _around(incident: Incident, limit: int) -> tuple[LogLine, ...]:
    """Return the lines nearest to the root line: what came before it tells less than what follows."""
    root = incident.root.line if incident.root else 0
    before = [line for line in incident.around if line.line < root]
    kept = _fitting(reversed(before), int(limit * BEFORE_SHARE))[::-1]
    left = limit - sum(len(line.text) + 1 for line in kept)
    return (*kept, *_fitting((line for line in incident.around if line.line >= root), left))


def _fitting(lines: Iterable[LogLine], limit: int) -> list[LogLine]:
    kept = []
    for line in lines:
        short = replace(line, text=cut(line.text))
        limit -= len(short.text) + 10  # its number, and the end of the line
        if limit < 0:
            break
        kept.append(short)
    return kept


def _stacks(stacks: Sequence[StackOf], limit: int) -> tuple[StackOf, ...]:
    """Return the first stacks, each with its innermost frames: where one process stands, others mostly wait."""
    each = max(LEAST_STACK_CHARACTERS, limit // max(1, len(stacks)))
    return tuple(replace(stack, text=cut(stack.text, each)) for stack in stacks[: max(1, limit // each)])


def shortest(incident: Incident, size_of: Callable[[Incident], int], limit: int) -> Incident:
    """Return the report as long as it may be for its text to have ``limit`` characters, or as short as it gets."""
    for share in (1.0, 0.6, 0.3, 0.1, 0.03):
        short = shortened(incident, share)
        if size_of(short) <= limit:
            return short
    return short
