"""Taking a log out of what stored it: Docker's json-file, a container runtime's file, the journal as JSON."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

import msgspec

_LOOK_BYTES = 65536
# a container runtime's file: time, stream, whether the line ends here (F) or goes on in the next entry (P)
_CRI = re.compile(rb"\d{4}-\d\d-\d\dT[\d:]{8}\S* (?:stdout|stderr) ([FP]) ")


class _Entry(msgspec.Struct):
    """One JSON line: ``log`` is Docker's, ``MESSAGE`` the journal's (bytes as numbers where it is not text)."""

    log: str | None = None
    journal: str | list[int] | None = msgspec.field(default=None, name="MESSAGE")


_DECODER = msgspec.json.Decoder(_Entry)


def unwrapped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the log that ``chunks`` hold, whatever stored it. A plain log passes as it is."""
    source = _as_utf8(iter(chunks))
    first = next(source, b"")
    while first.count(b"\n") < 2 and len(first) < _LOOK_BYTES and (more := next(source, b"")):
        first += more
    if not _is_wrapped(first.lstrip().split(b"\n", 1)[0]):
        yield first
        yield from source
        return
    rest = b""
    for chunk in _chain(first, source):
        *lines, rest = (rest + chunk).split(b"\n")
        yield b"".join(map(_unwrapped_line, lines))
    yield _unwrapped_line(rest) if rest else b""


def _as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same text in UTF-8: what a Windows shell redirects to a file is UTF-16, and begins by saying so."""
    first = next(chunks, b"")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
        yield from (decoder.decode(chunk).encode("utf-8", "replace") for chunk in _chain(first, chunks))
        return
    yield from _chain(first.removeprefix(codecs.BOM_UTF8), chunks)


def _chain(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _is_wrapped(line: bytes) -> bool:
    return bool(_CRI.match(line)) or _text_of(line) is not None


def _unwrapped_line(line: bytes) -> bytes:
    if found := _CRI.match(line):
        return line[found.end() :] + (b"\n" if found[1] == b"F" else b"")
    text = _text_of(line)
    return line + b"\n" if text is None else text


def _text_of(line: bytes) -> bytes | None:
    """Return what a JSON entry says; an entry of Docker's ends its line itself, one of the journal is a line."""
    if not line.startswith(b"{"):
        return None
    try:
        entry = _DECODER.decode(line)
    except msgspec.DecodeError:
        return None
    if entry.log is not None:
        return entry.log.encode(errors="surrogatepass")
    if isinstance(entry.journal, list):
        return bytes(number & 255 for number in entry.journal) + b"\n"
    return None if entry.journal is None else entry.journal.encode(errors="surrogatepass") + b"\n"
