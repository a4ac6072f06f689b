"""Absolute paths below another root, so that a whole machine can be laid out in a directory.

What may not be looked at is not there for us: a launcher that runs as another user must not end for that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def below(root: Path, path: str | Path) -> Path:
    """Return where the absolute ``path`` lies when ``root`` stands for ``/``."""
    return root / str(path).lstrip("/")


def exists(path: Path) -> bool:
    """Return whether there is something at ``path``, as far as we may look."""
    return _answers(path.exists)


def is_file(path: Path) -> bool:
    """Return whether ``path`` is a file, as far as we may look."""
    return _answers(path.is_file)


def is_directory(path: Path) -> bool:
    """Return whether ``path`` is a directory, as far as we may look."""
    return _answers(path.is_dir)


def is_mute(path: Path) -> bool:
    """Return whether ``path`` is a FIFO that may never answer; ``<(…)`` of a shell is one, and does. Raises OSError."""
    return path.is_fifo() and not str(path).startswith(("/dev/", "/proc/"))


def _answers(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except (OSError, ValueError):  # not permitted, too long, a NUL in the name
        return False


def text_of(path: Path, limit: int = 1 << 20) -> str | None:
    """Return at most ``limit`` bytes of a file as text; ``None`` where it cannot be read.

    Only of a regular one: a FIFO may never answer, and what was read from it is gone for others.
    """
    if not is_file(path):
        return None
    try:
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
