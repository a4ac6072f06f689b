"""What a launch is doing now, in a file for ``status``: also for another user, and after the launch was killed."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safe_vllm import atomic
from safe_vllm.errors import reason_of
from safe_vllm.record.directory import make
from safe_vllm.record.files import Unfit, read
from safe_vllm.record.rungs_file import DEEPEST, is_deeper, plain_json

FOLDER = "run"
ENDING, LOCK_ENDING, NEW_ENDING = ".json", ".lock", ".new"
NAME = re.compile(r"\d+-[0-9a-f]+")
"""How a launch is called (``events.Origin``)."""
REMOVABLE = re.compile(r"[1-9]\d{0,6}-[0-9a-f]{11}")
"""Of those what may be removed: a process and milliseconds since 2004, and not ``2026-11`` or ``20261130-120000``."""
KEPT = 5
"""So many launches that are over are still told of; what is kept of older ones is in the incidents."""
FOR_ALL, FOLDER_FOR_ALL = 0o644, 0o755
"""They hold no secrets, and whoever looks after a machine is seldom the user who runs the server."""


class RunFile:
    """The file of one launch. It is replaced as a whole; its lock tells that the launch lives, in any namespace."""

    def __init__(self, directory: Path, launch: str) -> None:
        """Take the lock. Raises OSError."""
        self._folder = directory / FOLDER
        self._path = self._folder / f"{launch}{ENDING}"
        self._lock: int | None = None
        self._take()

    def write(self, facts: Mapping[str, Any]) -> str | None:
        """Replace what it says; return why that did not work. It is not synced: after a crash nothing runs anyway."""
        try:
            self._take()
            try:
                self._replace(facts)
            except OSError:  # on a full disk the old one takes the room, and tells what is no longer true
                self._path.unlink(missing_ok=True)
                self._replace(facts)
        except OSError as error:
            return f"{self._path}: what runs now cannot be told: {reason_of(error)}"
        return None

    def tidy(self) -> None:
        """Remove all but the latest files of launches that are over."""
        with suppress(OSError):
            others = [path for path in _paths(self._folder) if path != self._path and _may_go(path)]
            for path in [path for path in others if not _is_alive(path)][KEPT:]:
                for ending in (ENDING, NEW_ENDING, LOCK_ENDING):
                    path.with_suffix(ending).unlink(missing_ok=True)

    def _take(self) -> None:
        """Take the lock, unless we have it and it is still there: somebody may have cleaned up. Raises OSError."""
        if self._lock is not None:
            if os.fstat(self._lock).st_nlink:
                return
            os.close(self._lock)
            self._lock = None
        make(self._folder.parent)
        make(self._folder, FOLDER_FOR_ALL)
        self._lock = atomic.opened(self._path.with_suffix(LOCK_ENDING), os.O_RDWR, FOR_ALL)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _replace(self, facts: Mapping[str, Any]) -> None:
        atomic.replace(self._path, json.dumps(facts).encode(), self._path.with_suffix(NEW_ENDING), FOR_ALL)


@dataclass(frozen=True)
class Run:
    """A launch as its file tells of it."""

    path: Path
    is_alive: bool
    facts: Mapping[str, Any]
    """As ``announce.picture.facts`` makes them; empty where the file cannot be read."""
    problem: str | None = None


def runs_in(directory: Path) -> tuple[Run, ...]:
    """Return the launches of a state directory, the latest first. Raises OSError where it may not be looked into."""
    try:
        return tuple(_run(path) for path in _paths(directory / FOLDER))
    except FileNotFoundError:
        return ()


def others_live(directory: Path, launch: str) -> bool:
    """Return whether another launch runs. Raises OSError where that cannot be told."""
    return any(run.is_alive and run.path.stem != launch for run in runs_in(directory))


def _run(path: Path) -> Run:
    is_alive = _is_alive(path)
    try:
        found = plain_json(read(path, of_anyone=True) or b"")
    except OSError as error:
        return Run(path, is_alive, {}, f"{path}: {reason_of(error)}")
    except (Unfit, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or is_deeper(found, DEEPEST):
        return Run(path, is_alive, {}, f"{path}: it is no JSON of ours")
    return Run(path, is_alive, found)


def _paths(folder: Path) -> list[Path]:
    """Return the files of all launches, the latest first."""
    with os.scandir(folder) as entries:
        found = [(entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in entries if _is_one(entry)]
    return [Path(path) for _, path in sorted(found, reverse=True)]


def _is_one(entry: os.DirEntry[str]) -> bool:
    is_named = entry.name.endswith(ENDING) and NAME.fullmatch(entry.name.removesuffix(ENDING)) is not None
    return is_named and entry.is_file(follow_symlinks=False)


def _may_go(path: Path) -> bool:
    """Return whether a launch made it: the operator may have a ``run`` of his own where he lets us write."""
    lock = path.with_suffix(LOCK_ENDING)
    return REMOVABLE.fullmatch(path.stem) is not None and lock.is_file() and not lock.is_symlink()


def _is_alive(path: Path) -> bool:
    """Return whether somebody holds the lock: its launch, wherever that runs."""
    try:
        descriptor = os.open(path.with_suffix(LOCK_ENDING), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
