"""The directory of reports: each in a directory of its own, whole or not there, and never more than a set amount.

Everything here blocks for as long as the disk does: a running launch asks in a thread. Reports are only shown, so those
of another user are read too: root looks into what a service wrote.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from errno import EEXIST
from os import strerror, urandom
from pathlib import Path

from safe_vllm.errors import Trouble, reason_of
from safe_vllm.record.files import Unfit, make_directory, read, sync_directory, write
from safe_vllm.record.incident import FORM, Incident
from safe_vllm.record.incident_text import as_json, markdown, numbered, pasteable, pasted

FOLDER = "incidents"
MOST = 50
MOST_BYTES = 64 << 20
REPORT, DATA = "incident.md", "incident.json"
AROUND, TAIL, STACKS, COMMAND = "root-lines.txt", "log-tail.txt", "stacks.txt", "command.sh"
FILES = (REPORT, DATA, AROUND, TAIL, STACKS, COMMAND)
"""All that a directory of ours holds; one with anything else in it is not ours to remove."""
HALF = ".half"
"""How the name of a report ends that is being written; it also begins with a dot."""
HALF_LIVES_S = 3600.0
"""What is still half after that was left by a launcher that was killed."""
MOST_NAMES = 100
NAME = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z-([a-z0-9-]+?)(?:\.\d+)?")


@dataclass(frozen=True)
class Listed:
    """A report that is there. ``None``: it does not tell."""

    name: str
    path: Path
    time: str
    """Of the end of the attempt, in UTC."""
    fault: str
    rung: str | None = None
    attempt: int | None = None
    launch: str | None = None
    reason: str | None = None
    problem: str | None = None
    """What is wrong with it."""

    @property
    def summary(self) -> str:
        """What it is about, in a line."""
        if self.problem:
            return f"{self.time}  {self.fault}: {self.problem}"
        return f"{self.time}  attempt {self.attempt} at {self.rung}: {self.reason}"


def record(
    state: Path, incident: Incident, now: float | None = None, most: int = MOST, most_bytes: int = MOST_BYTES
) -> tuple[Path | None, str | None]:
    """Write a report below the state directory and remove the oldest; return where it is, and what went wrong."""
    folder, at = state / FOLDER, time.time() if now is None else now
    try:
        make_directory(state)
        make_directory(folder)
        path = _write(folder, incident, at)
    except OSError as error:
        return None, f"{folder}: the report on this attempt cannot be written: {reason_of(error)}; check --state-dir"
    try:
        _make_room(folder, path, at, most, most_bytes)
    except OSError as error:
        return path, f"{folder}: old reports cannot be removed: {reason_of(error)}"
    return path, None


def listed(state: Path) -> tuple[Listed, ...]:
    """Return the reports below a state directory, the newest first. Raises OSError where they may not be looked at."""
    return tuple(_look_at(path) for path in reversed(_directories(state / FOLDER)))


def find(state: Path, name: str) -> Listed | tuple[str, ...]:
    """Return the report with this name or an unambiguous beginning of it, else the names that begin so.

    Raises OSError where they may not be looked at.
    """
    paths = {path.name: path for path in _directories(state / FOLDER)}
    names = (name,) if name in paths else tuple(sorted(each for each in paths if each.startswith(name)))
    return _look_at(paths[names[0]]) if len(names) == 1 else names


def at(path: Path) -> Listed | None:
    """Return the report that lies at a path, whatever the state directory. Raises OSError."""
    return _look_at(path) if NAME.fullmatch(path.name) and path.is_dir() else None


def text_of(found: Listed, output: str = "text") -> str:
    """Return a report as it was written, as Markdown or, where ``output`` says so, as JSON. Raises Trouble."""
    path = found.path / (DATA if output == "json" else REPORT)
    try:
        content = read(path, of_anyone=True)
    except (Unfit, OSError) as error:
        reason = str(error) if isinstance(error, Unfit) else reason_of(error)
        raise Trouble(f"{path}: cannot be read: {reason}", hint="look at the other files there") from None
    if content is None:
        raise Trouble(f"{path}: it is gone", hint="look at the other files there")
    return content.decode("utf-8", "replace")


def contents(incident: Incident) -> Mapping[str, str]:
    """Return the files of a report by their names: short enough to be pasted, and the output and stacks in full."""
    short, root = pasteable(incident), incident.root.line if incident.root else None
    stacks = (f"{stack.title} (pid {stack.pid})\n{stack.text}\n" for stack in incident.stacks)
    files = {
        REPORT: pasted(markdown(short)),
        DATA: as_json(short),
        AROUND: "".join(f"{line}\n" for line in numbered(incident.around, root)),
        TAIL: "".join(f"{line}\n" for line in numbered(incident.tail, root)),
        STACKS: "\n".join(stacks),
        COMMAND: f"{incident.command}\n",
    }
    return {name: text for name, text in files.items() if text}


def _write(folder: Path, incident: Incident, at: float) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    half = folder / f".{stamp}.{urandom(4).hex()}{HALF}"
    half.mkdir(mode=0o700)
    known = _with_reports(folder, incident)
    try:
        path = _place(half, folder / f"{stamp}-{incident.death.fault}", known)
    except OSError:
        _remove(half)
        raise
    sync_directory(folder)
    return path


def _with_reports(folder: Path, incident: Incident) -> Incident:
    """Return the report with the names of those on earlier attempts of its launch, as far as they are written."""
    names: dict[int | None, str] = {}
    if incident.attempt > 1:
        names = {one.attempt: one.name for one in listed(folder.parent) if one.launch == incident.launch}
    return replace(incident, history=tuple(replace(past, report=names.get(past.attempt)) for past in incident.history))


def _place(half: Path, path: Path, incident: Incident) -> Path:
    """Write it and give it its name, or that with a number where another had the same fault in the same second."""
    names = (path, *(path.with_name(f"{path.name}.{number}") for number in range(2, MOST_NAMES)))
    for name in names:
        for file, text in contents(replace(incident, directory=str(name))).items():
            write(half / file, text.encode("utf-8", "backslashreplace"))
        try:
            return half.rename(name)
        except OSError:
            if not name.is_dir():  # else another launch was faster
                raise
    raise FileExistsError(EEXIST, strerror(EEXIST))


def _make_room(folder: Path, new: Path, at: float, most: int, most_bytes: int) -> None:
    for half in folder.glob(f".*{HALF}"):
        if abs(at - half.stat().st_mtime) > HALF_LIVES_S:
            _remove(half)
    others = [path for path in _directories(folder) if path != new]
    sizes = {path: _size(path) for path in (*others, new)}
    for path in others:
        if len(sizes) <= most and sum(sizes.values()) <= most_bytes:
            return
        if _remove(path):
            del sizes[path]


def _directories(folder: Path) -> list[Path]:
    """Return the directories of ours, the oldest first."""
    try:
        found = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and _is_directory(path)]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda path: path.name)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _size(path: Path) -> int:
    size = 0
    for name in FILES:
        with suppress(OSError):
            size += (path / name).lstat().st_size
    return size


def _remove(path: Path) -> bool:
    """Remove a directory of ours; return whether it is gone. What is not ours in it stays, and all the rest with it."""
    try:
        names = [each.name for each in path.iterdir()]
        if not all(name in FILES or name.endswith(".new") for name in names):
            return False
        for name in names:
            (path / name).unlink(missing_ok=True)
        path.rmdir()
    except FileNotFoundError:  # another launch was faster
        return True
    except OSError:
        return False
    return True


def _look_at(path: Path) -> Listed:
    parts = NAME.fullmatch(path.name)
    assert parts
    year, month, day, hour, minute, second, fault = parts.groups()
    known = Listed(path.name, path, f"{year}-{month}-{day}T{hour}:{minute}:{second}Z", fault)
    try:
        return _told(known, read(path / DATA, of_anyone=True))
    except OSError as error:
        return replace(known, problem=f"{DATA} cannot be read: {reason_of(error)}")
    except (Unfit, ValueError, RecursionError) as error:
        return replace(known, problem=f"{DATA} is damaged: {error}")


def _told(known: Listed, content: bytes | None) -> Listed:
    if content is None:
        raise Unfit("it is gone")
    found = json.loads(content)
    if not isinstance(found, dict) or found.get("form") != FORM:
        raise Unfit("it was written by another version of safe-vllm")
    texts = dict(_texts(found))
    attempt = found.get("attempt")
    return replace(
        known,
        rung=texts.get("rung"),
        attempt=attempt if isinstance(attempt, int) else None,
        launch=texts.get("launch"),
        reason=texts.get("reason"),
    )


def _texts(found: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    death = found.get("death")
    for name, value in {**found, **(death if isinstance(death, dict) else {})}.items():
        if isinstance(value, str):
            yield name, value
