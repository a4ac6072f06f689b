"""The table of advice, understood: strict, so that a slip in the data is found when it is read."""

from __future__ import annotations

import re
from typing import Any

from safe_vllm.errors import Trouble
from safe_vllm.verdict.advice import PACKAGES, Advice, Table
from safe_vllm.verdict.evidence import FAULTS, PHASES, SUSPECTS

_WORDS = {"faults": FAULTS, "suspects": SUSPECTS, "phases": frozenset(PHASES)}
_LISTS = frozenset({*_WORDS, "backends", "gpus", "architectures", "compute_capabilities", "signatures", "sets"})
_TEXTS = frozenset({"text", "link", "leaves_out", "makes"})
_MADE = ("process", "gpu", "stacks")
_NO_CONDITIONS = _TEXTS | {"sets", "needs_tuning"}
_CLAIMS = re.compile(r"\b(?:helped|served|fixe[ds]|solved|was gone|(?:stopped|ended) the)")
"""Words of a claim that something is known to help, which needs a source."""


def parse(content: object) -> Table:
    """Return the advice that ``content``, as read from ``advice.yaml``, describes; raises ``Trouble``."""
    if not isinstance(content, dict) or set(content) != {"advice"} or not isinstance(content["advice"], list):
        raise Trouble("advice: expected a mapping with the list `advice` and nothing else")
    table = tuple(_entry(entry, f"advice[{place}]") for place, entry in enumerate(content["advice"], 1))
    for entry in table:
        if table.count(entry) > 1:
            raise Trouble(f"advice: there twice: {entry.text}")
    return table


def _entry(entry: object, where: str) -> Advice:
    if not isinstance(entry, dict):
        raise Trouble(f"{where}: expected a mapping")
    fields: dict[str, Any] = {key: _value(key, value, f"{where}.{key}") for key, value in entry.items()}
    if "text" not in fields:
        raise Trouble(f"{where}: text is missing")
    if fields.keys() <= _NO_CONDITIONS:
        raise Trouble(f"{where}: expected a condition, such as faults")
    for named in (*fields.get("sets", ()), fields.get("leaves_out", "")):
        if named not in fields["text"]:
            raise Trouble(f"{where}: the text does not name {named}")
    if "link" not in fields and ("fixed_in" in fields or _CLAIMS.search(fields["text"])):
        raise Trouble(f"{where}: what claims that something helped needs a link")
    return Advice(**fields)


def _value(key: object, value: object, where: str) -> object:
    if key in _LISTS:
        return _list(str(key), value, where)
    if key == "xids":
        return _numbers(value, where)
    if key == "needs_tuning":
        if value is not True:
            raise Trouble(f"{where}: expected true, or nothing")
        return value
    if key == "fixed_in":
        return _fixes(value, where)
    if key not in _TEXTS and key not in PACKAGES:
        raise Trouble(f"{where}: unknown key")
    if not isinstance(value, str) or not value:
        raise Trouble(f"{where}: expected a string")
    if key == "link" and not value.startswith("https://"):
        raise Trouble(f"{where}: expected an address that starts with https://")
    if key == "makes" and value not in _MADE:
        raise Trouble(f"{where}: {value} is not one of {', '.join(_MADE)}")
    if key in PACKAGES:
        _check_range(value, where)
    return value


def _list(key: str, value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise Trouble(f"{where}: expected a list of strings")
    for item in value:
        if key in _WORDS and item not in _WORDS[key]:
            raise Trouble(f"{where}: {item} is not one of {', '.join(sorted(_WORDS[key]))}")
    return tuple(value)


def _numbers(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(type(item) is int for item in value):
        raise Trouble(f"{where}: expected a list of numbers")
    return tuple(value)


def _fixes(value: object, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not value or not value.keys() <= PACKAGES.keys():
        raise Trouble(f"{where}: expected a mapping of {' or '.join(PACKAGES)} to a version")
    for version in value.values():
        if not isinstance(version, str):
            raise Trouble(f"{where}: expected a version in quotes")
        _check_range(f"<{version}", where)
    return tuple(value.items())


def _check_range(text: str, where: str) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # slow to import, and only an end needs it

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise Trouble(f"{where}: expected versions such as >=0.6.8,<0.6.16, got {text}") from None
