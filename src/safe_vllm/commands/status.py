"""What ``status`` does: it tells what runs, what was remembered and which reports there are, or shows one report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from safe_vllm.announce.picture import VERSION
from safe_vllm.announce.standing import run_lines
from safe_vllm.errors import Status, Trouble, reason_of
from safe_vllm.printable import on_one_line, without_controls
from safe_vllm.record import directory, incidents, memory, records, run_file
from safe_vllm.record.incidents import Listed
from safe_vllm.record.records import Kept
from safe_vllm.record.run_file import Run

T = TypeVar("T")

LATEST = 10
"""So many reports are listed; the directory has the others."""


@dataclass(frozen=True)
class Place:
    """What one state directory holds."""

    path: Path
    runs: tuple[Run, ...] = ()
    kept: tuple[Kept, ...] = ()
    incidents: tuple[Listed, ...] = ()
    closed: tuple[str, ...] = ()
    """Which folders of it may not be looked into, and why; ``is_open``: whether that of the launches may."""
    is_open: bool = True


def places(asked: str | None, environment: Mapping[str, str] = os.environ) -> tuple[Place, ...]:
    """Look into every state directory that there is. Raises Trouble where the one that was asked for is missing."""
    return tuple(_place(path) for path in directory.to_read(asked, environment))


def told(
    found: tuple[Place, ...],
    output: str,
    now: datetime | None = None,
    environment: Mapping[str, str] = os.environ,
    system: Path = directory.OF_THE_SYSTEM,
) -> str:
    """Return all of it as text or as one JSON object; of nothing at all, where it was looked for."""
    if output == "json":
        return json.dumps({"places": [_as_object(place) for place in found]}, indent=2)
    lines = [line for place in found for line in _lines(place, now or datetime.now(timezone.utc))]
    if not found:
        where = _among(directory.places(None, environment, system))
        lines = [f"nothing runs, and nothing was kept, in {where}; {directory.ELSEWHERE}"]
    return "\n".join(map(on_one_line, lines))


def report(asked: str | None, name: str, output: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return one report, as Markdown or as JSON: that at a path, else the only one that is called or begins so.

    Raises Trouble where there is none.
    """
    if at := _at(name):
        return without_controls(incidents.text_of(at, output))
    there = directory.to_read(asked, environment)
    alike: list[str] = []
    closed: list[str] = []
    for place in there:
        try:
            found = incidents.find(place, name)
        except OSError as error:
            closed.append(_closed(place / incidents.FOLDER, error))
            continue
        if isinstance(found, Listed):
            return without_controls(incidents.text_of(found, output))
        alike += found
    if alike:
        text, hint = f"more than one report begins with {name!r}", f"give more of its name: {_some(alike)}"
        raise Trouble(text, hint=hint, status=Status.USAGE)
    if closed:
        raise Trouble(closed[0], hint="run it as the user whose directory that is")
    sought = there or directory.places(asked, environment)
    raise _unknown(name, tuple(map(_place, there)), sought)


def _at(name: str) -> Listed | None:
    """Return the report at a path, whose state directory may be any. Raises Trouble where it may not be looked at."""
    try:
        return incidents.at(Path(name))
    except OSError as error:
        raise Trouble(_closed(Path(name), error), hint="run it as the user whose report that is") from None


def _unknown(name: str, found: Sequence[Place], sought: Sequence[Path]) -> Trouble:
    """Return what to say of a name that no report has: what else it is, which reports there are, and what to do."""
    text = f"there is no report called {name!r}"
    if any(run.path.stem == name for place in found for run in place.runs):
        text += ", that is a launch"
    elif name and any(kept.key.startswith(name) for place in found for kept in place.kept):
        text += ", that is a fingerprint, for `safe-vllm forget`"
    if known := [one.name for place in found for one in place.incidents]:
        hint = f"give the name of one, or how it begins: {_some(known)}"
    elif found:
        hint = f"none was written yet in {_among(sought)}; `safe-vllm status` alone tells what runs"
    else:
        hint = f"looked in {_among(sought)}; {directory.ELSEWHERE}"
    return Trouble(text, hint=hint, status=Status.USAGE)


def _some(names: Sequence[str]) -> str:
    left = len(names) - LATEST
    return ", ".join(names[:LATEST]) + (f", and {left} more" if left > 0 else "")


def _among(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def _place(path: Path) -> Place:
    if not os.access(path, os.X_OK):
        return Place(path, closed=(f"{path}: cannot be looked into: permission denied",), is_open=False)
    closed: dict[str, str] = {}

    def seen(look: Callable[[Path], tuple[T, ...]], folder: str) -> tuple[T, ...]:
        try:
            return look(path)
        except OSError as error:
            closed[folder] = _closed(path / folder, error)
            return ()

    runs = tuple(map(_understood, seen(run_file.runs_in, run_file.FOLDER)))
    kept, reports = seen(records.kept_in, memory.FOLDER), seen(incidents.listed, incidents.FOLDER)
    return Place(path, runs, kept, reports, tuple(closed.values()), is_open=run_file.FOLDER not in closed)


def _understood(run: Run) -> Run:
    """Return the launch without what a newer release tells of it: what that means is not known here."""
    form = run.facts.get("v")
    if type(form) is not int or form <= VERSION:
        return run
    newer = f"a newer safe-vllm wrote it (form {str(form)[:9]}, this one knows {VERSION}); ask that one"
    return replace(run, facts={}, problem=f"{run.path}: {newer}")


def _closed(path: Path, error: OSError) -> str:
    return f"{path}: cannot be looked into: {reason_of(error)}"


def _lines(place: Place, now: datetime) -> list[str]:
    alive = [run for run in place.runs if run.is_alive]
    shown = alive or place.runs[:1]
    lines = [line for run in shown for line in run_lines(run.facts, is_alive=run.is_alive, now=now)]
    lines += ["a launch runs" for run in alive if not run.facts]
    lines += [run.problem for run in place.runs if run.problem]
    lines += [f"nothing runs, as far as {place.path} tells"] if not shown and place.is_open else []
    lines += place.closed
    if place.kept:
        lines += [f"remembered in {place.path}:", *(f"  {_kept(kept)}" for kept in place.kept)]
    if place.incidents:
        lines += [f"reports in {place.path / incidents.FOLDER}, the latest first:"]
        lines += [f"  {one.name}  {one.summary}" for one in place.incidents[:LATEST]]
        lines += [f"  and {len(place.incidents) - LATEST} more"] if len(place.incidents) > LATEST else []
    return lines


def _kept(kept: Kept) -> str:
    if kept.record is None:
        return f"{kept.key}: cannot be read: {kept.problem}"
    rungs = "; ".join(records.rung_lines(kept.record)) or "nothing yet"
    return f"{kept.key}: {records.summary(kept.record.about)}: {rungs}"


def _as_object(place: Place) -> dict[str, object]:
    return {
        "path": str(place.path),
        "closed": list(place.closed),
        "runs": [{**run.facts, "alive": run.is_alive, "problem": run.problem} for run in place.runs],
        "remembered": [
            {"fingerprint": kept.key, "problem": kept.problem, "about": kept.record.about if kept.record else {}}
            | {"rungs": list(records.rung_lines(kept.record)) if kept.record else []}
            for kept in place.kept
        ],
        "incidents": [{"name": one.name, "summary": one.summary, "path": str(one.path)} for one in place.incidents],
    }
