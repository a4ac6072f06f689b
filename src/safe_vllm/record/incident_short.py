"""Makes a report short enough to be pasted: an issue on GitHub takes 65,536 characters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from safe_vllm.record.incident import Incident, LogLine, StackOf
from safe_vllm.record.incident_collapse import collapsed, without_clients

LINE_CHARACTERS = 600
AROUND_CHARACTERS = 18_000
TAIL_CHARACTERS = 10_000
STACKS_CHARACTERS = 14_000
LEAST_STACK_CHARACTERS = 800
BEFORE_SHARE = 0.4
"""Of what is shown around the root line."""
MOST_LINES = 8
"""Of evidence: the root, and what came of it."""
MOST_ROWS = 40
ROW_CHARACTERS = 300


def shortened(incident: Incident, share: float = 1.0) -> Incident:
    """Return the report with as much of the output and the stacks as fits. ``share`` makes it still shorter."""
    telling = {line.line for line in incident.death.evidence}
    incident = replace(incident, around=collapsed(incident.around, telling))
    around = _around(incident, int(AROUND_CHARACTERS * share))
    last = around[-1].line if around else 0
    tail = collapsed([line for line in incident.tail if line.line > last], telling)
    return replace(
        incident,
        death=replace(
            incident.death,
            evidence=tuple(
                replace(line, text=cut(without_clients(line.text))) for line in incident.death.evidence[:MOST_LINES]
            ),
        ),
        environment=tuple(
            replace(known, value=None if known.value is None else cut(known.value, ROW_CHARACTERS))
            for known in incident.environment[: 2 * MOST_ROWS]
        ),
        xid=tuple(cut(line, ROW_CHARACTERS) for line in incident.xid[:MOST_LINES]),
        xid_notes=tuple(cut(note, ROW_CHARACTERS) for note in incident.xid_notes[:MOST_LINES]),
        gpu_memory=incident.gpu_memory[:MOST_ROWS],
        ends=incident.ends[:MOST_ROWS],
        cores=incident.cores[:MOST_ROWS],
        history=incident.history[-MOST_ROWS:],
        stacks=_stacks(incident.stacks, int(STACKS_CHARACTERS * share)),
        around=around,
        tail=tuple(_fitting(reversed(tail), int(TAIL_CHARACTERS * share))[::-1]),
    )


def cut(text: str, limit: int = LINE_CHARACTERS) -> str:
    """Return a text of at most ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


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
    for share in (1.0, 0.6, 0.3, 0.1):
        short = shortened(incident, share)
        if size_of(short) <= limit:
            return short
    return short
