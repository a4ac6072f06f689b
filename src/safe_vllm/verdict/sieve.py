"""Finding the few lines of a block that deserve a look.

Most of what a server prints are INFO records: access lines, requests, statistics. Each is dismissed by one anchored
match. What is left is joined and searched for needles with ``bytes.find``, which reads some gigabytes per second where
a regular expression with many branches reads some tens of megabytes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from safe_vllm.verdict.signatures import Signatures

_RECORD = (
    rb"(?:\([A-Za-z][\w.:=-]*(?: [\w.:=-]+){0,3}? pid=\d+\) )*(?:INFO|DEBUG)"
    rb"(?:: +(?! |%(told)s)| \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./<>-]+:\d+\] (?!%(told)s))"
)
# a busy server prints thousands of these: they are looked at only while it matters whether requests are answered
_ACTIVITY = (b'"POST ', b"generation throughput: ")
_CALM_START = 6


class Sieve:
    """What to look at, made of what there is to find."""

    def __init__(self, signatures: Signatures) -> None:
        """Prepare to find lines that may show one of ``signatures``."""
        starts = {s[:_CALM_START] for sig in signatures.all if sig.kind not in ("root", "benign") for s in sig.any}
        told = b"|".join(sorted(re.escape(start.encode()) for start in starts))
        self._is_ordinary = re.compile(_RECORD % {b"told": told}).match
        self._needles = signatures.needles

    def with_needles(self, lines: list[bytes]) -> list[int]:
        """Return the places of the ``lines`` that hold a needle."""
        ordinary = self._is_ordinary
        left = [place for place, line in enumerate(lines) if not ordinary(line)]
        text = b"\n".join([lines[place] for place in left])
        found: set[int] = set()
        starts: list[int] = []
        for needle in self._needles:
            at = text.find(needle)
            while at >= 0:
                starts = starts or [0, *accumulate(len(lines[place]) + 1 for place in left)]
                index = bisect_right(starts, at) - 1
                found.add(left[index])
                at = text.find(needle, starts[index + 1])
        return sorted(found)


def of_activity(lines: list[bytes]) -> list[int]:
    """Return the places of the ``lines`` that tell of requests or tokens."""
    return [place for place, line in enumerate(lines) if any(word in line for word in _ACTIVITY)]


def apart(block: bytes) -> tuple[list[bytes], Sequence[int]]:
    """Return the lines of ``block``, and for each how many line ends stand before it.

    A carriage return ends a line too, but is not counted: a progress bar is one line, however often it is redrawn.
    """
    lines = block.split(b"\n")
    if b"\r" not in block:
        return lines, range(len(lines))
    parts = [line.split(b"\r") for line in lines]
    return [part for line in parts for part in line], [n for n, line in enumerate(parts) for _ in line]
