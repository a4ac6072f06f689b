"""vLLM's ``--kernel-config``: JSON or dotted forms of settings that also have flags of their own.

Dotted forms are gathered into one object that replaces any JSON form, wherever it stands; of several JSON forms
the last one counts and the others are forgotten.
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/utils/argparse_utils.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from safe_vllm.plan.edit import Config, Words, appended, replaced, spelled_with
from safe_vllm.plan.flags import Occurrence, Reading, Setting, read, scan
from safe_vllm.plan.grammar import KERNEL_CONFIG

Scalar = str | bool


def kernel_setting(reading: Reading, key: str) -> Setting | None:
    """Return what ``--kernel-config`` says about ``key``; ``None`` where it says nothing."""
    places = reading.all(KERNEL_CONFIG)
    dotted = [place for place in places if place.key]
    if dotted:
        named = [place for place in dotted if place.key == key]
        return Setting(_scalar(named[-1].values[0]), named[-1].source) if named else None
    if not places:
        return None
    value = _object(places[-1]).get(key)
    return None if value is None else Setting(_scalar(value), places[-1].source)


def with_kernel_setting(words: Sequence[str], key: str, value: Scalar, config: Config = None) -> Words:
    """Return ``words`` in which every ``--kernel-config`` that names ``key`` gives it ``value``.

    Only for keys that are named already: beside JSON a dotted form would silently undo all the rest.
    """
    named = [place for place in scan(words) if place.flag.name == KERNEL_CONFIG and _names(place, key)]
    changed = replaced(words, named, lambda place: _rewritten(place, key, value))
    reading = read(changed, config)
    setting = kernel_setting(reading, key)
    if setting is None or setting.value == value:
        return changed
    return appended(changed, _beating_the_file(reading, key, value))


def _beating_the_file(reading: Reading, key: str, value: Scalar) -> Words:
    """Return the words that change one key of a ``--config`` file and keep its others."""
    last = reading.all(KERNEL_CONFIG)[-1]
    if any(place.key for place in reading.all(KERNEL_CONFIG)):
        return (f"{KERNEL_CONFIG}.{key}={value}",)
    return (KERNEL_CONFIG, json.dumps({**_object(last), key: value}))


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
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _scalar(value: object) -> Scalar:
    """Return booleans as vLLM reads them (``False``, ``false`` and ``0`` are one), all else as text."""
    text = str(value)
    words: dict[str, Scalar] = {"true": True, "1": True, "false": False, "0": False}
    return words.get(text.lower(), text)
