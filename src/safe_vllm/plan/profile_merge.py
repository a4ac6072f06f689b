"""What a profile becomes with what it extends: mappings are merged, the ladder rung by rung, all else is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safe_vllm.plan.ladder import RUNG_NAMES

Content = Mapping[str, Any]


def merged(base: Content, own: Content) -> dict[str, Any]:
    """Return ``own`` with everything from ``base`` that it does not say itself. Both must be sound."""
    # That something was verified holds for one hardware: it is never inherited.
    ladder = [{key: value for key, value in entry.items() if key != "status"} for entry in base.get("ladder", ())]
    both = _mapping({**base, "ladder": ladder}, own)
    named = {entry["rung"] for entry in own.get("ladder", ())}
    without = own.get("without", [rung for rung in base.get("without", ()) if rung not in named])
    return {**both, "ladder": _ladder(ladder, own.get("ladder", ())), "without": without, "extends": own.get("extends")}


def _ladder(base: list[dict[str, Any]], own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rungs of both in their order; of a rung that both have, what ``own`` says of it comes first."""
    first, second = ({entry["rung"]: entry for entry in ladder} for ladder in (base, own))
    return [_mapping(first.get(name, {}), second.get(name, {})) for name in RUNG_NAMES if name in {*first, *second}]


def _mapping(base: Content, own: Content) -> dict[str, Any]:
    """Return both mappings as one. The reason for a value goes with the value."""
    both = {**base, **own}
    for key in own:
        if isinstance(base.get(key), dict) and isinstance(own[key], dict):
            both[key] = _mapping(base[key], own[key])
    if "reasons" in base:
        inherited = {key: reason for key, reason in base["reasons"].items() if not _says(own, key)}
        both["reasons"] = {**inherited, **own.get("reasons", {})}
    return both


def _says(content: Content, key: str) -> bool:
    """Return whether there is a value of its own for a key such as ``limits.sms``."""
    found: Any = content
    for step in key.split("."):
        if not isinstance(found, dict) or step not in found:
            return False
        found = found[step]
    return True
