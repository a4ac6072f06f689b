"""The processes below one: who they are, how they ended, and how to end them. Standard library only."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
from collections.abc import Iterator
from ctypes import CDLL, c_ulong
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
# include/uapi/linux/pidfd.h: _IOWR(0xFF, 11, 64 bytes), the flag that asks for the wait status, and its offset.
PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3
PIDFD_INFO_BYTES = 64
PIDFD_INFO_STATUS_OFFSET = 60


class Process(NamedTuple):
    """A process as ``/proc`` showed it. The start time tells it from a later one with the same number."""

    pid: int
    parent: int
    session: int
    started: int
    """Clock ticks since boot."""
    is_zombie: bool


def become_subreaper() -> None:
    """Adopt descendants whose parent died, so that none of them can leave the tree. Linux 3.4."""
    CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, c_ulong(1), c_ulong(0), c_ulong(0), c_ulong(0))


def _stat_fields(pid: int) -> list[bytes] | None:
    """Return the fields of ``/proc/PID/stat`` from the third on, or ``None`` when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name, in parentheses, may hold any byte, a closing parenthesis included.
    return text[text.rindex(b")") + 2 :].split()


def process(pid: int) -> Process | None:
    """Return the process with this number, or ``None``."""
    fields = _stat_fields(pid)
    if not fields:
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in (b"Z", b"X"))


def descendants(root: int) -> list[Process]:
    """Return every process below ``root``, parents before children, zombies included."""
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := process(int(name))):
            children.setdefault(found.parent, []).append(found)
    return list(_below(root, children))


def _below(root: int, children: dict[int, list[Process]]) -> Iterator[Process]:
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(0), ()):
            yield child
            waiting.append(child.pid)


def title(pid: int) -> str:
    """Return what a process calls itself: its title where it set one, else the kernel's name for it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            first = _printable(file.read().split(b"\0", 1)[0])
        if first.startswith("VLLM::"):
            return first
        with open(f"/proc/{pid}/comm", "rb") as file:
            return _printable(file.read())
    except OSError:
        return ""


def _printable(name: bytes) -> str:
    """Return a name as text; a process may call itself anything, but not so that it looks like two lines."""
    text = name.decode(errors="replace").strip()
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)


def open_pidfd(known: Process) -> int | None:
    """Return a pidfd for exactly this process, or ``None`` when it is gone or its number belongs to another."""
    try:
        descriptor = os.pidfd_open(known.pid)
    except OSError:
        return None
    if not _is_still(known):
        os.close(descriptor)
        return None
    return descriptor


def _is_still(known: Process) -> bool:
    now = process(known.pid)
    return now is not None and now.started == known.started


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def send(known: Process, number: int) -> None:
    """Send a signal to exactly this process; nothing happens when it has ended."""
    try:
        descriptor = os.pidfd_open(known.pid)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE) and _is_still(known):  # better a small risk than a survivor
            _kill(known.pid, number)
        return
    try:
        if not _is_still(known):
            return
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def signal_below(root: int, number: int) -> None:
    """Send a signal to every living process below ``root``."""
    for known in descendants(root):
        if not known.is_zombie:
            send(known, number)


def ended_status(pid: int, pidfd: int) -> int | None:
    """Return how a process ended that need not be our child: status, or minus the signal; ``None``: not told.

    A zombie shows its wait status in ``/proc``; once it was reaped, the pidfd still knows it (Linux 6.15).
    """
    fields = _stat_fields(pid)
    if fields and fields[0] == b"Z" and len(fields) > 49:
        return os.waitstatus_to_exitcode(int(fields[49]))
    request = bytearray(PIDFD_INFO_BYTES)
    struct.pack_into("<Q", request, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, request)
    except OSError:
        return None
    if not struct.unpack_from("<Q", request, 0)[0] & PIDFD_INFO_EXIT:
        return None
    return os.waitstatus_to_exitcode(struct.unpack_from("<i", request, PIDFD_INFO_STATUS_OFFSET)[0])
