"""Flags of vLLM's that take a JSON object, or its keys one by one after a dot.

Dotted forms are gathered into one object that replaces any JSON form, wherever it stands; of several JSON forms
the last one counts and the others are forgotten.
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/utils/argparse_utils.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from safe_vllm.plan.edit import Config, Words, appended, replaced, spelled_with
from safe_vllm.plan.flags import Occurrence, Reading, Setting, read, scan

Scalar = str | bool


def json_setting(reading: Reading, name: str, key: str) -> Setting | None:
    """Return what the flag ``name`` says about ``key``; ``None`` where it says nothing."""
    places = reading.all(name)
    dotted = [place for place in places if place.key]
    if dotted:
        named = [place for place in dotted if place.key == key]
        return Setting(_scalar(named[-1].values[0]), named[-1].source) if named else None
    if not places:
        return None
    value = _object(places[-1]).get(key)
    return None if value is None else Setting(_scalar(value), places[-1].source)


def with_json_setting(words: Sequence[str], name: str, key: str, value: Scalar, config: Config = None) -> Words:
    """Return ``words`` in which every place of the flag ``name`` that names ``key`` gives it ``value``.

    Only for keys that are named already: beside JSON a dotted form would silently undo all the rest.
    """
    named = [place for place in scan(words) if place.flag.name == name and _names(place, key)]
    changed = replaced(words, named, lambda place: _rewritten(place, key, value))
    reading = read(changed, config)
    setting = json_setting(reading, name, key)
    if setting is None or setting.value == value:
        return changed
    return appended(changed, _added(reading, name, key, value))


def with_json_key(words: Sequence[str], name: str, key: str, value: Scalar, config: Config = None) -> Words:
    """Return ``words`` in which the flag ``name`` gives ``key`` this ``value``, whether it was named before or not."""
    changed = with_json_setting(words, name, key, value, config)
    reading = read(changed, config)
    if json_setting(reading, name, key) is not None:
        return changed
    last = [place for place in scan(changed) if place.flag.name == name and not place.key][-1:]
    if last and not any(place.key for place in reading.all(name)):
        return replaced(changed, last, lambda place: _rewritten(place, key, value))
    return appended(changed, _added(reading, name, key, value))


def _added(reading: Reading, name: str, key: str, value: Scalar) -> Words:
    """Return the words that change one key of an object, be it that of a ``--config`` file, and keep its others."""
    places = reading.all(name)
    if not places or any(place.key for place in places):
        return (f"{name}.{key}={value}",)
    return (name, json.dumps({**_object(places[-1]), key: value}))


def _names(place: Occurrence, key: str) -> bool:
    return place.key == key if place.key else _object(place).get(key) is not None


def _rewritten(place: Occurrence, key: str, value: Scalar) -> Words:
    if place.key:
        return spelled_with(place, str(value))
    return spelled_with(place, json.dumps({**_object(place), key: value}))


def _object(place: Occurrence) -> Mapping[str, object]:
    """Return the JSON object of a place; an unreadable one is empty to us, and vLLM's to complain about."""
    try:
        value = json.loads(place.values[0])
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _scalar(value: object) -> Scalar:
    """Return booleans as vLLM reads them (``False``, ``false`` and ``0`` are one), all else as text."""
    text = str(value)
    words: dict[str, Scalar] = {"true": True, "1": True, "false": False, "0": False}
    return words.get(text.lower(), text)
