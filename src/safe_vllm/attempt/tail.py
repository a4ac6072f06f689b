"""A bounded copy of one attempt's output, for the report on its end. Pure.

While the server lives this is only a queue of chunks; lines are made of them when somebody asks.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from safe_vllm.printable import without_controls
from safe_vllm.verdict.lines import clean
from safe_vllm.verdict.scan import Stream

LIMIT_BYTES = 256 * 1024
MOST_PIECES = 4096
"""Where two streams take turns byte by byte, it is the pieces that take the memory."""
SMALL_BYTES = 4096
"""Smaller chunks of one stream become one piece."""
PIECE_BYTES = 64 * 1024
"""Larger chunks become several."""
BEFORE_LINES = 100
BEFORE_BYTES = 64 * 1024
AFTER_LINES = 200
AFTER_BYTES = 64 * 1024
LAST_MARKS = 3
"""So many of the last places are kept, besides the first."""

REPLACED = "\ufffd"
"""Stands for what is not for the eye, as for bytes that are no text."""
# A bar of tqdm's or pip's, and nothing behind it: another process may have written into the same line.
# Where it begins is looked for once a line: a row of digits or of bars must not be held against itself.
_TQDM = re.compile(r"\d%\||(?<!\w)[^\W\d]*\d\w* \[\d\d:\d\d")
_PIP = re.compile(r".*[━╸╺]{3}", re.DOTALL)
_LETTER = re.compile(r"[A-Za-z]")


class Line(NamedTuple):
    """One line of output."""

    number: int
    """Its place among all lines of the attempt, both streams together, from 1."""
    text: str
    """Without colours; where a bar was redrawn, its last state. As long as it was: secrets are looked for before it is
    shortened, or half of one could stay."""


@dataclass(slots=True)
class _Piece:
    stream: Stream
    data: bytes | bytearray


@dataclass
class _Pieces:
    """The last of what came, in order."""

    limit_bytes: int
    first: int = 1
    """The number of the line that the first piece begins in, or goes on with."""
    is_cut: bool = False
    """Whether something before it was dropped."""
    size: int = 0
    all: deque[_Piece] = field(default_factory=deque)

    def add(self, stream: Stream, chunk: bytes) -> None:
        last = self.all[-1] if self.all else None
        if last and last.stream == stream and len(last.data) + len(chunk) <= SMALL_BYTES:
            last.data += chunk
        else:
            self.all.append(_Piece(stream, chunk if len(chunk) > SMALL_BYTES else bytearray(chunk)))
        self.size += len(chunk)
        while self.size - len(self.all[0].data) >= self.limit_bytes or len(self.all) > MOST_PIECES:
            self._drop(len(self.all[0].data))

    def trimmed(self, limit_bytes: int) -> _Pieces:
        """Return a copy with exactly the last ``limit_bytes``, however they came."""
        pieces = deque(_Piece(piece.stream, piece.data[:]) for piece in self.all)
        copy = _Pieces(limit_bytes, self.first, self.is_cut, self.size, pieces)
        while copy.size > limit_bytes:
            copy._drop(min(len(copy.all[0].data), copy.size - limit_bytes))
        return copy

    def _drop(self, count: int) -> None:
        piece = self.all[0]
        self.first += piece.data.count(b"\n", 0, count)
        self.size -= count
        self.is_cut = True
        if count == len(piece.data):
            self.all.popleft()
        else:
            piece.data = piece.data[count:]

    def lines(self, *, with_open: bool = True) -> Iterator[Line]:
        """Yield the lines in the order in which they ended, then what has not ended.

        What is left of a line that began before is left out: half a secret is not to be recognised.
        """
        number, parts = self.first, dict[Stream, bytearray]()
        rests: set[Stream] = {"stdout", "stderr"} if self.is_cut else set()
        for piece in self.all:
            *ended, open_part = piece.data.split(b"\n")
            for part in ended:
                whole = parts.pop(piece.stream, bytearray()) + part
                yield from () if piece.stream in rests else _shown(number, whole)
                rests.discard(piece.stream)
                number += 1
            parts[piece.stream] = parts.pop(piece.stream, bytearray()) + open_part
        for stream, part in parts.items():
            yield from () if stream in rests or not (with_open and part) else _shown(number, part)


@dataclass
class _Place:
    """What stood around one line: a copy that takes in what follows until it has enough."""

    number: int
    pieces: _Pieces
    room: int = AFTER_BYTES

    def add(self, stream: Stream, chunk: bytes) -> None:
        if self.room > 0:
            self.pieces.add(stream, chunk)
            self.room -= len(chunk)

    def holds(self, number: int) -> bool:
        return self.number <= number <= self.number + AFTER_LINES

    def lines(self, number: int) -> tuple[Line, ...]:
        return around(self.pieces.lines(with_open=self.room > 0), number)


class Tail:
    """The end of the output, and what stood around the first lines that name a fault, and the last."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        """Be ready to show the last ``limit_bytes``."""
        self._limit_bytes = limit_bytes
        # A mark comes after its chunk, and one chunk may be as long as what is shown.
        self._pieces = _Pieces(limit_bytes + BEFORE_BYTES)
        self._first: _Place | None = None
        self._last: deque[_Place] = deque(maxlen=LAST_MARKS)

    def feed(self, stream: Stream, chunk: bytes) -> None:
        """Take the next chunk of a stream."""
        if len(chunk) > PIECE_BYTES:
            for at in range(0, len(chunk), PIECE_BYTES):
                self._feed(stream, chunk[at : at + PIECE_BYTES])
        elif chunk:
            self._feed(stream, chunk)

    def _feed(self, stream: Stream, chunk: bytes) -> None:
        self._pieces.add(stream, chunk)
        for place in self._places():
            place.add(stream, chunk)

    def mark(self, number: int) -> None:
        """Keep what stands around the line with this number, which was fed just now."""
        if any(place.room > 0 and place.holds(number) for place in self._places()):
            return
        pieces = self._pieces.trimmed(self._pieces.limit_bytes)
        pieces.limit_bytes += AFTER_BYTES + PIECE_BYTES
        place = _Place(number, pieces)
        if self._first is None:
            self._first = place
        else:
            self._last.append(place)

    def _places(self) -> Iterator[_Place]:
        if self._first:
            yield self._first
        yield from self._last

    def last_lines(self) -> tuple[Line, ...]:
        """Return the end of the output."""
        return tuple(self._pieces.trimmed(self._limit_bytes).lines())

    def lines_around(self, number: int) -> tuple[Line, ...]:
        """Return what stood around a line: of a marked place, else of the end; nothing where it is gone."""
        found = (place.lines(number) for place in self._places() if place.holds(number))
        return next(filter(None, found), None) or around(self.last_lines(), number)


def around(lines: Iterable[Line], number: int) -> tuple[Line, ...]:
    """Return the lines around the one with this number, without it nothing; fewer where they are long."""
    before: deque[Line] = deque(maxlen=BEFORE_LINES)
    rest = iter(lines)
    for line in rest:
        if line.number == number:
            after = _within(islice(rest, AFTER_LINES), AFTER_BYTES)
            return (*_within(reversed(before), BEFORE_BYTES)[::-1], line, *after)
        before.append(line)
    return ()


def _within(lines: Iterable[Line], limit: int) -> list[Line]:
    kept, size = [], 0
    for line in lines:
        size += len(line.text)
        if size > limit:
            break
        kept.append(line)
    return kept


def _shown(number: int, line: bytearray) -> Iterator[Line]:
    """Yield what a terminal would show in the end, and what it would not because a bar was drawn over it."""
    states = [text for part in bytes(line).split(b"\r") if (text := without_controls(clean(part), REPLACED).rstrip())]
    for at, text in enumerate(states):
        if at == len(states) - 1 or not _is_bar(text):
            yield Line(number, text)
    if not states and not line.strip(b"\r"):
        yield Line(number, "")


def _is_bar(text: str) -> bool:
    """Return whether a text, which does not end in a space, ends in a bar."""
    if text.endswith("]") and _TQDM.search(text, text.rfind("]", 0, -1) + 1):
        return True
    found = _PIP.match(text)
    last_word = text.split()[-1]
    return found is not None and not _LETTER.search(text, found.end(), len(text) - len(last_word))
