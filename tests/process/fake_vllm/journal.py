# ruff: noqa: PTH118, PTH123 - pathlib takes as long to import as all of the rest
"""What the fake writes down for the tests: one JSON object per line, in one write, so that processes do not mix."""

from __future__ import annotations

import json
import os
import time
from typing import Any


def note(kind: str, **facts: Any) -> None:
    """Append one line to the journal."""
    line = json.dumps({"kind": kind, "pid": os.getpid(), "born": born(os.getpid()), "at": time.monotonic(), **facts})
    written = os.open(_path("journal"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(written, line.encode() + b"\n")
    finally:
        os.close(written)


def entries() -> list[dict[str, Any]]:
    """Return all that was noted so far, by this process and by others."""
    try:
        with open(_path("journal"), "rb") as lines:
            return [json.loads(line) for line in lines]
    except FileNotFoundError:
        return []


def next_attempt() -> int:
    """Count this attempt; the file's length is the count, so two attempts at a time get two numbers."""
    counted = os.open(_path("attempts"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(counted, b".")
        return os.lseek(counted, 0, os.SEEK_CUR)
    finally:
        os.close(counted)


def born(pid: int) -> str | None:
    """Return when a process started, in the kernel's ticks; ``None`` when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rsplit(b")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def still_alive() -> list[str]:
    """Return the titles of noted processes that have not ended, this one aside."""
    noted = {
        (entry["pid"], entry["born"]): entry["title"] for entry in entries() if entry["kind"] in ("start", "process")
    }
    return [title for (pid, since), title in noted.items() if pid != os.getpid() and born(pid) == since]


def _path(name: str) -> str:
    return os.path.join(os.environ["FAKE_VLLM_JOURNAL"], name)
