"""What is known of a launch right now, made of its events alone: what ``status`` shows and every page and metric is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

State = Literal["starting", "ready", "stepping-down", "stopping", "ended"]

VERSION = 1
"""Of the form in which a picture is shown. It grows when a field goes or changes its meaning."""
RECENT = 20
"""So many ended attempts are kept; the counters know of all."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Attempt:
    """An ended attempt."""

    attempt: int = 0
    rung: str = ""
    seconds: float = 0.0
    fault: str = "unknown"
    action: str = "stop"
    phase: str = "init"
    suspect: str = "unknown"
    reason: str = ""
    cache: str | None = None
    """The file or directory, made at an earlier start, that it may be owed to."""
    incident: str | None = None
    """The directory of the report on it."""


@dataclass(frozen=True)
class Degraded:
    """Why the server runs below what was asked for."""

    rung: str
    since: str
    """When this launch came to it, as RFC 3339 in UTC."""
    reason: str
    costs: tuple[str, ...] = ()
    """What is lost, a sentence each."""
    way_back: str = ""
    fixed_in: tuple[str, ...] = ()
    """The releases of vLLM or FlashInfer that are known to mend it."""


@dataclass(frozen=True)
class Picture:
    """A launch as it stands."""

    launch: str = ""
    launcher_pid: int = 0
    started_at: str = ""
    updated_at: str = ""
    state: State = "starting"
    phase: str = "init"
    """How far the start of the current attempt has come; ``serving`` once it is ready."""
    profile: str = ""
    ladder: tuple[str, ...] = ()
    versions: Mapping[str, str | None] = field(default_factory=dict)
    model: str | None = None
    fingerprint: str | None = None
    forget: str = "safe-vllm forget"
    """The command that drops what is remembered of this fingerprint."""
    rung: str = ""
    """Of the current attempt, or of the next one."""
    attempt: int = 0
    attempt_since: str | None = None
    ready_since: str | None = None
    ready_after_s: float | None = None
    is_proven: bool = False
    is_observed: bool = False
    degraded: Degraded | None = None
    waits_for: str | None = None
    """A gate that must be passed before the next attempt."""
    recent: tuple[Attempt, ...] = ()
    """Ended attempts, the latest last."""
    attempts: int = 0
    faults: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How often each fault came in each phase."""
    incidents: int = 0
    hangs: int = 0
    gate_waited_s: float = 0.0
    status: int | None = None
    """With which the launch ended."""
    reason: str | None = None
    """Why it ended."""
    costs: Mapping[str, str] = field(default_factory=dict)
    """What the step to each rung takes away."""
    why: str = ""
    """Why it is not the first rung of the ladder."""
    fixed_in: tuple[str, ...] = ()

    def after(self, event: Event) -> Picture:
        """Return the picture with one more event; one that is not known changes only the time."""
        changed = _CHANGES.get(str(event["event"]), lambda picture, _: picture)(self, event)
        return replace(changed, updated_at=str(event["time"]))


def facts(picture: Picture) -> dict[str, Any]:
    """Return a picture as JSON holds it."""
    faults = [{"fault": fault, "phase": phase, "times": times} for (fault, phase), times in picture.faults.items()]
    return {"v": VERSION, **asdict(replace(picture, faults={})), "faults": faults}


def _launch_started(_: Picture, event: Event) -> Picture:
    picture = Picture(
        launch=event["launch"],
        launcher_pid=event["launcher_pid"],
        started_at=event["time"],
        profile=event["profile"],
        ladder=tuple(event["ladder"]),
        versions=event["versions"],
        model=event.get("model"),
        fingerprint=event.get("fingerprint"),
        forget=event.get("forget", "safe-vllm forget"),
        rung=event["entry"],
        is_observed=event.get("observes_only", False),
        costs=event.get("costs", {}),
        why=event.get("because") or "",
        fixed_in=tuple(event.get("fixed_in", ())),
    )
    return _at_rung(picture, event)


def _at_rung(picture: Picture, event: Event) -> Picture:
    """Return the picture with why it is degraded, if it is."""
    place = picture.ladder.index(picture.rung) if picture.rung in picture.ladder else 0
    if not place:
        return replace(picture, degraded=None)
    if picture.degraded and picture.degraded.rung == picture.rung:
        return picture
    lost = tuple(picture.costs[rung] for rung in picture.ladder[1 : place + 1] if rung in picture.costs)
    way_back = event.get("way_back") or f"stop, then `{picture.forget}`: the next launch starts at the top"
    degraded = Degraded(picture.rung, event["time"], picture.why, lost, way_back, picture.fixed_in)
    return replace(picture, degraded=degraded)


def _attempt_started(picture: Picture, event: Event) -> Picture:
    begun = replace(
        picture,
        state="starting",
        phase="init",
        rung=event["rung"],
        attempt=event["attempt"],
        attempt_since=event["time"],
        ready_since=None,
        ready_after_s=None,
        is_proven=False,
        waits_for=None,
    )
    return _at_rung(begun, event)


def _phase(picture: Picture, event: Event) -> Picture:
    return replace(picture, phase=event["phase"])


def _ready(picture: Picture, event: Event) -> Picture:
    return replace(picture, state="ready", phase="serving", ready_since=event["time"], ready_after_s=event["after_s"])


def _proven(picture: Picture, event: Event) -> Picture:
    return replace(picture, is_proven=True)


def _hang(picture: Picture, event: Event) -> Picture:
    # It is told of a server that is ended for it, and of no other.
    state: State = "stopping" if picture.state == "stopping" else "stepping-down"
    return replace(picture, state=state, ready_since=None, hangs=picture.hangs + 1)


def _stop_asked(picture: Picture, event: Event) -> Picture:
    return replace(picture, state="stopping", phase="shutdown")


def _attempt_ended(picture: Picture, event: Event) -> Picture:
    told = {one.name: event[one.name] for one in fields(Attempt) if one.name in event}
    ended = Attempt(**told)
    key = (ended.fault, ended.phase)
    return replace(
        picture,
        state="stopping" if picture.state == "stopping" else "stepping-down",
        recent=(*picture.recent, ended)[-RECENT:],
        attempts=picture.attempts + 1,
        faults={**picture.faults, key: picture.faults.get(key, 0) + 1},
        ready_since=None,
    )


def _step(picture: Picture, event: Event) -> Picture:
    return _at_rung(replace(picture, rung=event["rung"], why=event["reason"]), event)


def _gate(picture: Picture, event: Event) -> Picture:
    is_waiting = event["outcome"] == "waiting"
    waited_s = picture.gate_waited_s + event["waited_s"]
    return replace(picture, waits_for=event["gate"] if is_waiting else None, gate_waited_s=waited_s)


def _incident(picture: Picture, event: Event) -> Picture:
    recent = tuple(
        replace(one, incident=event["path"]) if one.attempt == event["attempt"] else one for one in picture.recent
    )
    return replace(picture, incidents=picture.incidents + (event["path"] is not None), recent=recent)


def _launch_ended(picture: Picture, event: Event) -> Picture:
    return replace(picture, state="ended", status=event["status"], reason=event["reason"], ready_since=None)


_CHANGES = {
    "launch-started": _launch_started,
    "attempt-started": _attempt_started,
    "phase": _phase,
    "ready": _ready,
    "proven": _proven,
    "hang": _hang,
    "stop-asked": _stop_asked,
    "attempt-ended": _attempt_ended,
    "step": _step,
    "gate": _gate,
    "incident": _incident,
    "launch-ended": _launch_ended,
}
