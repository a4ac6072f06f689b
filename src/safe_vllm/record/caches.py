"""Directories of ours for caches that begin empty, where the operator's may hold what makes every start fail."""

from __future__ import annotations

import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

from safe_vllm.record import records, run_file
from safe_vllm.record.files import make_directory

FOLDER = "caches"
UNUSED_S = 86_400.0
"""What was not written to for so long, and is not remembered, belongs to no launch any more."""


def make(state: Path, launch: str) -> str | None:
    """Make a directory for the caches of one launch and remove those that nobody needs; ``None``: it cannot be."""
    folder = state / FOLDER
    try:
        make_directory(folder)
        with suppress(OSError):  # who may not look in there has a place all the same
            _remove_unneeded(state, folder, launch)
        place = folder / launch
        make_directory(place)
    except OSError:
        return None
    return str(place)


def _remove_unneeded(state: Path, folder: Path, launch: str) -> None:
    """Remove what no record holds with and no server uses. Raises OSError.

    A server may use what another launch made, also after the record of that is gone: nothing goes while one runs.
    """
    kept = records.kept_in(state)
    if folder.is_symlink() or run_file.others_live(state, launch) or any(one.record is None for one in kept):
        return
    marks = [rung.held for one in kept if one.record for rung in one.record.rungs.values() if rung.held]
    needed = {Path(mark.caches).name for mark in marks if mark.caches}  # the directory has more than one spelling
    for place in folder.iterdir():
        if place.name not in needed and _is_old_one_of_ours(place):
            shutil.rmtree(place, ignore_errors=True)


def _is_old_one_of_ours(place: Path) -> bool:
    """Return whether an old launch made it: the operator may have ``caches`` of his own where he lets us write."""
    found = place.lstat()
    is_old = time.time() - found.st_mtime > UNUSED_S
    return is_old and stat.S_ISDIR(found.st_mode) and run_file.REMOVABLE.fullmatch(place.name) is not None
