"""The form of the file that keeps what broke and what held, for one fingerprint. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from safe_vllm.plan.remembered import Broken, Held, Remembered
from safe_vllm.record.files import Unfit

VERSION = 1
"""It grows when an older release could no longer make sense of the file."""
DAY_S = 86_400.0
MAX_ABOUT = 1 << 16
"""Characters."""
MOST_TIMES = 1 << 53
"""Every reader of JSON knows numbers up to this one."""
Count = Annotated[int, Meta(ge=0, le=MOST_TIMES)]
DEEPEST = 32
"""So deep may values lie in one another; nothing of ours comes near, and Python writes a few hundred."""


class BrokenMark(Struct, frozen=True):
    """The last death at a rung."""

    fault: str
    suspect: str
    phase: str
    at: float


class HeldMark(Struct, frozen=True, omit_defaults=True):
    """The last time that a rung held."""

    at: float
    caches: str | None = None


class Rung(Struct, frozen=True, omit_defaults=True):
    """All about one rung. The counts outlive the marks."""

    broken: BrokenMark | None = None
    held: HeldMark | None = None
    times_broken: Count = 0
    times_held: Count = 0


class Record(Struct, frozen=True):
    """What one file says; keys that this release does not know are passed over."""

    v: int
    fingerprint: str
    about: dict[str, Any] = {}
    """What the fingerprint is of, for people."""
    rungs: dict[str, Rung] = {}


@dataclass(frozen=True)
class Span:
    """When, and for how long marks are believed."""

    now: float
    """Seconds of the wall clock since 1970."""
    remember_for_days: float

    def has(self, at: float) -> bool:
        """Whether what happened then is still believed.

        Of a mark from the future the clock was ahead then, or is behind now: it is believed as long before its time as
        after it, so it lives twice as long as others at most.
        """
        return abs(self.now - at) <= self.remember_for_days * DAY_S

    def is_over(self, at: float) -> bool:
        """Whether it will never be believed again; of what lies ahead it may, once a clock at 1970 has been set."""
        return not self.now - at <= self.remember_for_days * DAY_S


def empty(fingerprint: str, about: Mapping[str, Any]) -> Record:
    """Return a record of nothing. A command line of megabytes is not repeated in it."""
    return Record(VERSION, fingerprint, dict(about) if len(json.dumps(about)) <= MAX_ABOUT else {})


def parse(content: bytes, fingerprint: str) -> Record:
    """Return what a file of this fingerprint holds. Raises Unfit."""
    try:
        found = plain_json(content)
    except (ValueError, RecursionError):
        raise Unfit("it is damaged") from None
    version = found.get("v") if isinstance(found, dict) else None
    if type(version) is int and version > VERSION:
        raise Unfit(f"a newer safe-vllm wrote it (form {str(version)[:9]}, this one knows {VERSION})")
    if type(version) is not int or version != VERSION:
        raise Unfit("it is no record of ours")
    if is_deeper(found, DEEPEST):
        raise Unfit("it is damaged: values lie too deep in one another")
    try:
        record = convert(found, Record)
    except ValidationError as error:
        raise Unfit(f"it is damaged: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except (ValueError, OverflowError):  # JSON can write more letters than any encoding has
        raise Unfit("it is damaged: it has a key or a number that is none") from None
    if not all(_is_path(rung.held.caches) for rung in record.rungs.values() if rung.held and rung.held.caches):
        raise Unfit("it is damaged: no directory can be called as those of the caches")
    if record.fingerprint != fingerprint:
        raise Unfit("it is of another fingerprint than its name says")
    return record


def plain_json(content: bytes) -> Any:
    """Return what JSON says, null for a number that only Python knows. Raises ValueError, RecursionError."""
    return json.loads(content.decode(), parse_constant=lambda _: None, parse_float=_finite)


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if isfinite(value) else None


def _is_path(text: str) -> bool:
    """Return whether something can be called so; bytes that are no UTF-8 have letters of their own in Python."""
    try:
        return b"\0" not in text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False


def is_deeper(value: object, levels: int) -> bool:
    """Return whether values lie deeper in one another than so many levels."""
    layer = [value]
    for _ in range(levels):
        layer = [inner for each in layer for inner in _inside(each)]
    return bool(layer)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def as_bytes(record: Record) -> bytes:
    """Return the content of the file."""
    return json.dumps(to_builtins(record), indent=1).encode() + b"\n"


def with_broken(record: Record, rung: str, mark: BrokenMark) -> Record:
    """Return the record once a rung broke: it does not hold any longer."""
    before = record.rungs.get(rung, Rung())
    after = replace(before, broken=mark, held=None, times_broken=_once_more(before.times_broken))
    return replace(record, rungs={**record.rungs, rung: after})


def with_held(record: Record, rung: str, mark: HeldMark) -> Record:
    """Return the record once a rung held: it is not broken any longer, and no other rung holds."""
    others = {name: replace(other, held=None) for name, other in record.rungs.items()}
    before = record.rungs.get(rung, Rung())
    after = replace(before, broken=None, held=mark, times_held=_once_more(before.times_held))
    return replace(record, rungs={**others, rung: after})


def without_expired(record: Record, span: Span) -> Record:
    """Return the record without the marks that will never be believed again."""
    return _with_marks(record, lambda at: not span.is_over(at))


def believed(record: Record, span: Span) -> Remembered:
    """Return what is still believed of a record."""
    rungs = _with_marks(record, span.has).rungs.items()
    broken = (
        Broken(name, rung.broken.fault, rung.broken.suspect, rung.broken.phase, rung.broken.at, rung.times_broken)
        for name, rung in rungs
        if rung.broken
    )
    held = [Held(name, rung.held.at, rung.times_held, rung.held.caches) for name, rung in rungs if rung.held]
    return Remembered(tuple(broken), max(held, key=lambda each: each.at, default=None))


def _with_marks(record: Record, are_kept: Callable[[float], bool]) -> Record:
    """Return the record with those of its marks whose time is such."""
    return replace(record, rungs={name: _pruned(rung, are_kept) for name, rung in record.rungs.items()})


def _pruned(rung: Rung, are_kept: Callable[[float], bool]) -> Rung:
    broken = rung.broken if rung.broken and are_kept(rung.broken.at) else None
    held = rung.held if rung.held and are_kept(rung.held.at) else None
    return replace(rung, broken=broken, held=held)


def _once_more(times: int) -> int:
    return min(times + 1, MOST_TIMES)
