"""Who listens at a port or a socket file, as far as ``/proc`` shows it: other users' processes do not show theirs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
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


@dataclass(frozen=True)
class Sockets:
    """The sockets that listen at one place."""

    names: Mapping[str, str]
    """By inode, the path as it was bound to; empty for a port."""
    path: str = ""
    """Where the socket file really is."""

    def held_by(self, number: int) -> frozenset[str]:
        """Return those of them that a process holds, as far as it shows that."""
        held = self.names.keys() & _sockets_of(number) if self.names else ()
        return frozenset(inode for inode in held if self._is_there(self.names[inode], number))

    def _is_there(self, name: str, number: int) -> bool:
        """Return whether a name means our socket file; a relative one counts from where its process is."""
        if not name or name.startswith("/"):
            return not name or os.path.realpath(name) == self.path
        with suppress(OSError):
            return os.path.realpath(Path("/proc", str(number), "cwd").readlink() / name) == self.path
        return False


def at_port(number: int, *, listens: bool = True) -> Listener | None:
    """Return who listens at a TCP port of this machine, at whichever address; ``None``: nobody whom we see.

    ``listens``: otherwise who has any socket there counts, a client for example that was given this port.
    """
    return _holder_of(sockets_at_port(number, listens=listens))


def at_socket(path: str) -> Listener | None:
    """Return who listens at a socket file, as far as it still is where they bound it; ``None``: nobody whom we see."""
    return _holder_of(sockets_at(path))


def sockets_at_port(number: int, *, listens: bool = True) -> Sockets:
    """Return what listens at a TCP port, or what has it at all."""
    return Sockets(dict.fromkeys(_of_tcp(number, listens=listens), ""))


def sockets_at(path: str) -> Sockets:
    """Return what may listen at a socket file: a relative name is known for its process alone."""
    return Sockets(dict(_of_unix(os.path.basename(path))), os.path.realpath(path))  # noqa: PTH119  as it was bound to


def listener(number: int) -> Listener:
    """Return what there is to say of a process."""
    process = Path("/proc", str(number))
    words = (text_of(process / "cmdline") or "").rstrip("\0")
    return Listener(number, (text_of(process / "comm") or "").strip(), tuple(words.split("\0")) if words else ())


def everyone() -> Iterable[int]:
    """Return the number of every process that we see, the lowest first."""
    return sorted(int(path.name) for path in Path("/proc").glob("[0-9]*"))


def _holder_of(sockets: Sockets) -> Listener | None:
    """Return the process with such a socket; of several, the one with the lowest number started the others."""
    numbers = everyone() if sockets.names else ()
    return next((listener(number) for number in numbers if sockets.held_by(number)), None)


def _of_tcp(number: int, *, listens: bool) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _lines(table):
            fields = line.split()
            is_there = len(fields) > 9 and int(fields[1].rpartition(":")[2], 16) == number
            if is_there and (fields[3] == LISTENS or not listens):
                yield fields[9]


def _of_unix(last: str) -> Iterator[tuple[str, str]]:
    """Yield inode and name of what listens under a name that ends so.

    Anybody may choose a name: an abstract one may hold a newline, and what follows it looks like a line of the table.
    """
    for line in _lines("/proc/net/unix"):
        fields = line.split(" ", 6)
        inode, _, name = fields[-1].lstrip(" ").partition(" ")
        with suppress(ValueError, IndexError):
            if name.rpartition("/")[2] == last and int(fields[3], 16) & ACCEPTS:
                yield inode, name


def _lines(table: str) -> list[str]:
    return (text_of(Path(table)) or "").split("\n")[1:]


def _sockets_of(number: int) -> set[str]:
    """Return the inodes of the sockets that a process holds."""
    return {link[8:-1] for link in _links(number) if link.startswith("socket:[")}


def _links(number: int) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in Path("/proc", str(number), "fd").iterdir():
            with suppress(OSError):
                yield str(descriptor.readlink())
