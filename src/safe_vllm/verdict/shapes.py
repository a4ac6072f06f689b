"""Reading a line no more than once, nor those that differ from it in figures alone.

A server in trouble prints one line a million times, with another time, request or percentage in it. What such a line
shows does not depend on its figures, unless a signature that names figures might fit it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from safe_vllm.verdict.lines import Record, clean, split
from safe_vllm.verdict.signatures import Match, Signature, Signatures

Shown = tuple[tuple[Record, Match | None], ...]
"""The records of a line, and what each shows."""

_LONGEST_BYTES = 512
_MOST = 1024
_BYTES = bytes.maketrans(b"123456789", b"000000000")
_TEXT = str.maketrans("123456789", "000000000")
_COUNTS = re.compile(r"\{\d*,?\d*\}")


class Shapes:
    """What lines of each shape show; the shape of a line is all of it but its figures."""

    def __init__(self, signatures: Signatures) -> None:
        """Find out which signatures depend on figures."""
        self._figured = tuple(text.translate(_TEXT) for s in signatures.all if _names_figures(s) for text in s.any)
        self._shown: dict[bytes, Shown | None] = {}
        """By shape; ``None`` where it takes more than the shape to tell."""
        self._told: dict[bytes, Shown] = {}
        """By line."""

    def read(self, line: bytes, known: Signatures, is_idle: Callable[[Signature], bool]) -> Shown:
        """Return what ``line`` shows, as ``known`` tells.

        Where all that it shows ``is_idle``, so that nobody looks at the text, the records may be those of another line
        of its shape, and only those that show something.
        """
        if len(line) > _LONGEST_BYTES:
            return _read(line, known)
        shape = line.translate(_BYTES)
        shown = self._shown.get(shape)
        if shown is not None and all(match is None or is_idle(match.signature) for _, match in shown):
            return shown
        told = self._told.get(line)
        if told is None:
            told = self._told[line] = _read(line, known)
        if shape not in self._shown:
            is_same = self._is_same_for_all(shape, told)
            self._shown[shape] = tuple(pair for pair in told if pair[1]) if is_same else None
        if len(self._told) > _MOST:
            self._told.clear()
        if len(self._shown) > _MOST:
            self._shown.clear()
        return told

    def _is_same_for_all(self, shape: bytes, told: Shown) -> bool:
        """Whether all lines of this shape show the same. What is calm may be an answer, which its figures tell."""
        text = clean(shape)
        if text.startswith("{") or any(record.is_calm for record, _ in told):
            return False
        return not any(figured in text for figured in self._figured)


def _read(line: bytes, known: Signatures) -> Shown:
    return tuple((record, known.match(record)) for record in split(clean(line), known.quotes))


def _names_figures(signature: Signature) -> bool:
    """Whether other figures may make another line of it, or another value be read from it."""
    pattern = signature.pattern or ""
    words = (*signature.any, *signature.unless, _COUNTS.sub("", pattern))
    return "(?P<" in pattern or any(figure in word for word in words for figure in "0123456789")
