"""Who listens at a port or a socket file, as far as ``/proc`` shows it: other users' processes do not show theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from safe_vllm.machine.rooted import text_of

LISTENS = "0A"
"""A socket's state in ``/proc/net/tcp``: ``TCP_LISTEN``."""
ACCEPTS = 1 << 16
"""A socket's flag in ``/proc/net/unix``: ``__SO_ACCEPTCON``."""


@dataclass(frozen=True)
class Listener:
    """A process that answers."""

    pid: int
    name: str
    words: tuple[str, ...] = ()
    """Its command line, secrets and all; none where it cannot be read."""


def at_port(number: int, *, listens: bool = True) -> Listener | None:
    """Return who listens at a TCP port of this machine, at whichever address; ``None``: nobody whom we see.

    ``listens``: otherwise who has any socket there counts, a client for example that was given this port.
    """
    return _holder_of(_of_tcp(number, listens=listens))


def at_socket(path: str) -> Listener | None:
    """Return who listens at a socket file, by the path that it was bound to; ``None``: nobody whom we see."""
    return _holder_of(_of_unix(path))


def _holder_of(inodes: Iterator[str]) -> Listener | None:
    """Return the process with such a socket; of several, the one with the lowest number started the others."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    numbers = sorted(int(path.name) for path in Path("/proc").glob("[0-9]*")) if wanted else ()
    return next((_listener(number) for number in numbers if wanted & set(_links(number))), None)


def _listener(number: int) -> Listener:
    process = Path("/proc", str(number))
    words = (text_of(process / "cmdline") or "").rstrip("\0")
    return Listener(number, (text_of(process / "comm") or "").strip(), tuple(words.split("\0")) if words else ())


def _of_tcp(number: int, *, listens: bool) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (text_of(Path(table)) or "").splitlines()[1:]:
            fields = line.split()
            is_there = len(fields) > 9 and int(fields[1].rpartition(":")[2], 16) == number
            if is_there and (fields[3] == LISTENS or not listens):
                yield fields[9]


def _of_unix(path: str) -> Iterator[str]:
    for line in (text_of(Path("/proc/net/unix")) or "").splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) > 7 and fields[7] == path and int(fields[3], 16) & ACCEPTS:
            yield fields[6]


def _links(number: int) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in Path("/proc", str(number), "fd").iterdir():
            with suppress(OSError):
                yield str(descriptor.readlink())
