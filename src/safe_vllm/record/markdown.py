"""Markdown for text that others wrote: whatever it holds, it is shown and does nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

_SAYS_ONLY = re.compile(r"[^<>@#*`\[\]|~\\&$\n]*")
"""Text without anything that Markdown or GitHub takes for more than text; within a word, ``_`` is none."""


def said(text: str) -> str:
    """Return a sentence, as code where it could be taken for more."""
    return text if _SAYS_ONLY.fullmatch(text) and not re.search(r"(?<!\w)_|_(?!\w)", text) else code(text)


def code(text: str) -> str:
    """Return text as code within a line."""
    line = " ".join(text.split("\n"))
    ticks = "`" * (_longest_run(line) + 1)
    return f"{ticks} {line} {ticks}" if line.startswith("`") or line.endswith("`") else f"{ticks}{line or ' '}{ticks}"


def block(lines: Sequence[str], language: str = "text") -> list[str]:
    """Return lines as a block of code."""
    fence = "`" * max(3, _longest_run("\n".join(lines)) + 1)
    return [f"{fence}{language}", *lines, fence]


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Return a block of code that is closed until somebody opens it."""
    return ["<details>", f"<summary>{escape(title)}</summary>", "", *block(lines), "", "</details>"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table; an empty one is nothing."""
    body = [_row([cell.replace("|", "\\|") for cell in row]) for row in rows]
    return [_row(head), _row(["---"] * len(head)), *body] if rows else []


def section(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield a heading and what is below it; nothing where nothing is."""
    if lines:
        yield from ("", f"## {title}", "", *lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
