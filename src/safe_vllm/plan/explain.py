"""Says in words what a rung changes. Only safety settings are ever shown: other words may hold secrets."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

from safe_vllm.plan.flags import Occurrence, scan
from safe_vllm.plan.grammar import SAFETY_FLAGS
from safe_vllm.plan.ladder import Ladder, Rung
from safe_vllm.plan.secrets import HIDDEN, hide, hide_variable


def difference(before: Rung, after: Rung, unread: Collection[str] = ()) -> tuple[str, ...]:
    """Return the flags and variables that differ, one line each: ``- gone``, ``+ new``, ``  old -> new``."""
    flags = (line for name in SAFETY_FLAGS for line in _flag_lines(name, before.words, after.words))
    return (*flags, *_variable_lines(dict(before.environment), dict(after.environment), unread))


def ladder_line(ladder: Ladder, entry: int = 0) -> str:
    """Return the names of the rungs in one line, that of the ``entry`` in brackets where it is not the first."""
    names = [rung.name for rung in ladder.rungs]
    return " → ".join(f"[{name}]" if entry and at == entry else name for at, name in enumerate(names))


def variable_line(name: str, value: str, unread: Collection[str] = ()) -> str:
    """Return ``NAME=value`` as far as it may be shown, and whether anybody reads it."""
    remark = " (not read by the installed version)" if name in unread else ""
    shown = hide_variable(name, value)
    return f"{name}={shown if shown == HIDDEN else shlex.quote(shown)}{remark}"


def _flag_lines(name: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for old, new in zip_longest(_spelled(name, before), _spelled(name, after)):
        if new is None:
            yield f"- {_text(old, before)}"
        elif old is None:
            yield f"+ {_text(new, after)}"
        elif old.values and new.values and (old.spelled, old.key) == (new.spelled, new.key):
            if old.values != new.values:
                yield f"  {old.written} {shlex.join(hide(old.values))} -> {shlex.join(hide(new.values))}"
        elif (was := _text(old, before)) != (now := _text(new, after)):
            yield f"  {was} -> {now}"


def _spelled(name: str, words: Sequence[str]) -> list[Occurrence]:
    return [found for found in scan(words) if found.flag.name == name]


def _text(place: Occurrence, words: Sequence[str]) -> str:
    return shlex.join(hide(words[place.at : place.at + place.size]))


def _variable_lines(before: dict[str, str], after: dict[str, str], unread: Collection[str]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"- {name}"
        elif name not in before:
            yield f"+ {variable_line(name, after[name], unread)}"
        elif before[name] != after[name]:
            yield f"  {variable_line(name, before[name])} -> {variable_line(name, after[name], unread)}"
