"""The processes below one: who they are, how they ended, and how to end them. Standard library only."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from collections.abc import Callable, Iterator
from ctypes import CDLL, c_ulong, memmove
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
# include/uapi/linux/pidfd.h: _IOWR(0xFF, 11, 64 bytes), the flag that asks for the wait status, and its offset.
PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3
PIDFD_INFO_BYTES = 64
PIDFD_INFO_STATUS_OFFSET = 60
PR_SET_NAME = 15
FREEZE_LOOKS = 50
"""So often a tree is looked through for processes that were born meanwhile, before it is killed as it is."""


class Process(NamedTuple):
    """A process as ``/proc`` showed it. The start time tells it from a later one with the same number."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    """Clock ticks since boot."""
    is_zombie: bool


def become_subreaper() -> None:
    """Adopt descendants whose parent died, so that none of them can leave the tree. Linux 3.4."""
    CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, c_ulong(1), c_ulong(0), c_ulong(0), c_ulong(0))


def rename(title: str) -> None:
    """Call this process so, in place of its command line: ``pkill -f`` goes by that."""
    CDLL(None).prctl(PR_SET_NAME, title.encode()[:15])
    fields = _stat_fields(os.getpid())
    if fields and (start := int(fields[45])):
        room = int(fields[46]) - start
        memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)


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
    parent, group, session = map(int, fields[1:4])
    return Process(pid, parent, group, session, int(fields[19]), fields[0] in (b"Z", b"X"))


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
    """Return a pidfd for exactly this process, or ``None``: it is gone, or we hold too many descriptors."""
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


def send(known: Process, number: int) -> None:
    """Send a signal to exactly this process; nothing happens when it has ended."""
    descriptor = open_pidfd(known)
    try:
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
        elif _is_still(known):  # no descriptor is left for it: better a small risk than a survivor
            os.kill(known.pid, number)
    except OSError:
        pass
    finally:
        if descriptor is not None:
            os.close(descriptor)


def living_below(root: int) -> list[Process]:
    """Return every process below ``root`` that has not ended."""
    return [known for known in descendants(root) if not known.is_zombie]


def signal_below(root: int, number: int) -> None:
    """Send a signal to every living process below ``root``."""
    for known in living_below(root):
        send(known, number)


def freeze_below(root: int) -> None:
    """Stop every living process below ``root`` with SIGSTOP, so that none can start another one."""
    freeze(lambda: living_below(root))


def kill_below(root: int) -> None:
    """Kill every process below ``root``: first all are stopped, or those that fork would be ahead of us for ever."""
    kill(lambda: living_below(root))


def freeze(look: Callable[[], list[Process]]) -> None:
    """Stop whoever ``look`` finds, until a look finds nobody new."""
    stopped: set[tuple[int, int]] = set()
    for _ in range(FREEZE_LOOKS):
        new = [known for known in look() if (known.pid, known.started) not in stopped]
        if not new:
            return
        for group in {known.group for known in new if _is_of_others(known)}:
            _stop_group(group)
        for known in new:
            send(known, signal.SIGSTOP)
        stopped.update((known.pid, known.started) for known in new)


def kill(look: Callable[[], list[Process]]) -> None:
    """Stop whoever ``look`` finds, then kill them."""
    freeze(look)
    for known in look():
        send(known, signal.SIGKILL)


def _is_of_others(known: Process) -> bool:
    """Return whether a process's session is not ours: nobody can join a session, so all of it is below who began it.

    A group or session of zero is one that began outside of our PID namespace.
    """
    return known.group > 1 and known.session > 1 and known.session != os.getsid(0)


def _stop_group(group: int) -> None:
    """Stop a whole group at one moment; one by one, whoever forks and ends at once is never met.

    The number was read a moment ago: no kernel has gone once through all numbers since.
    """
    try:
        os.killpg(group, signal.SIGSTOP)
    except OSError:
        pass


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
