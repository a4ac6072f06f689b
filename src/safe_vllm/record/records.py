"""All records of a state directory, for whoever shows or drops them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safe_vllm.errors import reason_of
from safe_vllm.printable import on_one_line
from safe_vllm.record import files, memory
from safe_vllm.record.files import Unfit
from safe_vllm.record.rungs_file import Record, Rung


@dataclass(frozen=True)
class Kept:
    """One file with what is remembered."""

    path: Path
    record: Record | None
    """``None``: it is none of ours, or cannot be read."""
    problem: str | None = None
    """Why."""

    @property
    def key(self) -> str:
        """The fingerprint, as the file is called."""
        return self.path.name.removesuffix(memory.ENDING)


@dataclass(frozen=True)
class Dropped:
    """What became of a record that was to be dropped."""

    kept: Kept
    aside: Path | None = None
    """Where it is now, if it was none of ours."""
    error: str | None = None
    """Why it is still there."""


def kept_in(directory: Path) -> tuple[Kept, ...]:
    """Return all that is remembered in a state directory. Raises OSError where it may not be looked into."""
    folder = directory / memory.FOLDER
    try:
        names = sorted(path for path in folder.iterdir() if path.name.endswith(memory.ENDING))
    except FileNotFoundError:
        return ()
    return tuple(_kept(path) for path in names if not path.name.startswith("."))


def drop(kept: Kept) -> Dropped:
    """Drop a record; a file that is none of ours gets another name."""
    try:
        with files.locked(kept.path.parent):
            try:  # a launcher may have written to it in the meantime
                record = memory.read(kept.path, of_anyone=True)
            except Unfit as reason:
                return Dropped(replace(kept, record=None, problem=str(reason)), aside=files.set_aside(kept.path))
            files.remove(kept.path)
            return Dropped(replace(kept, record=record))
    except OSError as error:
        return Dropped(kept, error=reason_of(error))


def summary(about: Mapping[str, Any]) -> str:
    """Return what a fingerprint is of, in one line. The file it comes from may hold anything."""
    software, gpus = about.get("software"), about.get("gpus")
    version = software.get("vllm") if isinstance(software, dict) else None
    devices = [f"{count} x {name}" for name, count in gpus.items()] if isinstance(gpus, dict) else []
    parts = [about.get("model"), f"vLLM {version}" if version else None, *devices]
    return ", ".join(on_one_line(part) for part in parts if part) or "nothing is known of it"


def rung_lines(record: Record) -> tuple[str, ...]:
    """Return what is remembered of each rung, in words."""
    return tuple(f"{on_one_line(name)} {said}" for name, rung in record.rungs.items() if (said := _told(rung)))


def _told(rung: Rung) -> str:
    if rung.held:
        return f"held ({times(rung.times_held)})"
    return f"broke ({times(rung.times_broken)}): {on_one_line(rung.broken.fault)}" if rung.broken else ""


def times(count: int) -> str:
    """Return how often, in words."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _kept(path: Path) -> Kept:
    try:
        return Kept(path, memory.read(path, of_anyone=True))
    except Unfit as reason:
        return Kept(path, None, str(reason))
    except OSError as error:
        return Kept(path, None, reason_of(error))
