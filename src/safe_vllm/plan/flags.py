"""Reads vLLM's flags out of a command line, in every spelling that vLLM takes.

The rules are those of argparse plus what vLLM's parser does before it:
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/utils/argparse_utils.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

from safe_vllm.plan.grammar import FLAGS, OPTIMIZATION, Flag

LONGEST_NUMBER = 18
"""Digits. Python refuses to read numbers of thousands, and no setting is that large."""

Source = Literal["default", "config", "user"]
"""vLLM's own default; the file named by ``--config``; the command line."""

Find = Callable[[str], "tuple[Flag, bool] | None"]
"""Tells the flag of a spelling, and whether that switches it on."""


@dataclass(frozen=True)
class Occurrence:
    """One place where a flag is spelled."""

    flag: Flag
    at: int
    """Index of its first word."""
    size: int
    """How many words it covers."""
    spelled: str
    """The flag as written, without a joined value and without a dotted key."""
    values: tuple[str, ...] = ()
    is_joined: bool = False
    """Whether flag and value share one word."""
    key: str = ""
    """What follows the first dot, as in ``--kernel-config.moe_backend``."""
    is_on: bool = True
    """For switches."""
    source: Source = "user"

    @property
    def written(self) -> str:
        """The flag as written, with its dotted key and without a value."""
        return f"{self.spelled}.{self.key}" if self.key else self.spelled


@dataclass(frozen=True)
class Setting:
    """The value that vLLM will use, and where it came from."""

    value: str | bool | None
    source: Source


@dataclass(frozen=True)
class Reading:
    """All spelled flags, those of the ``--config`` file first because the command line beats it."""

    occurrences: tuple[Occurrence, ...]

    def all(self, name: str) -> tuple[Occurrence, ...]:
        """Return every occurrence of the flag with the long form ``name``."""
        return tuple(found for found in self.occurrences if found.flag.name == name)

    def setting(self, name: str) -> Setting:
        """Return what vLLM makes of the flag: the last occurrence wins."""
        plain = [found for found in self.all(name) if not found.key]
        if not plain:
            return Setting(FLAGS[name].default, "default")
        last = plain[-1]
        value = last.is_on if last.flag.kind == "switch" else last.values[0]
        return Setting(value, last.source)

    def values(self, name: str) -> tuple[str, ...]:
        """Return all values of the last occurrence of a flag that takes several."""
        found = self.all(name)
        return found[-1].values if found else ()

    def number(self, name: str) -> int | None:
        """Return the setting as a number; ``None`` where it is none (vLLM will say so itself)."""
        value = str(self.setting(name).value)
        return int(value) if value.isascii() and value.isdigit() and len(value) <= LONGEST_NUMBER else None


def read(words: Sequence[str], config: Mapping[str, object] | None = None) -> Reading:
    """Read the words after ``vllm serve`` together with the mapping of the ``--config`` file."""
    from_file = scan(config_words(config), "config") if config else ()
    return Reading((*from_file, *scan(words)))


def scan(words: Sequence[str], source: Source = "user", find: Find | None = None) -> tuple[Occurrence, ...]:
    """Return every place in ``words``, up to a bare ``--``, where a flag of the grammar is spelled.

    ``find``: of a wider grammar (``finder``).
    """
    found: list[Occurrence] = []
    words = tuple(words[: end_of_options(words)])
    at = 0
    while at < len(words):
        occurrence = _occurrence(words, at, source, find or _flag)
        if occurrence:
            found.append(occurrence)
        at += occurrence.size if occurrence else _size_of_stranger(words[at])
    return tuple(found)


def end_of_options(words: Sequence[str]) -> int:
    """Return the index of the bare ``--``, or the number of words."""
    return list(words).index("--") if "--" in words else len(words)


def config_words(config: Mapping[str, object]) -> tuple[str, ...]:
    """Return the words that vLLM makes of a ``--config`` file.

    ``false`` is dropped: that is what releases before 0.28 do, and later ones do for keys with underscores.
    """
    words: list[str] = []
    for key, value in config.items():
        if value is False or value == []:
            continue
        words.append(f"--{key}")
        if isinstance(value, list):
            words += [str(item) for item in value]
        elif isinstance(value, Mapping):
            words.append(_as_json(value))
        elif value is not True:
            words.append(str(value))
    return tuple(words)


