"""Output made short for people: runs of lines that differ in figures alone, and without the addresses of clients."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from safe_vllm.record.incident import LogLine

LEAST = 4
"""So many lines alike are a run; of it the first and the last are shown."""
_CLIENT = re.compile(r"(INFO:\s+)\S+:\d+( - \")")
_FIGURES = re.compile(r"\d+")
_BAR = re.compile(r"\|[^|]*\|")


def without_clients(text: str) -> str:
    """Return a line of output without the address of a client, where it is one of the access log."""
    return _CLIENT.sub(r"\1client\2", text)


def collapsed(lines: Sequence[LogLine], kept: Collection[int]) -> tuple[LogLine, ...]:
    """Return the lines with one for each run of lines alike, but for those with the numbers in ``kept``."""
    shown = [replace(line, text=without_clients(line.text)) for line in lines]
    return tuple(line for _, run in groupby(shown, lambda line: _shape(line, kept)) for line in _run(list(run)))


def _shape(line: LogLine, kept: Collection[int]) -> object:
    return line.line if line.line in kept else _FIGURES.sub("0", _BAR.sub("||", line.text))


def _run(run: list[LogLine]) -> Iterator[LogLine]:
    first, last = run[0], run[-1]
    yield from run if len(run) < LEAST else (replace(first, alike=len(run) - 2), last)
