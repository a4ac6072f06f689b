"""Small files that are whole at any moment: written beside, synced, renamed. What is in the way is put aside, not lost.

Everything here blocks for as long as the disk does, except for the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safe_vllm.atomic import FOR_US, opened, replace

LARGEST_BYTES = 1 << 20
"""No file of ours comes near."""
LOCK = ".lock"
LOCK_WAIT_S = 1.5
LOCK_PAUSE_S = 0.002
"""Short, so that one who writes without a break leaves others a chance."""
MAX_ASIDE = 8
"""So many of the files that were put aside are kept in a directory; the oldest goes first."""
ASIDE, NEW = ".aside-", ".new"


class Unfit(Exception):
    """What is at a place is no file of ours, or of another version: the reason, as the end of a sentence."""


def make_directory(path: Path) -> None:
    """Make a directory for this user alone, unless it is there. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def locked(directory: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Keep every other launcher out of a directory meanwhile. Raises OSError, TimeoutError among them."""
    descriptor = opened(directory / LOCK, os.O_RDWR, FOR_US)
    try:
        _lock(descriptor, time.monotonic() + wait_s, wait_s)
        yield
    finally:
        os.close(descriptor)


def read(path: Path, *, of_anyone: bool = False) -> bytes | None:
    """Return what a file holds; ``None``: there is none. Raises Unfit, and OSError.

    What another user owns is not believed, unless it is to be shown only: it may name directories to load code from.
    """
    try:
        # without waiting for a writer, where there is a FIFO in its place
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Unfit("it is no regular file") from None
        raise
    try:
        _check(os.fstat(descriptor), of_anyone=of_anyone)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(LARGEST_BYTES)
    finally:
        os.close(descriptor)


def write(path: Path, content: bytes) -> None:
    """Replace a file, or make it: afterwards the old or the new one is there, whole. Raises OSError."""
    replace(path, content, path.with_name(f".{path.name}.{os.urandom(4).hex()}{NEW}"), is_synced=True)
    sync_directory(path.parent)


def sweep(directory: Path) -> None:
    """Remove what writers left that were killed. Only under the lock of the directory."""
    for left in directory.glob(f".*{NEW}"):
        with suppress(OSError):  # it is no file, so no writer of ours left it
            left.unlink()


def set_aside(path: Path) -> Path:
    """Give a file that is not ours to replace another name, and return that. Only under the lock. Raises OSError."""
    older = sorted(path.parent.glob(f"*{ASIDE}*"), key=_number)
    number = _number(older[-1]) + 1 if older else 1
    aside = path.with_name(f"{path.name}{ASIDE}{number}")
    path.rename(aside)
    for outdated in older[: max(0, len(older) + 1 - MAX_ASIDE)]:
        with suppress(OSError):  # a directory, say: it takes no more room tomorrow than today
            outdated.unlink()
    with suppress(OSError):  # it has its new name, and that has to be told; the next write says what is wrong
        sync_directory(path.parent)
    return aside


def remove(path: Path) -> None:
    """Remove a file, and see to it that it stays so. Raises OSError."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """See to it that the names in a directory outlive a power cut, where the file system can. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _check(found: os.stat_result, *, of_anyone: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Unfit("it is no regular file")
    if not of_anyone and found.st_uid not in (os.geteuid(), 0):
        raise PermissionError(errno.EPERM, f"it belongs to another user ({found.st_uid})")
    if found.st_size > LARGEST_BYTES:
        raise Unfit(f"it has {found.st_size} bytes, and no file of ours has so many")


def _lock(descriptor: int, until: float, wait_s: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(errno.ETIMEDOUT, f"another process has had the lock for {wait_s:g} s") from None
        time.sleep(LOCK_PAUSE_S)


def _number(aside: Path) -> int:
    digits = aside.name.rpartition(ASIDE)[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
