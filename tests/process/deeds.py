"""Runs a deed in a process of its own that is killed at a chosen call of the operating system."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pathlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

When = Literal["before", "amid", "after"]
"""Before the call, in the middle of it (of a write: half is written), or after it."""

CALLS = ((os, "open write fsync replace rename unlink mkdir link"), (fcntl, "flock"))


@dataclass(frozen=True)
class Kill:
    """When a process is killed."""

    at: int
    """The number of the call, from 0."""
    when: When


@dataclass
class Calls:
    """The calls of a process that change files, as it makes them."""

    kill: Kill | None
    fails: int | None = None
    """The errno with which every write and every sync fails; ``None``: they do not."""
    made: list[tuple[str, str]] = field(default_factory=list)
    """Name of the call, and of the file."""

    def watch(self) -> None:
        """Put ourselves between Python and the operating system."""
        own = getattr(pathlib, "_normal_accessor", None)  # Python 3.10 keeps references of its own
        for module, names in CALLS:
            for name in names.split():
                watched = self._watched(name, getattr(module, name))
                for each in (module, own):
                    if hasattr(each, name):
                        setattr(each, name, watched)

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **more: Any) -> Any:
            self.made.append((name, _named(given[0])))
            is_now = self.kill is not None and self.kill.at == len(self.made) - 1
            if is_now and self.kill and self.kill.when != "after":
                if self.kill.when == "amid" and name == "write":
                    call(given[0], given[1][: len(given[1]) // 2])
                _die()
            if self.fails is not None and name in ("write", "fsync"):
                raise OSError(self.fails, os.strerror(self.fails))
            try:
                return call(*given, **more)
            finally:
                if is_now:
                    _die()

        return watched


def made_by(deed: Callable[[], object], kill: Kill | None = None) -> list[tuple[str, str]] | None:
    """Do a deed in another process; return the calls that it made, or ``None`` when it was killed on the way."""
    answer, answer_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            calls = Calls(kill)
            write = os.write
            calls.watch()
            deed()
            write(answer_end, json.dumps(calls.made).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(answer_end)
    with os.fdopen(answer) as file:
        told = file.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL and not told
        return None
    assert status == 0, "the deed failed by itself"
    return [(name, path) for name, path in json.loads(told)]


def _named(place: object) -> str:
    if isinstance(place, int):
        try:
            return Path(f"/proc/self/fd/{place}").readlink().name
        except OSError as error:
            return errno.errorcode[error.errno or 0]
    return Path(str(place)).name


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
