"""Caches of ours that begin empty: whose are removed, and whose never."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from safe_vllm.record.caches import UNUSED_S, make
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory
from safe_vllm.record.run_file import RunFile

OLD, OTHER, MINE = "7-19a8f3c0001", "8-19a8f3c0002", "9-19a8f3c0003"


def old(place: Path) -> Path:
    """Make a directory that was not written to for more than a day."""
    place.mkdir(parents=True)
    (place / "file").write_text("precious")
    outdate(place)
    return place


def outdate(place: Path) -> None:
    at = time.time() - UNUSED_S - 60
    os.utime(place, (at, at), follow_symlinks=False)


def test_what_an_old_launch_made_and_nobody_needs_is_removed(tmp_path: Path) -> None:
    unneeded = old(tmp_path / "caches" / OLD)
    assert make(tmp_path, MINE) == str(tmp_path / "caches" / MINE)
    assert not unneeded.exists()
    assert (tmp_path / "caches" / MINE).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "name", ["huggingface", "2026-11", "20261130-120000", "7-a", "7-19A8F3C0001", "x7-19a8f3c0001", "7-19a8f3c0001.d"]
)
def test_what_has_another_name_than_ours_is_the_operators(tmp_path: Path, name: str) -> None:
    theirs = old(tmp_path / "caches" / name)
    assert make(tmp_path, MINE)
    assert (theirs / "file").read_text() == "precious"


def test_a_link_and_what_it_leads_to_stay(tmp_path: Path) -> None:
    theirs = old(tmp_path / "elsewhere")
    (tmp_path / "state" / "caches").mkdir(parents=True)
    link, file = (tmp_path / "state" / "caches" / name for name in (OLD, OTHER))
    link.symlink_to(theirs)
    file.touch()
    outdate(link)
    outdate(file)
    assert make(tmp_path / "state", MINE)
    assert link.is_symlink() and file.exists()
    assert (theirs / "file").exists()


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    there = old(tmp_path / "elsewhere" / OLD)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "caches").symlink_to(tmp_path / "elsewhere")
    assert make(tmp_path / "state", MINE) == str(tmp_path / "state" / "caches" / MINE)
    assert there.exists()


@pytest.mark.parametrize("running", [OLD, OTHER])
def test_while_another_launch_runs_nothing_is_removed_since_it_may_use_what_is_not_its_own(
    tmp_path: Path, running: str
) -> None:
    used = old(tmp_path / "caches" / OLD)
    launch = RunFile(tmp_path, running)
    launch.write({})
    assert make(tmp_path, MINE)
    assert used.exists()
    os.close(launch._lock)  # type: ignore[arg-type]
    assert make(tmp_path, MINE)
    assert not used.exists()


def test_what_a_rung_held_with_stays_by_whatever_path_the_directory_is_called(tmp_path: Path) -> None:
    needed = old(tmp_path / "state" / "caches" / OLD)
    (tmp_path / "link").symlink_to(tmp_path / "state")
    mine = Memory(tmp_path / "state", Fingerprint("0123456789abcdef", {}), 14.0)
    assert mine.note_held("as-asked", time.time(), str(tmp_path / "link" / "caches" / OLD)) == ()
    assert make(tmp_path / "state", MINE)
    assert needed.exists()
    assert mine.drop() == ()
    assert make(tmp_path / "state", MINE)
    assert not needed.exists()


def test_where_a_record_cannot_be_read_nothing_is_removed(tmp_path: Path) -> None:
    perhaps = old(tmp_path / "caches" / OLD)
    (tmp_path / "remembered").mkdir()
    (tmp_path / "remembered" / "0123456789abcdef.json").write_text("{")
    assert make(tmp_path, MINE)
    assert perhaps.exists()


def test_where_nobody_can_tell_what_runs_there_is_a_place_all_the_same(tmp_path: Path) -> None:
    perhaps = old(tmp_path / "caches" / OLD)
    (tmp_path / "run").touch()
    assert make(tmp_path, MINE)
    assert perhaps.exists()
    shutil.rmtree(tmp_path / "caches")
    (tmp_path / "caches").touch()
    assert make(tmp_path, MINE) is None
