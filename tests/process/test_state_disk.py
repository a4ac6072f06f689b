"""P13, P18: a disk that is full or cannot be written costs a sentence, and never what was remembered before."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from ctypes import CDLL, c_char_p, c_ulong, get_errno
from pathlib import Path

import pytest
from deeds import Calls

from safe_vllm.plan.remembered import Broken, Held, Remembered
from safe_vllm.record.directory import to_write
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory
from safe_vllm.record.run_file import RunFile, runs_in

NOW, KEY = 1_800_000_000.0, "0123456789abcdef"
FAULT = ("illegal-memory-access", "moe", "autotune")
OLD = Remembered((Broken("as-asked", *FAULT, NOW),))
MS_RDONLY, MS_REMOUNT, MNT_DETACH = 1, 32, 2


def memory_in(directory: Path) -> Memory:
    mine = Memory(directory, Fingerprint(KEY, {"model": "m" * 3000}), 14.0)
    assert mine.note_broken("as-asked", *FAULT, NOW) == ()
    return mine


def mount(place: Path, options: str, flags: int = 0) -> None:
    call = CDLL(None, use_errno=True).mount
    call.argtypes = [c_char_p, c_char_p, c_char_p, c_ulong, c_char_p]
    if call(b"tmpfs", os.fsencode(place), b"tmpfs", flags, options.encode()) != 0:
        pytest.skip(f"nothing may be mounted here: {os.strerror(get_errno())}")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount(place, "size=64k")
    yield place
    CDLL(None, use_errno=True).umount2(os.fsencode(place), MNT_DETACH)


def fill(place: Path) -> Path:
    with (place / "filling").open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return place / "filling"


def said_by_another(deed: Callable[[], tuple[str, ...]], before: Callable[[], object]) -> tuple[str, ...]:
    """Return the problems of a deed in a process that has done something to itself before."""
    answer, answer_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            write = os.write
            before()
            write(answer_end, "\n".join(deed()).encode())
        finally:
            os._exit(0)
    os.close(answer_end)
    with os.fdopen(answer) as file:
        said = file.read()
    os.waitpid(pid, 0)
    return tuple(said.splitlines())


def check_kept(mine: Memory, problems: tuple[str, ...], reason: str) -> None:
    (sentence,) = problems
    assert sentence.endswith(f"it could not be kept that triton held: {reason}; check --state-dir")
    assert mine.recall(NOW) == (OLD, ())
    assert mine.directory
    assert {path.name for path in (mine.directory / "remembered").iterdir()} == {".lock", f"{KEY}.json"}


def test_on_a_full_disk_the_old_state_stays_whole_and_with_room_it_goes_on(small: Path) -> None:
    mine = memory_in(small / "state")
    filling = fill(small)
    check_kept(mine, mine.note_held("triton", NOW), "no space left on device")
    filling.unlink()
    assert mine.note_held("triton", NOW) == ()
    assert mine.recall(NOW).remembered.held == Held("triton", NOW)


def test_on_a_full_disk_the_old_picture_of_a_launch_makes_room_for_the_new_one(small: Path) -> None:
    file = RunFile(small, "7-a")
    assert file.write({"state": "starting", "long": "a" * 20_000}) is None
    fill(small)
    assert file.write({"state": "ready", "long": "b" * 20_000}) is None
    (run,) = runs_in(small)
    assert (run.facts["state"], run.is_alive) == ("ready", True)
    assert "no space left on device" in str(file.write({"long": "c" * 40_000}))
    assert runs_in(small) == ()  # rather nothing than what is no longer true
    assert {path.name for path in (small / "run").iterdir()} == {"7-a.lock"}


def test_on_a_disk_that_was_full_from_the_start_nothing_is_remembered_and_nothing_goes_wrong(small: Path) -> None:
    fill(small)
    mine = Memory(small, Fingerprint(KEY, {"model": "m" * 3000}), 14.0)
    (sentence,) = mine.note_held("triton", NOW)
    assert "no space left on device" in sentence
    assert mine.recall(NOW) == (Remembered(), ())


def test_on_a_full_disk_it_is_told_too_that_a_damaged_record_was_put_aside(small: Path) -> None:
    mine = memory_in(small)
    record = small / "remembered" / f"{KEY}.json"
    record.write_bytes(b"{")
    fill(small)
    aside, unkept = mine.note_held("triton", NOW)
    assert "put aside as" in aside and "no space left on device" in unkept
    assert record.with_name(f"{KEY}.json.aside-1").read_bytes() == b"{"


def test_on_a_disk_that_cannot_be_written_what_is_there_is_still_believed(small: Path) -> None:
    mine = memory_in(small)
    mount(small, "", MS_REMOUNT | MS_RDONLY)
    check_kept(mine, mine.note_held("triton", NOW), "read-only file system")
    assert "cannot be dropped: read-only file system" in mine.drop()[0]
    chosen = to_write(str(small), {})
    assert (
        chosen.path == small and chosen.problem and "cannot be written, so nothing new is remembered" in chosen.problem
    )
    made = to_write(str(small / "new"), {})
    assert made.path is None and made.problem and "read-only file system" in made.problem


def test_a_damaged_record_on_a_disk_that_cannot_be_written_is_not_believed_and_reported(small: Path) -> None:
    mine = memory_in(small)
    (small / "remembered" / f"{KEY}.json").write_bytes(b"{")
    mount(small, "", MS_REMOUNT | MS_RDONLY)
    found = mine.recall(NOW)
    assert found.remembered == Remembered()
    assert "what is remembered cannot be read: read-only file system" in found.problems[0]


@pytest.mark.parametrize("limit", [0, 1, 1000])
def test_where_files_may_not_grow_the_old_state_stays_whole(tmp_path: Path, limit: int) -> None:
    mine = memory_in(tmp_path)

    def before() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    check_kept(mine, said_by_another(lambda: mine.note_held("triton", NOW), before), "file too large")


def test_a_disk_that_fails_as_it_is_synced_is_told_of(tmp_path: Path) -> None:
    mine = memory_in(tmp_path)
    said = said_by_another(lambda: mine.note_held("triton", NOW), Calls(None, fails=errno.EIO).watch)
    check_kept(mine, said, "input/output error")


@pytest.mark.parametrize("mode", [0o500, 0o400, 0o000])
def test_a_directory_that_may_not_be_written_costs_a_sentence(tmp_path: Path, mode: int) -> None:
    mine = memory_in(tmp_path / "state")
    folder = tmp_path / "state" / "remembered"
    for path in (folder / ".lock", folder / f"{KEY}.json", folder, tmp_path / "state"):
        os.chown(path, 65534, -1) if os.geteuid() == 0 else None
    (tmp_path / "state").chmod(0o755)
    inside = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)  # what is above may be closed to others
    relative = Memory(Path("state"), mine.fingerprint, mine.remember_for_days)
    folder.chmod(mode)

    def before() -> None:
        os.fchdir(inside)
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)

    try:
        said = said_by_another(lambda: relative.note_held("triton", NOW), before)
    finally:
        os.close(inside)
        folder.chmod(0o700)
    (sentence,) = said
    assert "it could not be kept that triton held: permission denied" in sentence
