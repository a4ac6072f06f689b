"""Taking a log out of what stored it: JSON lines, a container runtime's file, or the same front before every line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

_LOOK_BYTES = 65536
_CUT_BYTES = 16384
# a container runtime's file: time, stream, whether the line ends here (F) or goes on in the next entry (P)
_CRI = re.compile(rb"\d{4}-\d\d-\d\dT[\d:]{8}\S* (?:stdout|stderr) ([FP]) ")


# what stands before every line of a log that was taken out of a store: a line in the middle of a traceback shows it as
# well, and nothing of vLLM's own by which to tell where it begins
_FRONTS = tuple(
    re.compile(front)
    for front in (
        rb"[\w.@-]+ +\| ",
        rb"\[pod/[\w./-]+\] ",
        rb"[a-z0-9]+(?:[.-][a-z0-9]+)+ (?:\xe2\x80\xba )?[a-z0-9][a-z0-9-]* ",
        rb"\d{4}-\d\d-\d\dT[\d:]{8}[.,\d]*(?:Z|[+-]\d\d:?\d\d) (?! *[A-Z]+ [\w.:]+: )",
        rb"\[\d{4}-\d\d-\d\d[ T][\d:]{8}[.,\d]*Z?\]:? ",
        rb"[A-Z][a-z]{2} [ \d]\d [\d:]{8}[.\d]* (?![\w.-]+ [\w.@/-]+(?:\[\d+\])?: )",
        rb"(?:[\w./-]+[:-])?\d+[:-]",
    )
)
# by which one knows that what is left is vLLM's
_RECORD = re.compile(
    rb"\([A-Za-z][\w.:= -]* pid=\d+[,)]|(?:DEBUG|INFO|WARNING|ERROR)(?: \d\d-\d\d |: {2,5}\S)|safe-vllm: "
)
_MOST_FRONTS = 3
_FEWEST_LINES = 3


class _Entry(msgspec.Struct):
    """One JSON line: ``log`` is Docker's and Fluent Bit's, ``MESSAGE`` the journal's (numbers where it is not text).

    ``textPayload`` is Google Cloud's, ``line`` Loki's. A formatter's own record has a message, and is left as it is.
    """

    log: str | None = None
    _p: str | None = None
    cloud: str | None = msgspec.field(default=None, name="textPayload")
    line: str | int | None = None
    message: object = None
    msg: object = None
    journal: str | list[int] | None = msgspec.field(default=None, name="MESSAGE")


_DECODER = msgspec.json.Decoder(_Entry)


def unwrapped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the log that ``chunks`` hold, whatever stored it. A plain log passes as it is."""
    source = _as_utf8(iter(chunks))
    first = next(source, b"")
    while first.count(b"\n") < 2 and len(first) < _LOOK_BYTES and (more := next(source, b"")):
        first += more
    if _is_wrapped(first.lstrip().split(b"\n", 1)[0]):
        yield from _by_line(_chain(first, source), _unwrapped_line)
    else:
        yield from _without_fronts(_chain(first, source), _MOST_FRONTS)


def _without_fronts(chunks: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield the log without what stands before each of its lines, one store's front behind the other's."""
    first = next(chunks, b"")
    front = _front(first) if most else None
    if front is None:
        yield first
        yield from chunks
        return
    lines = _by_line(_chain(first, chunks), lambda line: _behind(front, line) + b"\n")
    yield from _without_fronts(lines, most - 1)


def _front(block: bytes) -> re.Pattern[bytes] | None:
    lines = [line for line in block[:_LOOK_BYTES].split(b"\n")[:-1] if line.strip()]
    return next((front for front in _FRONTS if len(lines) >= _FEWEST_LINES and _is_before(front, lines)), None)


def _is_before(front: re.Pattern[bytes], lines: list[bytes]) -> bool:
    """Whether ``front`` stands before all ``lines``, and vLLM's words or another front behind it."""
    if not all(map(front.match, lines)):
        return False
    rest = [_behind(front, line) for line in lines]
    return any(map(_RECORD.match, rest)) or any(all(map(other.match, rest)) for other in _FRONTS)


def _behind(front: re.Pattern[bytes], line: bytes) -> bytes:
    found = front.match(line)
    return line[found.end() :] if found else line


def _by_line(chunks: Iterable[bytes], change: Callable[[bytes], bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield b"".join(map(change, lines))
    yield change(rest) if rest else b""


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
        return _ended(entry.log.encode(errors="surrogatepass"), is_whole=entry._p != "P")
    if isinstance(said := entry.cloud or _said_by_loki(entry), str):
        return said.encode(errors="surrogatepass") + b"\n"
    if isinstance(entry.journal, list):
        return bytes(number & 255 for number in entry.journal) + b"\n"
    return None if entry.journal is None else entry.journal.encode(errors="surrogatepass") + b"\n"


def _said_by_loki(entry: _Entry) -> str | int | None:
    return entry.line if entry.message is None and entry.msg is None else None


def _ended(said: bytes, *, is_whole: bool) -> bytes:
    """Return a line with its end, which some stores take off; Docker cuts those that are longer than it keeps."""
    return said if said.endswith(b"\n") or not is_whole or len(said) >= _CUT_BYTES else said + b"\n"
