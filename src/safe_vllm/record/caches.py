"""Directories of ours for caches that begin empty, where the operator's may hold what makes every start fail."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from safe_vllm.record import records
from safe_vllm.record.files import make_directory

FOLDER = "caches"
UNUSED_S = 86_400.0
"""What was not written to for so long, and is not remembered, belongs to no launch any more."""


def make(state: Path, launch: str) -> str | None:
    """Make a directory for the caches of one launch and remove those that nobody needs; ``None``: it cannot be."""
    folder = state / FOLDER
    try:
        make_directory(folder)
        _remove_unneeded(state, folder, time.time())
        place = folder / launch
        make_directory(place)
    except OSError:
        return None
    return str(place)


def _remove_unneeded(state: Path, folder: Path, now: float) -> None:
    """Remove what no record holds with. Raises OSError."""
    kept = records.kept_in(state)
    if any(one.record is None for one in kept):  # it may need one of them, and nobody can tell which
        return
    needed = {rung.held.caches for one in kept if one.record for rung in one.record.rungs.values() if rung.held}
    for place in folder.iterdir():
        if str(place) not in needed and now - place.lstat().st_mtime > UNUSED_S and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
