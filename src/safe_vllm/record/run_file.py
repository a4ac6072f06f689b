"""What a launch is doing now, in a file for ``status``: also for another user, and after the launch was killed."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safe_vllm.record.files import LARGEST_BYTES, reason_of

FOLDER = "run"
ENDING, LOCK_ENDING, NEW_ENDING = ".json", ".lock", ".new"
KEPT = 5
"""So many launches that are over are still told of; what is kept of older ones is in the incidents."""
FOR_ALL = 0o644
"""It holds no secrets, and whoever looks after a machine is seldom the user who runs the server."""


class RunFile:
    """The file of one launch. It is replaced as a whole; its lock tells that the launch lives, in any namespace."""

    def __init__(self, directory: Path, launch: str) -> None:
        """Take the lock. Raises OSError."""
        self._folder = directory / FOLDER
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._path = self._folder / f"{launch}{ENDING}"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._lock = os.open(self._path.with_suffix(LOCK_ENDING), flags, FOR_ALL)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, facts: Mapping[str, Any]) -> str | None:
        """Replace what it says; return why that did not work. It is not synced: after a crash nothing runs anyway."""
        new = self._path.with_suffix(NEW_ENDING)
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FOR_ALL)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                json.dump(facts, file, ensure_ascii=False)
            new.replace(self._path)
        except OSError as error:
            return f"{self._path}: what runs now cannot be told: {reason_of(error)}"
        return None

    def tidy(self) -> None:
        """Remove all but the latest files of launches that are over."""
        with suppress(OSError):
            over = [path for path in _paths(self._folder) if path != self._path and not _is_alive(path)]
            for path in over[KEPT:]:
                for ending in (ENDING, NEW_ENDING, LOCK_ENDING):
                    path.with_suffix(ending).unlink(missing_ok=True)


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


def _run(path: Path) -> Run:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(LARGEST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it is no JSON of ours"
        return Run(path, _is_alive(path), {}, f"{path}: {reason}")
    if not isinstance(found, dict):
        return Run(path, _is_alive(path), {}, f"{path}: it is no JSON of ours")
    return Run(path, _is_alive(path), found)


def _paths(folder: Path) -> list[Path]:
    """Return the files of all launches, the latest first."""
    with os.scandir(folder) as entries:
        found = [(entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in entries if _is_one(entry)]
    return [Path(path) for _, path in sorted(found, reverse=True)]


def _is_one(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(ENDING) and entry.is_file(follow_symlinks=False)


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
