"""What a unit file says, as systemd reads it: repeated sections, continued lines, quotes, values that are taken back.

https://www.freedesktop.org/software/systemd/man/latest/systemd.syntax.html
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from safe_vllm.checks.unit_settings import trouble
from safe_vllm.checks.unit_spans import seconds

COMMENTS = ("#", ";")
TRUE = ("1", "yes", "y", "true", "t", "on")
ALIASES = {
    "StartLimitInterval": ("StartLimitIntervalSec",),
    "TimeoutSec": ("TimeoutStartSec", "TimeoutStopSec"),
    "ReadWriteDirectories": ("ReadWritePaths",),
}
"""Older names, and one that sets two. Some stand in another section than today: names are unique over all of them."""
SECTION = re.compile(r"\[([^\]]+)\]")


@dataclass(frozen=True)
class Unit:
    """A unit with its drop-ins."""

    assignments: tuple[tuple[str, str], ...] = ()
    """Every ``NAME=VALUE``, in order."""
    strays: tuple[str, ...] = ()
    """Lines that are nothing, which systemd ignores with a word in its log."""
    refused: tuple[tuple[str, str], ...] = ()
    """Names of settings that it ignores in the same way, each with the reason."""

    def values(self, name: str) -> tuple[str, ...]:
        """Return all values that hold; an empty one takes back those before it."""
        held: list[str] = []
        for each, value in self.assignments:
            if each == name:
                held = [*held, value] if value else []
        return tuple(held)

    def value(self, name: str) -> str | None:
        """Return the last value that holds."""
        return next(reversed(self.values(name)), None)

    def words(self, name: str) -> tuple[str, ...]:
        """Return the words of all values that hold."""
        return tuple(word for value in self.values(name) for word in split(value))

    def is_on(self, name: str, *others: str) -> bool:
        """Return whether it has a true value, or one of the others that mean more than no."""
        value = (self.value(name) or "").lower()
        return value in TRUE or value in others

    def seconds(self, name: str) -> float | None:
        """Return a span of time; ``None``: it is not set, or not understood."""
        return seconds(self.value(name) or "")

    def variables(self) -> dict[str, str]:
        """Return what ``Environment=`` sets."""
        pairs = (word.partition("=") for word in self.words("Environment"))
        return {name: value for name, equals, value in pairs if equals}


def read(texts: Sequence[str]) -> Unit:
    """Return what a unit file says together with its drop-ins, which come after it."""
    assignments: list[tuple[str, str]] = []
    strays: list[str] = []
    refused: list[tuple[str, str]] = []
    for text in texts:
        section = ""
        for line in lines(text):
            name, equals, value = line.partition("=")
            if found := SECTION.fullmatch(line):
                section = found[1]
            elif section.startswith("X-"):
                continue  # for others, as systemd leaves it
            elif equals and name.strip() and section:
                key = name.strip()
                pairs = [(each, value.strip()) for each in ALIASES.get(key, (key,))]
                place = "" if key in ALIASES else section  # older names may stand where they stood
                if why := next(filter(None, (trouble(*pair, place) for pair in pairs)), None):
                    refused.append((key, why))
                else:
                    assignments += pairs
            else:
                strays.append(line)
    return Unit(tuple(assignments), tuple(strays), tuple(refused))


def lines(text: str) -> Iterator[str]:
    """Yield the lines that count, each continued one as a whole; a comment within it does not end it."""
    whole = ""
    for line in text.lstrip("\ufeff").splitlines():
        bare = line.strip()
        if bare.startswith(COMMENTS):
            continue
        if _is_continued(bare):
            whole += bare[:-1] + " "
            continue
        if whole := (whole + bare).strip():
            yield whole
        whole = ""
    if whole.strip():
        yield whole.strip()


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def split(value: str) -> tuple[str, ...]:
    """Return the words of a value without their quotes. Specifiers and variables stay as they are written."""
    try:
        return tuple(shlex.split(value))
    except ValueError:  # systemd refuses the line; its words are still worth a look
        return tuple(value.split())


def whole(text: str) -> int | None:
    """Return a whole number, of which more than twelve digits are not told apart; ``None``: it is none."""
    return int(text[:12]) if re.fullmatch(r"[0-9]+", text) else None
