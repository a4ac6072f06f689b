"""Files that are whole at any moment: written beside, then renamed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

FOR_US = 0o600


def replace(path: Path, content: bytes, new: Path, mode: int = FOR_US, *, is_synced: bool = False) -> None:
    """Write ``new`` and rename it: afterwards the old or the new file is at ``path``, whole. Raises OSError.

    What was left half is removed. ``is_synced``: a power cut, too, leaves nothing half.
    """
    try:
        _write(new, content, mode, is_synced=is_synced)
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


def _write(new: Path, content: bytes, mode: int, *, is_synced: bool) -> None:
    descriptor = opened(new, os.O_WRONLY | os.O_TRUNC, mode)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        if is_synced:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def opened(path: Path, flags: int, mode: int) -> int:
    """Open a file, or make it: where others may read it, with this mode whatever the umask. Raises OSError."""
    # without waiting for a reader, where there is a FIFO in its place
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    try:
        if mode != FOR_US:
            os.fchmod(descriptor, mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
