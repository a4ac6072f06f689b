"""What is wrong with a profile: every mistake at once, each with its place and what was expected there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from safe_vllm.errors import did_you_mean
from safe_vllm.machine.facts import Place

WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
"""msgspec's names for kinds of values, in words."""
SHOWN = 60
"""Characters of a wrong value that are shown."""


@dataclass(frozen=True)
class Problem:
    """One mistake."""

    place: Place
    """Keys and indices that lead to it."""
    sentence: str

    def __str__(self) -> str:
        """Return the place and the mistake in one line."""
        return f"{written(self.place)}: {self.sentence}" if self.place else self.sentence


def written(place: Place) -> str:
    """Return a place as a person writes it: ``ladder[0].rung``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{_key(step)}" for step in place)
    return text.removeprefix(".")


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w.-]+", key) else repr(key)


def mistakes(value: object, kind: Any, place: Place = ()) -> Iterator[Problem]:
    """Yield everything that keeps ``value``, as YAML gives it, from being of the ``kind``."""
    try:
        msgspec.convert(value, kind)
        return
    except msgspec.ValidationError as error:
        said = str(error)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _in_struct(value, kind, place)
    elif isinstance(value, dict) and get_origin(kind) is dict:
        yield from _in_mapping(value, kind, place)
    elif isinstance(value, list) and get_origin(kind) is tuple:
        item = get_args(kind)[0]
        yield from (problem for at, part in enumerate(value) for problem in mistakes(part, item, (*place, at)))
    else:
        yield Problem(place, _sentence(said, value, kind))


def _in_struct(value: Mapping[object, object], kind: type[msgspec.Struct], place: Place) -> Iterator[Problem]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, part in value.items():
        if key in fields:
            yield from mistakes(part, fields[str(key)].type, (*place, str(key)))
        else:
            yield Problem((*place, str(key)), f"unknown key{did_you_mean(str(key), tuple(fields))}")
    missing = (name for name, field in fields.items() if field.required and name not in value)
    yield from (Problem(place, f"the key {name!r} is missing") for name in missing)


def _in_mapping(value: Mapping[object, object], kind: Any, place: Place) -> Iterator[Problem]:
    of_keys, of_values = get_args(kind)
    for key, part in value.items():
        at = (*place, str(key))
        yield from (Problem(at, f"as a key, {problem.sentence}") for problem in mistakes(key, of_keys))
        yield from mistakes(part, of_values, at)


def _sentence(said: str, value: object, kind: Any) -> str:
    """Return msgspec's message in our words, with what was found."""
    if "Invalid enum value" in said and isinstance(value, str):
        return f"unknown value {shown(value)}{did_you_mean(value, _choices(kind))}"
    expected, _, _ = said.partition(" - at ")[0].partition(", got ")
    if "matching regex" in expected:
        expected = f"expected {_described(kind)}"
    expected = re.sub("`([^`]*)`", lambda found: _in_words(found[1], value), expected)
    is_to_quote = "expected text" in expected.lower() and isinstance(value, (int, float))
    return f"{expected[:1].lower()}{expected[1:]}, got {shown(value)}" + ("; put it in quotes" if is_to_quote else "")


def _in_words(kinds: str, value: object) -> str:
    names = [name for name in kinds.split(" | ") if name != "null" or value is None]
    return " or ".join(WORDS.get(name, name) for name in names)


def _choices(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _described(kind: Any) -> str:
    """Return the description of a pattern, also where nothing is allowed too."""
    kinds = [kind] if get_origin(kind) is Annotated else get_args(kind)
    metas = (meta for each in kinds for meta in getattr(each, "__metadata__", ()))
    return next((meta.description for meta in metas if meta.description), "text of another form")


def shown(value: object) -> str:
    """Return a value as YAML would have it, cut short."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple, set)):
        return "a list"
    text = {"None": "nothing", "True": "true", "False": "false"}.get(repr(value)) or repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
