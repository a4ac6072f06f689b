"""Absolute paths below another root, so that a whole machine can be laid out in a directory."""

from __future__ import annotations

from pathlib import Path


def below(root: Path, path: str | Path) -> Path:
    """Return where the absolute ``path`` lies when ``root`` stands for ``/``."""
    return root / str(path).lstrip("/")


def text_of(path: Path, limit: int = 1 << 20) -> str | None:
    """Return at most ``limit`` bytes of a file as text; ``None`` where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return None
