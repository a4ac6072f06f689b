"""What is remembered from launch to launch: which rungs broke and which one held, for one fingerprint.

Nothing here raises: what went wrong is returned as sentences. It blocks for as long as the disk does, so a running
launch asks in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from safe_vllm.errors import reason_of
from safe_vllm.plan.remembered import Remembered
from safe_vllm.record import files, rungs_file
from safe_vllm.record.files import Unfit
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.rungs_file import BrokenMark, HeldMark, Record, Span

FOLDER = "remembered"
ENDING = ".json"
MAX_RECORDS = 100
"""Of so many fingerprints something is kept; a new one takes the place of the oldest."""
HINT = "check --state-dir"

Problems = tuple[str, ...]
"""Sentences for the operator; empty: all went well."""


class Recalled(NamedTuple):
    """What is believed, and what went wrong on the way."""

    remembered: Remembered
    problems: Problems = ()


@dataclass(frozen=True)
class Memory:
    """The memory of one fingerprint."""

    directory: Path | None
    """The state directory; ``None``: there is none, and nothing is remembered."""
    fingerprint: Fingerprint
    remember_for_days: float
    """Zero: nothing is read and nothing is written."""

    @property
    def is_on(self) -> bool:
        """Whether anything is remembered at all."""
        return self.directory is not None and self.remember_for_days > 0

    def recall(self, now: float, *, changes_nothing: bool = False) -> Recalled:
        """Return what is believed; what cannot be read is put aside, unless nothing is to be changed."""
        if self.directory is None or not self.is_on:
            return Recalled(Remembered())
        path = self._path(self.directory)
        try:
            record, problems = _looked_at(path) if changes_nothing else _recovered(path)
        except OSError as error:
            return Recalled(Remembered(), (f"{path}: what is remembered cannot be read: {reason_of(error)}; {HINT}",))
        span = Span(now, self.remember_for_days)
        return Recalled(rungs_file.believed(record, span) if record else Remembered(), problems)

    def note_broken(self, rung: str, fault: str, suspect: str, phase: str, now: float) -> Problems:
        """Keep that the server died at a rung. To be called before anything else is started."""
        mark = BrokenMark(fault, suspect, phase, now)
        return self._change(partial(rungs_file.with_broken, rung=rung, mark=mark), now, f"that {rung} broke")

    def note_held(self, rung: str, now: float, caches: str | None = None) -> Problems:
        """Keep that the server proved itself at a rung; ``caches``: the directory of ours with which it did."""
        return self._change(
            partial(rungs_file.with_held, rung=rung, mark=HeldMark(now, caches)), now, f"that {rung} held"
        )

    def drop(self) -> Problems:
        """Forget everything, as where every rung broke."""
        if self.directory is None or not self.is_on:
            return ()
        path = self._path(self.directory)
        try:
            with files.locked(path.parent):
                _, problems = _read_or_set_aside(path)
                files.remove(path)
                return problems
        except FileNotFoundError:  # there never was anything
            return ()
        except OSError as error:
            return (f"{path}: cannot be dropped: {reason_of(error)}; {HINT}",)

    def _path(self, directory: Path) -> Path:
        return directory / FOLDER / f"{self.fingerprint.key}{ENDING}"

    def _change(self, change: Callable[[Record], Record], now: float, what: str) -> Problems:
        if self.directory is None or not self.is_on:
            return ()
        path, span = self._path(self.directory), Span(now, self.remember_for_days)
        problems: list[str] = []
        try:
            files.make_directory(path.parent)
            with files.locked(path.parent):
                files.sweep(path.parent)
                found, said = _read_or_set_aside(path)
                problems += said
                record = found or rungs_file.empty(self.fingerprint.key, self.fingerprint.about)
                files.write(path, rungs_file.as_bytes(change(rungs_file.without_expired(record, span))))
                problems += () if found else _make_room(path)
        except OSError as error:
            problems.append(f"{path}: it could not be kept {what}: {reason_of(error)}; {HINT}")
        return tuple(problems)


def read(path: Path, *, of_anyone: bool = False) -> Record | None:
    """Return what one file holds; ``None``: there is none. Raises Unfit, and OSError."""
    content = files.read(path, of_anyone=of_anyone)
    return None if content is None else rungs_file.parse(content, path.name.removesuffix(ENDING))


def _looked_at(path: Path) -> tuple[Record | None, Problems]:
    """Return what a file holds, or why it is not believed. Raises OSError."""
    try:
        return read(path), ()
    except Unfit as reason:
        return None, (f"{path}: {reason}, so it is not believed",)


def _recovered(path: Path) -> tuple[Record | None, Problems]:
    """Return what a file holds, or what was done about one that is not ours. Raises OSError."""
    try:
        return read(path), ()
    except Unfit:
        with files.locked(path.parent):  # it may be another's turn to write there, or to put it aside
            return _read_or_set_aside(path)


def _read_or_set_aside(path: Path) -> tuple[Record | None, Problems]:
    """Return what a file holds, and what was done about one that is not ours. Only under the lock. Raises OSError."""
    try:
        return read(path), ()
    except Unfit as reason:
        aside = files.set_aside(path)
        return None, (f"{path}: {reason}; it was put aside as {aside.name}, and nothing in it is believed",)


def _make_room(new: Path) -> Problems:
    """Remove the oldest records where there are too many with the ``new`` one, and say so. Raises OSError."""
    others = sorted(set(new.parent.glob(f"*{ENDING}")) - {new}, key=lambda path: path.lstat().st_mtime)
    outdated = [path for path in others[: max(0, len(others) + 1 - MAX_RECORDS)] if path.is_file()]
    for path in outdated:
        files.remove(path)
    return tuple(f"{path}: the oldest of {MAX_RECORDS} records, dropped to make room" for path in outdated)
