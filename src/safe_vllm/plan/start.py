"""Where a launch starts: where the operator says, else at the rung that held, else below what is known to fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from safe_vllm.errors import Trouble
from safe_vllm.plan.edit import Words
from safe_vllm.plan.entry import entry_of
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Ladder
from safe_vllm.plan.remembered import Broken, Held, Remembered
from safe_vllm.plan.scene import Scene

UNKNOWN = "unknown"
UNTOLD = ("none", UNKNOWN)
"""Suspects that tell a reader nothing."""


@dataclass(frozen=True)
class Start:
    """The rung to start with, and what follows from how it was found."""

    place: int = 0
    because: str | None = None
    """Why it is this one; ``None``: it is the first, and nothing speaks against that."""
    avoids_known: bool = False
    """Whether it is the rung that a known fault leads to."""
    forgets: bool = False
    """Whether what is remembered is of no use any more."""
    caches: str | None = None
    """The directory with caches of ours that it held with."""


def start_of(intent: Intent, ladder: Ladder, words: Words, scene: Scene, remembered: Remembered) -> Start:
    """Return where to start a launch whose first rung runs ``words``; raises ``Trouble`` for one that is not there."""
    names = [rung.name for rung in ladder.rungs]
    if intent.observes_only:
        return Start()
    if intent.start_at:
        return Start(_asked(intent.start_at, names, ladder), f"starts at {intent.start_at}: --start-at asks for it")
    known, because = entry_of(ladder, words, scene)
    start = Start(known, because, avoids_known=known > 0)
    broken = {past.rung: past for past in remembered.broken if _speaks(past)}
    held = remembered.held
    if held and held.rung in names:
        return _held(held, names, broken, start, None if "caches" in scene.pins else held.caches)
    return _not_broken(names, broken, start)


def _asked(name: str, names: Sequence[str], ladder: Ladder) -> int:
    if name in names:
        return names.index(name)
    because = next((left.because for left in ladder.left_out if left.name == name), "the profile has no such rung")
    raise Trouble(f"--start-at {name}: it is left out here: {because}", hint=f"the ladder has {', '.join(names)}")


def _held(held: Held, names: Sequence[str], broken: dict[str, Broken], known: Start, caches: str | None) -> Start:
    place = names.index(held.rung)
    if place == known.place:
        return replace(known, caches=caches)
    deaths = [broken[name] for name in names[:place] if name in broken]
    if place > known.place and not deaths:  # nothing speaks against a rung above it any more, or ever did
        return _not_broken(names, broken, known)
    is_since = deaths and held.at >= max(death.at for death in deaths)
    lasted = f"{held.rung} held {'since then' if is_since else f'on {_day(held.at)}'}"
    return Start(place, _sentence(held.rung, [*map(_death, deaths), lasted], names, known), caches=caches)


def _speaks(death: Broken) -> bool:
    """Return whether a death speaks against its rung. One that nobody understands may have been the network's doing."""
    return death.fault != UNKNOWN or death.times > 1


def _not_broken(names: Sequence[str], broken: dict[str, Broken], known: Start) -> Start:
    """Return the first rung that is not known to fail, from that on to which a known fault leads."""
    candidates = names[known.place :]
    place = next((names.index(name) for name in candidates if name not in broken), None)
    if place == known.place:
        return known
    if place is not None:
        deaths = [_death(broken[name]) for name in names[known.place : place]]
        return Start(place, _sentence(names[place], deaths, names, known))
    last = max((broken[name] for name in candidates), key=lambda death: death.at)
    every = f"every rung from {names[known.place]} on" if known.place else "every rung"
    spent = f"{every} has died here, last {last.rung} {_of(last)}, so what was remembered is dropped"
    because = known.because or f"starts at {names[known.place]}"
    return Start(known.place, f"{because}; {spent}", known.avoids_known, forgets=True)


def _sentence(rung: str, reasons: Sequence[str], names: Sequence[str], known: Start) -> str:
    again = "at the top" if not known.place else f"at {names[known.place]}"
    return f"starts at {rung}: {', '.join(reasons)}; safe-vllm forget starts {again}"


def _death(death: Broken) -> str:
    return f"{death.rung} died here {_of(death)}"


def _of(death: Broken) -> str:
    suspect = f" ({death.suspect})" if death.suspect not in UNTOLD else ""
    return f"on {_day(death.at)} of {death.fault}{suspect}"


def _day(at: float) -> str:
    """Return the day in UTC. A clock may have said anything."""
    try:
        return datetime.fromtimestamp(at, timezone.utc).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return "an unknown day"
