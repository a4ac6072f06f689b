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
_NEVER_CALM = ("root", "benign")
_OPENING = 8
_DIGITS = b"0123456789"


class Sieve:
    """What to look at, made of what there is to find."""

    def __init__(self, signatures: Signatures) -> None:
        """Prepare to find lines that may show one of ``signatures``."""
        calm = [(text, sig.needle) for sig in signatures.all if sig.kind not in _NEVER_CALM for text in sig.any]
        told = b"|".join(sorted({_opening(text, needle) for text, needle in calm}))
        # most messages differ in the first letter already, and need not be held against each opening
        letters = re.escape("".join(sorted({text[0] for text, _ in calm})).encode())
        opening = b"(?=[" + letters + b"])(?:" + told + b")" if calm else b"(?!)"
        self._is_ordinary = re.compile(_RECORD % {b"told": opening}).match
        self._words = [(needle, _longest_word(needle)) for needle in signatures.needles]

    def with_needles(self, lines: list[bytes]) -> tuple[set[int], tuple[bytes, ...]]:
        """Return the places of the ``lines`` that hold a needle, and these needles."""
        ordinary = self._is_ordinary
        left = [place for place, line in enumerate(lines) if not ordinary(line)]
        text = b"\n".join([lines[place] for place in left])
        needles = self._in_words(text) if left else ()
        found: set[int] = set()
        starts = [0, *accumulate(len(lines[place]) + 1 for place in left)] if needles else []
        for needle in needles:
            at = text.find(needle)
            while at >= 0:
                index = bisect_right(starts, at) - 1
                found.add(left[index])
                at = text.find(needle, starts[index + 1])
        return found, needles

    def _in_words(self, text: bytes) -> tuple[bytes, ...]:
        """Return the needles that may be in ``text``. Output repeats its words, but for figures."""
        # as text, because `in` costs a fifth of what it costs on bytes
        words = b" ".join(set(text.translate(None, _DIGITS).split())).decode("latin-1")
        return tuple(needle for needle, word in self._words if word in words)


def _longest_word(needle: bytes) -> str:
    return max(needle.translate(None, _DIGITS).split(), key=len).decode("latin-1")


def _opening(text: str, needle: str | None) -> bytes:
    """Return the pattern of a message that may begin with ``text`` and hold ``needle``."""
    opening = re.escape(text[:_OPENING].encode())
    return opening + b".*?" + re.escape(needle.encode()) if needle else opening


def of_activity(block: bytes, lines: list[bytes]) -> set[int]:
    """Return the places of the ``lines`` of ``block`` that tell of requests or tokens."""
    words = [word for word in _ACTIVITY if word in block]
    return {place for word in words for place, line in enumerate(lines) if word in line}


def lines_of(block: bytes) -> list[bytes]:
    """Return the lines of ``block`` that are not empty. A carriage return ends a line too."""
    return list(filter(None, block.replace(b"\r", b"\n").split(b"\n")))


def line_numbers(block: bytes) -> Sequence[int]:
    """Return for each of the ``lines_of`` a block how many line ends stand before it.

    A carriage return is not counted: a progress bar is one line, however often it is redrawn.
    """
    numbered = enumerate(block.split(b"\n"))
    if b"\r" not in block:
        return [number for number, line in numbered if line]
    return [number for number, line in numbered for part in line.split(b"\r") if part]
