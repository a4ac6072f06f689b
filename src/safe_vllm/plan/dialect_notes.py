"""What an operator should know about how sure we are of what the installed vLLM takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from safe_vllm.machine.facts import Surface
from safe_vllm.plan.dialect_table import Choice, Flag, Release, Table, Variable, numbers, release

PARTS = {
    "flags": "its flags",
    "moe_backends": "its MoE backends",
    "variables": "its environment variables",
    "levels_without_autotune": "when it autotunes",
}


def notes(table: Table, version: str | None, at: Release, surface: Surface) -> tuple[str, ...]:
    """Return what is not certain about a version, what it cannot do, and where its source differs from the table."""
    known = release(version)
    found = [_certainty(table, version, known, surface)] if _is_foreign(table, known) else []
    degraded = (entry for entry in table.degraded if known and entry.covers(at))
    found += [f"vLLM {version}: {entry.note}" for entry in degraded if entry.unless not in (surface.flags or ())]
    found += [] if known is None else _differences(table, version, at, surface)
    return tuple(found)


def _is_foreign(table: Table, known: Release | None) -> bool:
    return known is None or known[:2] > numbers(table.newest) or known[:2] < numbers(table.oldest)


def _certainty(table: Table, version: str | None, known: Release | None, surface: Surface) -> str:
    unread = [title for part, title in PARTS.items() if getattr(surface, part) is None]
    is_old = known is not None and known < numbers(table.oldest)
    nearest = "the newest" if known is None else table.oldest if is_old else table.newest
    if known is None:
        text = "vLLM's version is unknown"
    elif is_old:
        text = f"vLLM {version} is older than what is known (from {table.oldest} on)"
    else:
        text = f"vLLM {version} is newer than what is known (up to {table.newest})"
    if len(unread) == len(PARTS):
        return f"{text}; taken for {nearest}" + ("" if known is None else ", for its source could not be read")
    checked = f"{text}; checked against its source"
    return f"{checked}, except for {' and '.join(unread)}, which could not be read" if unread else checked


def _differences(table: Table, version: str | None, at: Release, surface: Surface) -> list[str]:
    more: list[str] = []
    less: list[str] = []
    dotted = {name.partition(".")[0] for name in surface.flags or () if "." in name}
    flags = [entry for entry in table.flags if "." not in entry.name or entry.name.partition(".")[0] in dotted]
    if not any(entry.is_front_end and entry.name in (surface.flags or ()) for entry in flags):
        flags = [entry for entry in flags if not entry.is_front_end]
    variables = [entry for entry in table.variables if entry.by == "vllm"]
    for names, entries in ((surface.flags, flags), (surface.variables, variables)):
        if names is not None:
            more += [name for name, is_known in _covered(entries, at) if name in names and not is_known]
            less += [name for name, is_known in _covered(entries, at) if name not in names and is_known]
    if surface.moe_backends is not None:
        choices = {name for name, is_known in _covered(table.moe_backends, at) if is_known}
        more += _backends(name for name in surface.moe_backends if name not in choices)
        less += _backends(choices.difference(surface.moe_backends))
    said = [f"it {verb} {', '.join(names)}" for verb, names in (("has", more), ("lacks", less)) if names]
    return (
        [f"the source of vLLM {version} counts where it differs from what is known: {'; '.join(said)}"] if said else []
    )


def _covered(entries: Iterable[Flag | Choice | Variable], at: Release) -> Iterator[tuple[str, bool]]:
    return ((entry.name, entry.covers(at)) for entry in entries)


def _backends(names: Iterable[str]) -> list[str]:
    found = sorted(names)
    return [f"the MoE backend{'s' if len(found) > 1 else ''} {', '.join(found)}"] if found else []
