"""What ``status`` says, for people: what runs, what was remembered, and which reports there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

Facts = Mapping[str, Any]
"""A picture as JSON; what a file holds may be of another version, so nothing in it is taken for granted."""

LATEST = 5
"""So many ended attempts are listed."""
ENDLESS_S = 1e15
"""No attempt lasts so long, and a number far above it cannot be divided."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_STATES = {"ready": "serving", "starting": "starting", "stepping-down": "stepping down", "stopping": "stopping"}


def run_lines(facts: Facts, *, is_alive: bool, now: datetime) -> list[str]:
    """Say how a launch stands, or how it ended and what it was."""
    if not facts:
        return []
    details = _standing(facts, now) if is_alive else _ended(facts, now)
    recent = map(_attempt, map(_mapping, _list(facts.get("recent"))[-LATEST:]))
    return [_headline(facts, is_alive, now), *(f"  {line}" for line in (*details, *recent))]


def _headline(facts: Facts, is_alive: bool, now: datetime) -> str:
    if is_alive:
        state = _STATES.get(str(facts.get("state")), str(facts.get("state")))
        return f"{state} at rung {facts.get('rung')}: {_about(facts, now)}"
    last = _when(facts.get("updated_at"), now)
    if facts.get("state") == "ended":
        return f"not running: it ended with status {facts.get('status')}, {last}: {facts.get('reason')}"
    return f"not running: it was killed at rung {facts.get('rung')}, and last told of {last}"


def _about(facts: Facts, now: datetime) -> str:
    model, version = facts.get("model") or "a model", _mapping(facts.get("versions")).get("vllm")
    of = f"{model}, vLLM {version or '(version unknown)'}, profile {facts.get('profile')}"
    return f"{of}, process {facts.get('launcher_pid')}, started {_when(facts.get('started_at'), now)}"


def _standing(facts: Facts, now: datetime) -> Iterator[str]:
    yield _ladder(facts)
    if facts.get("ready_since"):
        proven = "proven" if facts.get("is_proven") else "not proven yet"
        yield f"ready since {_when(facts['ready_since'], now)}, attempt {facts.get('attempt')}, {proven}"
    elif facts.get("waits_for"):
        yield f"waits for: {facts['waits_for']}"
    else:
        yield f"attempt {facts.get('attempt')}, phase {facts.get('phase')}"
    if facts.get("is_observed"):
        yield "only observed: nothing is changed and nothing is ended"
    if degraded := _mapping(facts.get("degraded")):
        yield from _degraded(degraded, now)


def _ended(facts: Facts, now: datetime) -> Iterator[str]:
    """Yield what it was; what it would take to run better is of no use to a launch that is over."""
    yield f"it was {_about(facts, now)}"
    yield _ladder(facts)
    if facts.get("is_observed"):
        yield "it was only observed: nothing was changed and nothing was ended"
    if degraded := _mapping(facts.get("degraded")):
        yield f"it was degraded to {degraded.get('rung')}: {degraded.get('reason')}"


def _ladder(facts: Facts) -> str:
    names = _list(facts.get("ladder"))
    return "ladder: " + " → ".join(f"[{name}]" if name == facts.get("rung") else str(name) for name in names)


def _degraded(degraded: Facts, now: datetime) -> Iterator[str]:
    yield f"DEGRADED to {degraded.get('rung')} since {_when(degraded.get('since'), now)}: {degraded.get('reason')}"
    yield from (f"  costs: {cost}" for cost in _list(degraded.get("costs")))
    if way_back := degraded.get("way_back"):
        yield f"  way back: {way_back}"
    yield from (f"  fixed in: {version}" for version in _list(degraded.get("fixed_in")))


def _attempt(one: Facts) -> str:
    found = f"{one.get('fault')} in {one.get('phase')}" + (
        f", suspect {one['suspect']}" if one.get("suspect") not in ("none", "unknown", None) else ""
    )
    found += f", perhaps of the cache {one['cache']}" if one.get("cache") else ""
    report = f"; report {one['incident']}" if one.get("incident") else ""
    seconds = one.get("seconds")
    after = f" after {_long(seconds)}" if isinstance(seconds, (int, float)) and 0 <= seconds < ENDLESS_S else ""
    return f"attempt {one.get('attempt')} at {one.get('rung')} ended{after}: {found}{report}"


def _mapping(value: object) -> Facts:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _when(at: object, now: datetime) -> str:
    """Return when something was, and how long ago that is."""
    try:
        then = datetime.fromisoformat(str(at).replace("Z", "+00:00"))
        seconds = (now - then).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return "at a time that is not known"
    return f"{then:%Y-%m-%d %H:%M:%S} UTC ({_long(seconds)} ago)"


def _long(seconds: float) -> str:
    for size, name in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"
