"""The known lines of vLLM and of what it runs on, as values, and the one that a record shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, get_args

from safe_vllm.errors import Trouble
from safe_vllm.verdict.evidence import FAULTS, PHASES, SUSPECTS, Kind, Setup
from safe_vllm.verdict.lines import Record
from safe_vllm.verdict.parts import Part, suspect_in
from safe_vllm.verdict.parts import parse as parse_parts

GUESS = "guess-"
"""Signatures with names that begin so are tried last: they tell the type of an exception and no more."""
CACHE = "cache"
TOLD = frozenset({"backend", CACHE, *(field.name for field in fields(Setup))})
"""What the named groups of a pattern can be: the MoE backend, a cache that is in use, and the fields of ``Setup``."""
LONGEST_MESSAGE = 16_384
"""What lies beyond is not looked at: a pattern may take the square of what it is held against."""
_MOST_SUBSETS = 256


@dataclass(frozen=True)
class Signature:
    """One known line. A record shows it when it holds one of ``any``, and ``pattern`` where there is one."""

    name: str
    kind: Kind
    any: tuple[str, ...]
    example: str
    link: str
    pattern: str | None = None
    needle: str | None = None
    """A text that ``pattern`` cannot do without, rarer than those of ``any``."""
    unless: tuple[str, ...] = ()
    """Words that make it something else."""
    fault: str | None = None
    suspect: str | None = None
    phase: str | None = None
    """A marker enters this phase; any other line belongs to it."""
    starts: bool = False
    """Whether the message must begin with it."""
    quotes: bool = False
    """Whether foreign text follows: a prompt, an answer, arguments. Nothing else is then looked for."""
    can_be_caught: bool = False
    """Whether it is an error that leaves the GPU as it was: a refusal, which callers may know how to go round."""
    proves: bool = False
    """Whether it names the kernel or operator that failed, so that its suspect is known."""
    seen: str | None = None
    """The versions that print it."""

    @cached_property
    def telling(self) -> tuple[bytes, ...]:
        """Texts of which each line that shows it holds one."""
        return tuple(text.encode() for text in ((self.needle,) if self.needle else self.any))

    @cached_property
    def _regex(self) -> re.Pattern[str] | None:
        return re.compile(self.pattern) if self.pattern else None

    def is_in(self, record: Record) -> bool:
        """Whether ``record`` shows this line. A calm record must begin with it: the rest may be anybody's words."""
        message = record.message[:LONGEST_MESSAGE]
        if any(word in message for word in self.unless):
            return False
        if self.starts or record.is_calm:
            return message.startswith(self.any) and (self._regex is None or bool(self._regex.match(message)))
        return any(text in message for text in self.any) and (self._regex is None or bool(self._regex.search(message)))

    @cached_property
    def tells(self) -> tuple[str, ...]:
        """Names of the groups of the pattern: what the line tells of the software and hardware in use."""
        return tuple(re.findall(r"\(\?P<(\w+)>", self.pattern or ""))

    def told(self, record: Record) -> dict[str, str]:
        """Return what the named groups of the pattern hold in ``record``."""
        found = self._regex.search(record.message[:LONGEST_MESSAGE]) if self._regex and self.tells else None
        return {name: value for name, value in found.groupdict().items() if value} if found else {}


@dataclass(frozen=True)
class Match:
    """What a record shows, with the weight that the record gives it."""

    signature: Signature
    kind: Kind
    fault: str | None
    suspect: str | None


def _is_code(record: Record) -> bool:
    """Whether the record is a source line in a traceback, which names what might have been."""
    return record.message.lstrip().startswith(("raise ", 'File "'))


def _as_is(signature: Signature) -> Match:
    return Match(signature, signature.kind, signature.fault, signature.suspect)


