"""What ``forget`` does: it drops what was remembered, and tells what that was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safe_vllm.errors import Status, Trouble, did_you_mean, reason_of
from safe_vllm.printable import on_one_line
from safe_vllm.record import directory, records
from safe_vllm.record.records import Dropped, Kept


@dataclass(frozen=True)
class Forgotten:
    """What became of what was remembered."""

    places: tuple[Path, ...]
    """The state directories that were looked into."""
    dropped: tuple[Dropped, ...]
    closed: tuple[str, ...] = ()
    """State directories that may not be looked into, with the reason."""
    sought: tuple[Path, ...] = ()
    """Where a state directory was looked for."""

    @property
    def failures(self) -> tuple[Dropped, ...]:
        """Those that are still there."""
        return tuple(each for each in self.dropped if each.error)


def forget(
    asked: str | None,
    fingerprints: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    system: Path = directory.OF_THE_SYSTEM,
) -> Forgotten:
    """Drop all that is remembered, or what begins with one of these fingerprints. Raises Trouble for unknown ones."""
    places = directory.to_read(asked, environment, system)
    found: list[Kept] = []
    closed: list[str] = []
    for place in places:
        try:
            found += records.kept_in(place)
        except OSError as error:
            closed.append(f"{place}: cannot be looked into: {reason_of(error)}")
    if closed and (asked or not _is_any(found, fingerprints)):  # what is meant may lie where we may not look
        raise Trouble(closed[0], hint="run it as the user whose directory that is")
    meant = _meant(found, fingerprints) if fingerprints else found
    sought = directory.places(asked, environment, system)
    return Forgotten(places, tuple(records.drop(kept) for kept in meant), tuple(closed), sought)


def told(forgotten: Forgotten, output: str) -> str:
    """Return what was done as text or as one JSON object."""
    if output == "json":
        return json.dumps(_as_json_object(forgotten), indent=2)
    lines = [_line(each) for each in forgotten.dropped if not each.error] or [_nothing(forgotten)]
    return "\n".join(map(on_one_line, (*lines, *forgotten.closed)))


def raise_for_failures(forgotten: Forgotten) -> None:
    """Raise Trouble when something is still remembered that should not be."""
    if failures := forgotten.failures:
        said = ", ".join(f"{each.kept.path}: cannot be dropped: {each.error}" for each in failures)
        raise Trouble(said, hint="run it as the user whose directory that is, and where it may be written")


def _is_any(found: Sequence[Kept], fingerprints: Sequence[str]) -> bool:
    """Return whether there is something of each fingerprint, or anything at all where none is named."""
    return all(any(kept.key.startswith(wanted) for kept in found) for wanted in fingerprints or ("",))


def _meant(found: Sequence[Kept], fingerprints: Sequence[str]) -> list[Kept]:
    for wanted in fingerprints:
        if not wanted or not any(kept.key.startswith(wanted) for kept in found):
            known = [kept.key for kept in found]
            hint = did_you_mean(wanted, known) if known else ": there is none at all"
            raise Trouble(f"nothing is remembered under {wanted!r}{hint}", status=Status.USAGE)
    return [kept for kept in found if kept.key.startswith(tuple(fingerprints))]


def _line(dropped: Dropped) -> str:
    kept = dropped.kept
    if dropped.aside:
        return f"put aside {kept.path} as {dropped.aside.name}: {kept.problem}"
    if kept.record is None:
        return f"forgot {kept.key}: it was gone already"
    rungs = "; ".join(records.rung_lines(kept.record))
    return f"forgot {kept.key}: {records.summary(kept.record.about)}" + (f": {rungs}" if rungs else "")


def _nothing(forgotten: Forgotten) -> str:
    where = ", ".join(map(str, forgotten.places or forgotten.sought))
    return f"nothing is remembered in {where}" + ("" if forgotten.places else f"; {directory.ELSEWHERE}")


def _as_json_object(forgotten: Forgotten) -> dict[str, object]:
    return {
        "places": [str(place) for place in forgotten.places],
        "dropped": [_as_object(each) for each in forgotten.dropped if not each.error and not each.aside],
        "put_aside": [
            {"path": str(each.kept.path), "aside": str(each.aside), "reason": each.kept.problem}
            for each in forgotten.dropped
            if each.aside
        ],
        "failed": [{"path": str(each.kept.path), "reason": each.error} for each in forgotten.failures],
        "closed": list(forgotten.closed),
    }


def _as_object(dropped: Dropped) -> dict[str, object]:
    kept = dropped.kept
    record = kept.record
    return {
        "fingerprint": kept.key,
        "path": str(kept.path),
        "about": record.about if record else {},
        "rungs": list(records.rung_lines(record)) if record else [],
    }