def _as_json(value: Mapping[str, object]) -> str:
    """Return a mapping as JSON; what JSON cannot hold (sets, dates, circles) is vLLM's to complain about."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return ""


def _size_of_stranger(word: str) -> int:
    """Return 2 for a dotted flag that takes the next word, whatever that looks like; else 1."""
    return 2 if word.startswith("-") and "." in word and "=" not in word else 1


def _occurrence(words: Sequence[str], at: int, source: Source, find: Find) -> Occurrence | None:
    word = words[at]
    if not word.startswith("-"):
        return None
    if word.startswith("-O"):
        return _optimization(words, at, source)
    if letter := _letter(word):
        return Occurrence(letter, at, 1, word[:2], (word[2:].removeprefix("="),), is_joined=True, source=source)
    name, equals, joined = word.partition("=")
    spelled, _, key = name.partition(".")
    found = find(spelled)
    if found is None:
        return None
    flag, is_on = found
    if flag.kind == "switch":
        return None if equals or key else Occurrence(flag, at, 1, spelled, is_on=is_on, source=source)
    if equals:
        return Occurrence(flag, at, 1, spelled, (joined,), is_joined=True, key=key, source=source)
    values = _following(words, at, flag, key)
    return Occurrence(flag, at, 1 + len(values), spelled, values, key=key, source=source) if values else None


def _following(words: Sequence[str], at: int, flag: Flag, key: str) -> tuple[str, ...]:
    """Return the words after a flag that are its values. To argparse a word with a dash in front is a flag."""
    if key:
        return tuple(words[at + 1 : at + 2])
    end = at + 1
    while end < len(words) and not is_flag_like(words[end]) and (flag.kind == "values" or end == at + 1):
        end += 1
    return tuple(words[at + 1 : end])


def is_flag_like(word: str) -> bool:
    """Return whether argparse takes the word for a flag: dash in front, and neither ``-``, a number nor a sentence."""
    if not word.startswith("-") or word == "-":
        return False
    is_number = word[1:].replace(".", "", 1).isdigit()
    return not is_number and (" " not in word or "=" in word)


def finder(flags: Mapping[str, Flag]) -> Find:
    """Return what finds the flag of a spelling among these, and remembers it."""
    return lru_cache(maxsize=4096)(partial(_found, flags))


def _found(flags: Mapping[str, Flag], spelled: str) -> tuple[Flag, bool] | None:
    """Return the flag of a spelling, and whether it switches on. Underscores are dashes."""
    if not spelled.startswith("--"):
        return next(((flag, True) for flag in flags.values() if flag.short == spelled), None)
    name = spelled.replace("_", "-")
    if name in flags:
        return flags[name], True
    for flag in flags.values():
        if name.startswith(flag.shortest) and flag.name.startswith(name):
            return flag, True
        shortest_negative = f"--no-{flag.shortest[2:]}"
        if flag.has_negative and name.startswith(shortest_negative) and flag.negative.startswith(name):
            return (flag, False) if flag.kind == "switch" else None
    return None


_flag = finder(FLAGS)


def _letter(word: str) -> Flag | None:
    """Return the flag of one letter that is joined with its value, as in ``-n2``. Longer short forms never are."""
    if len(word) < 3 or word.startswith("--"):
        return None
    return next((flag for flag in FLAGS.values() if flag.short == word[:2]), None)


def _optimization(words: Sequence[str], at: int, source: Source) -> Occurrence | None:
    """Read ``-O3``, ``-O=3`` and ``-O 3``, which vLLM rewrites before argparse sees them."""
    flag, word = FLAGS[OPTIMIZATION], words[at]
    if word != "-O":
        return Occurrence(flag, at, 1, "-O", (word[2:].removeprefix("="),), is_joined=True, source=source)
    level = words[at + 1] if at + 1 < len(words) else ""
    return Occurrence(flag, at, 2, "-O", (level,), source=source) if level in ("0", "1", "2", "3") else None