@dataclass(frozen=True)
class Signatures:
    """All known lines, in the order in which they are tried."""

    all: tuple[Signature, ...]
    needles: tuple[bytes, ...]
    """Texts as short as can be: a line that holds none of them shows no signature."""
    parts: tuple[Part, ...] = ()

    @cached_property
    def _by_kind(self) -> Mapping[str, tuple[Signature, ...]]:
        plain = [s for s in self.all if not s.quotes and not s.name.startswith(GUESS)]
        return {kind: tuple(s for s in plain if s.kind == kind) for kind in get_args(Kind)}

    @cached_property
    def _guesses(self) -> tuple[Signature, ...]:
        return tuple(s for s in self.all if s.name.startswith(GUESS))

    @cached_property
    def _quoting(self) -> tuple[Signature, ...]:
        return tuple(s for s in self.all if s.quotes)

    @cached_property
    def _telling(self) -> tuple[Signature, ...]:
        return tuple(s for s in self.all if s.tells)

    @cached_property
    def _subsets(self) -> dict[tuple[bytes, ...], Signatures]:
        return {}

    def among(self, needles: tuple[bytes, ...]) -> Signatures:
        """Return those that a text which holds only ``needles`` can show."""
        found = self._subsets.get(needles)
        if found is None:
            those = tuple(s for s in self.all if any(n in t for t in s.telling for n in needles))
            if len(self._subsets) >= _MOST_SUBSETS:
                self._subsets.clear()
            found = self._subsets[needles] = Signatures(those, needles, self.parts)
        return found

    def _first(self, kind: Kind, record: Record) -> Signature | None:
        return next((s for s in self._by_kind[kind] if s.is_in(record)), None)

    def quotes(self, record: Record) -> bool:
        """Whether ``record`` is known to carry foreign text."""
        return any(s.is_in(record) for s in self._quoting)

    def link(self, name: str) -> str | None:
        """Return where the signature of this name is explained."""
        return next((s.link for s in self.all if s.name == name), None)

    def told(self, record: Record) -> dict[str, str]:
        """Return what ``record`` tells of the software and hardware in use, by the names in ``TOLD``."""
        telling = () if record.request else self._telling
        if telling and (quoting := next((s for s in self._quoting if s.is_in(record)), None)):
            telling = (quoting,)
        return {name: value for s in telling if s.is_in(record) for name, value in s.told(record).items()}

    def match(self, record: Record) -> Match | None:
        """Return what ``record`` shows, or ``None``. Harmless beats cause, and what repeats is never a cause."""
        if record.request:
            return None
        plain = next((s for s in self._quoting if s.is_in(record)), None) or self._first("benign", record)
        if plain:
            return _as_is(plain)
        root = None if record.is_calm or _is_code(record) else self._first("root", record)
        if echo := self._first("echo", record):
            return _as_is(echo) if echo.fault or not root else Match(echo, "echo", root.fault, root.suspect)
        if root:
            suspect = root.suspect or suspect_in(record.message[:LONGEST_MESSAGE], self.parts)
            # what vLLM only warns about, it survived: it decides when nothing better is found
            return Match(root, "echo" if record.level == "WARNING" else "root", root.fault, suspect)
        other = self._first("marker", record) or self._first("advice", record)
        other = other or next((s for s in self._guesses if s.is_in(record)), None)
        return _as_is(other) if other else None


_WORDS = {"kind": frozenset(get_args(Kind)), "fault": FAULTS, "suspect": SUSPECTS, "phase": frozenset(PHASES)}
_TEXTS = frozenset({"name", "kind", "example", "link", "pattern", "needle", "fault", "suspect", "phase", "seen"})
_LISTS = frozenset({"any", "unless"})
_FLAGS = frozenset({"starts", "quotes", "can_be_caught", "proves"})
_NEEDED = frozenset({"name", "kind", "any", "example", "link"})


def parse(data: object) -> Signatures:
    """Return the signatures that ``data``, as read from ``signatures.yaml``, describes; raises ``Trouble``."""
    if not isinstance(data, dict) or not isinstance(data.get("signatures"), list):
        raise Trouble("signatures: expected a mapping with the list `signatures`")
    entries = tuple(_signature(entry, place) for place, entry in enumerate(data["signatures"], 1))
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise Trouble(f"signatures: the name {name} is there twice")
    needles = _needles(_strings(data.get("needles"), "needles"), entries)
    return Signatures(entries, needles, parse_parts(data.get("parts", [])))


def _signature(entry: object, place: int) -> Signature:
    where = f"signatures[{place}]"
    if not isinstance(entry, dict):
        raise Trouble(f"{where}: expected a mapping")
    where = f"{where} ({entry.get('name')})"
    for key in entry.keys() - _TEXTS - _LISTS - _FLAGS:
        raise Trouble(f"{where}: unknown key {key}")
    for key in _NEEDED - entry.keys():
        raise Trouble(f"{where}: {key} is missing")
    values: dict[str, Any] = {key: _value(key, value, where) for key, value in entry.items()}
    signature = Signature(**values)
    for name in set(signature.tells) - TOLD:
        raise Trouble(f"{where}.pattern: {name} is not one of {', '.join(sorted(TOLD))}")
    return signature


def _value(key: str, value: object, where: str) -> object:
    if key in _LISTS:
        return _strings(value, f"{where}.{key}")
    if not isinstance(value, bool if key in _FLAGS else str):
        raise Trouble(f"{where}.{key}: expected a {'boolean' if key in _FLAGS else 'string'}")
    if key in _WORDS and value not in _WORDS[key]:
        raise Trouble(f"{where}.{key}: {value} is not one of {', '.join(sorted(_WORDS[key]))}")
    return value


def _strings(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise Trouble(f"{where}: expected a list of strings")
    return tuple(value)


def _needles(wanted: tuple[str, ...], entries: tuple[Signature, ...]) -> tuple[bytes, ...]:
    """Return the ``wanted`` needles, and every text that holds none of them."""
    needles = [needle.encode() for needle in wanted]
    for text in (text for entry in entries for text in entry.telling):
        if not any(needle in text for needle in needles):
            needles.append(text)
    return tuple(needles)
