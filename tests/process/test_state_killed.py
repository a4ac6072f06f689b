"""P18: a launcher that is killed while it remembers leaves the old state or the new one, whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deeds import Kill, When, made_by

from safe_vllm.commands.forget import forget
from safe_vllm.plan.remembered import Broken, Held, Remembered
from safe_vllm.record import files
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory

NOW, KEY = 1_800_000_000.0, "0123456789abcdef"
FAULT = ("illegal-memory-access", "moe", "autotune")
OLD = Remembered((Broken("as-asked", *FAULT, NOW),))
DAMAGED = b'{"v": 1, "fingerpr'

Deed = Callable[[Memory], object]


def note_broken(mine: Memory) -> object:
    return mine.note_broken("no-autotune", *FAULT, NOW)


def note_held(mine: Memory) -> object:
    return mine.note_held("no-autotune", NOW)


def drop(mine: Memory) -> object:
    return mine.drop()


def forget_all(mine: Memory) -> object:
    return forget(str(mine.directory), [])


BROKEN = Broken("no-autotune", *FAULT, NOW)
DEEDS: dict[str, tuple[Deed, Remembered]] = {
    "broken": (note_broken, Remembered((*OLD.broken, BROKEN))),
    "held": (note_held, Remembered(OLD.broken, Held("no-autotune", NOW))),
    "drop": (drop, Remembered()),
    "forget": (forget_all, Remembered()),
}


def memory_in(directory: Path) -> Memory:
    return Memory(directory, Fingerprint(KEY, {"model": "m"}), 14.0)


def remembering(directory: Path) -> Memory:
    mine = memory_in(directory)
    assert mine.note_broken("as-asked", *FAULT, NOW) == ()
    return mine


def in_folder(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "remembered").iterdir() if path.name != files.LOCK}


def check_next_launch_works(mine: Memory) -> None:
    assert mine.note_held("triton", NOW) == ()
    held = mine.recall(NOW)
    assert (held.remembered.held, held.problems) == (Held("triton", NOW), ())
    assert mine.directory
    assert not [name for name in in_folder(mine.directory) if name.endswith(files.NEW)]


@pytest.mark.parametrize("when", ["before", "amid", "after"])
@pytest.mark.parametrize("name", DEEDS)
def test_wherever_it_is_killed_the_old_state_or_the_new_one_is_whole(tmp_path: Path, name: str, when: When) -> None:
    deed, new = DEEDS[name]
    seen, at = set(), 0
    while True:
        mine = remembering(tmp_path / str(at))
        calls = made_by(lambda mine=mine: deed(mine), Kill(at, when))  # type: ignore[misc]
        found = mine.recall(NOW)
        assert found.problems == () and found.remembered in (OLD, new)
        if calls is not None:
            break
        seen.add(found.remembered)
        check_next_launch_works(mine)
        at += 1
    assert found.remembered == new and at == len(calls) > 4
    assert seen == {OLD, new}


@pytest.mark.parametrize("when", ["before", "amid", "after"])
def test_killed_at_its_very_first_note_it_has_remembered_nothing_or_all_of_it(tmp_path: Path, when: When) -> None:
    new, at, calls = Remembered((BROKEN,)), 0, None
    while calls is None:
        mine = memory_in(tmp_path / str(at) / "not" / "there")
        calls = made_by(lambda mine=mine: note_broken(mine), Kill(at, when))  # type: ignore[misc]
        found = mine.recall(NOW)
        assert found.problems == () and found.remembered in (Remembered(), new)
        check_next_launch_works(mine)
        at += 1
    assert found.remembered == new


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("deed", [note_broken, drop, forget_all, lambda mine: mine.recall(NOW)])
def test_wherever_it_is_killed_a_damaged_record_is_still_somewhere_and_once(
    tmp_path: Path, deed: Deed, when: When
) -> None:
    at, calls = 0, None
    while calls is None:
        mine = remembering(tmp_path / str(at))
        (tmp_path / str(at) / "remembered" / f"{KEY}.json").write_bytes(DAMAGED)
        calls = made_by(lambda mine=mine: deed(mine), Kill(at, when))  # type: ignore[misc]
        assert list(in_folder(tmp_path / str(at)).values()).count(DAMAGED) == 1
        mine.recall(NOW)
        check_next_launch_works(mine)
        at += 1
    assert at > 4


def test_the_bytes_reach_the_disk_before_the_name_and_the_name_before_the_next_attempt(tmp_path: Path) -> None:
    mine = remembering(tmp_path)
    calls = made_by(lambda: note_broken(mine))
    assert calls is not None
    names = [name for name, _ in calls]
    file, folder = [at for at, name in enumerate(names) if name == "fsync"]
    (written,) = [at for at, name in enumerate(names) if name == "write"]
    (renamed,) = [at for at, name in enumerate(names) if name == "replace"]
    assert names.index("flock") < written < file < renamed < folder
    assert calls[file] == ("fsync", calls[renamed][1]) == ("fsync", calls[written][1])
    assert calls[folder] == ("fsync", "remembered")


@pytest.mark.parametrize("deed", [drop, forget_all])
def test_what_was_dropped_stays_dropped_after_a_power_cut(tmp_path: Path, deed: Deed) -> None:
    mine = remembering(tmp_path)
    calls = made_by(lambda: deed(mine))
    assert calls is not None and calls[-1] == ("fsync", "remembered")
    assert [name for name, _ in calls].index("unlink") < len(calls) - 1
