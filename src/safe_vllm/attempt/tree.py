"""The processes below one: who they are, and how to end them. Standard library only."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

GUARDIAN = "guardian of process"
"""How a guardian calls itself; the number of its launcher follows."""
NAME_BYTES = 15
"""So much of a title is the kernel's name for a process (TASK_COMM_LEN, less the NUL)."""
OF_VLLM = "VLLM::"
"""How the titles begin that vLLM gives to its engines and workers."""
FREEZE_LOOKS = 50
"""So often a tree is looked through for processes that were born meanwhile, before it is killed as it is."""
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""A look that fails so tells nothing of the process, and must be repeated."""


class Process(NamedTuple):
    """A process as ``/proc`` showed it. The start time tells it from a later one with the same number."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    """Clock ticks since boot."""
    is_zombie: bool


def stat_fields(pid: int) -> list[bytes] | None:
    """Return the fields of ``/proc/PID/stat`` from the third on, or ``None`` when there is no such process.

    Raises OSError when nobody can tell for now.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return None
    # The name, in parentheses, may hold any byte, a closing parenthesis included.
    return text[text.rindex(b")") + 2 :].split()


def process(pid: int) -> Process | None:
    """Return the process with this number, or ``None``. Raises OSError when nobody can tell for now."""
    fields = stat_fields(pid)
    if not fields:
        return None
    parent, group, session = map(int, fields[1:4])
    return Process(pid, parent, group, session, int(fields[19]), fields[0] in (b"Z", b"X"))


def descendants(root: int) -> list[Process]:
    """Return every process below ``root``, parents before children, zombies included.

    Raises OSError when nobody can tell for now.
    """
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


def name(pid: int) -> str:
    """Return the kernel's name for a process, 15 bytes of its title where it set one; empty: it is gone."""
    try:
        with open(f"/proc/{pid}/comm", "rb", 0) as file:
            return _printable(file.read())
    except OSError:
        return ""


def title(pid: int) -> str:
    """Return what a process calls itself: its title where it set one, else the kernel's name for it.

    Its command line is in its memory: it blocks as long as a page fault of that process is not answered, by a disk or a
    driver that hangs, and then belongs in a thread. ``name`` never does.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            first = _printable(file.read().split(b"\0", 1)[0])
    except OSError:
        return ""
    return first if first.startswith(OF_VLLM) else name(pid)


def _printable(given: bytes) -> str:
    """Return a name as text; a process may call itself anything, but not so that it looks like two lines."""
    text = given.decode(errors="replace").strip()
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)


def open_pidfd(known: Process) -> int | None:
    """Return a pidfd for exactly this process, or ``None``: it is gone, or we hold too many descriptors.

    Raises OSError when nobody can tell for now.
    """
    try:
        descriptor = os.pidfd_open(known.pid)
    except OSError:
        return None
    try:
        is_still = _is_still(known)
    except OSError:
        os.close(descriptor)
        raise
    if not is_still:
        os.close(descriptor)
        return None
    return descriptor


def _is_still(known: Process) -> bool:
    now = process(known.pid)
    return now is not None and now.started == known.started


def send(known: Process, number: int) -> None:
    """Send a signal to exactly this process; nothing happens when it has ended, or may not be signalled by us.

    Raises OSError when nobody can tell for now whether it is still that process.
    """
    try:
        _send(known, number)
    except (ProcessLookupError, PermissionError):
        pass


def _send(known: Process, number: int) -> None:
    descriptor = open_pidfd(known)
    if descriptor is None:
        if _is_still(known):  # no descriptor is left for it: better a small risk than a survivor
            os.kill(known.pid, number)
        return
    try:
        signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def is_foreign(known: Process) -> bool:
    """Return whether a process belongs to somebody whose processes we may not signal: it became root, as sudo does."""
    try:
        _send(known, 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _send_all(found: Iterable[Process], number: int) -> None:
    """Send a signal to each of these. Raises OSError, at the end, when one could not be told from a later process."""
    failed = None
    for known in found:
        try:
            send(known, number)
        except OSError as error:
            failed = error
    if failed:
        raise failed


def living_below(root: int) -> list[Process]:
    """Return every process below ``root`` that has not ended."""
    return [known for known in descendants(root) if not known.is_zombie]


def signal_below(root: int, number: int) -> None:
    """Send a signal to every living process below ``root``."""
    _send_all(living_below(root), number)


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
        _send_all(new, signal.SIGSTOP)
        stopped.update((known.pid, known.started) for known in new)


def kill(look: Callable[[], list[Process]]) -> None:
    """Stop whoever ``look`` finds, then kill them."""
    freeze(look)
    _send_all(look(), signal.SIGKILL)


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
