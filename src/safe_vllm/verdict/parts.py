"""The parts of an engine by the names of their files and functions, as data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from safe_vllm.errors import Trouble
from safe_vllm.verdict.evidence import SUSPECTS


@dataclass(frozen=True)
class Part:
    """How one part of an engine is called in the lines of its own checks."""

    suspect: str
    pattern: str
    example: str
    link: str

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)

    def is_in(self, text: str) -> bool:
        """Whether ``text`` names this part."""
        return bool(self._regex.search(text))


def suspect_in(text: str, parts: Sequence[Part]) -> str | None:
    """Return the part that a line names by itself. The frames above an exception prove nothing: faults come late."""
    return next((part.suspect for part in parts if part.is_in(text)), None)


def parse(entries: object) -> tuple[Part, ...]:
    """Return the parts that ``entries``, as read from ``signatures.yaml``, describe; raises ``Trouble``."""
    if not isinstance(entries, list):
        raise Trouble("parts: expected a list")
    return tuple(_part(entry, f"parts[{place}]") for place, entry in enumerate(entries, 1))


def _part(entry: object, where: str) -> Part:
    wanted = {"suspect", "pattern", "example", "link"}
    if not isinstance(entry, dict) or entry.keys() != wanted or not all(isinstance(v, str) for v in entry.values()):
        raise Trouble(f"{where}: expected a mapping of strings with the keys {', '.join(sorted(wanted))}")
    if entry["suspect"] not in SUSPECTS:
        raise Trouble(f"{where}.suspect: {entry['suspect']} is not one of {', '.join(sorted(SUSPECTS))}")
    return Part(**entry)
