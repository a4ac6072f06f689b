"""What is remembered of which rungs broke and which one held."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from safe_vllm.plan.remembered import Broken, Held, Remembered
from safe_vllm.record import files, memory
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory

DAY = 86_400.0
NOW = 1_800_000_000.0
KEY = "0123456789abcdef"
FAULT = ("illegal-memory-access", "moe", "autotune")


@pytest.fixture
def mine(tmp_path: Path) -> Memory:
    return Memory(tmp_path, Fingerprint(KEY, {"model": "m"}), 14.0)


def file_of(mine: Memory) -> Path:
    assert mine.directory
    return mine.directory / memory.FOLDER / f"{KEY}.json"


def changed(mine: Memory, change: Callable[[Any], None]) -> None:
    """Change what the file of a memory with one broken rung says."""
    content = json.loads(file_of(mine).read_text())
    change(content)
    file_of(mine).write_text(json.dumps(content))


def test_what_broke_and_what_held_is_recalled_by_the_next_launch(mine: Memory) -> None:
    assert mine.note_broken("as-asked", *FAULT, NOW) == ()
    assert mine.note_broken("as-asked", "hang", "unknown", "serving", NOW + 1) == ()
    assert mine.note_held("no-autotune", NOW + 2, "/state/caches/1") == ()
    assert mine.note_held("no-autotune", NOW + 3) == ()
    expected = Remembered(
        (Broken("as-asked", "hang", "unknown", "serving", NOW + 1, times=2),), Held("no-autotune", NOW + 3, times=2)
    )
    assert mine.recall(NOW + 4) == (expected, ())


def test_the_caches_with_which_a_rung_held_are_remembered(mine: Memory) -> None:
    mine.note_held("as-asked", NOW, "/state/caches/1")
    assert mine.recall(NOW).remembered.held == Held("as-asked", NOW, caches="/state/caches/1")


def test_a_rung_that_held_and_breaks_later_does_not_hold_any_longer(mine: Memory) -> None:
    mine.note_held("triton", NOW)
    mine.note_broken("triton", *FAULT, NOW + 1)
    assert mine.recall(NOW + 1).remembered == Remembered((Broken("triton", *FAULT, NOW + 1),))


def test_a_rung_that_broke_and_then_holds_is_not_broken_and_the_counts_are_kept(mine: Memory) -> None:
    mine.note_broken("triton", *FAULT, NOW)
    mine.note_held("triton", NOW + 1)
    assert mine.recall(NOW + 1).remembered == Remembered((), Held("triton", NOW + 1))
    mine.note_broken("triton", *FAULT, NOW + 2)
    mine.note_held("triton", NOW + 3)
    assert mine.recall(NOW + 3).remembered.held == Held("triton", NOW + 3, times=2)
    mine.note_broken("triton", *FAULT, NOW + 4)
    assert mine.recall(NOW + 4).remembered.broken == (Broken("triton", *FAULT, NOW + 4, times=3),)


def test_the_rung_that_held_last_is_the_one_that_holds_whatever_the_clock_says(mine: Memory) -> None:
    mine.note_held("triton", NOW)
    mine.note_held("as-asked", NOW - DAY)
    assert mine.recall(NOW).remembered == Remembered((), Held("as-asked", NOW - DAY))
    mine.note_broken("as-asked", *FAULT, NOW)
    assert mine.recall(NOW).remembered.held is None


def test_each_mark_expires_by_itself(mine: Memory) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)
    mine.note_held("no-autotune", NOW + DAY)
    assert mine.recall(NOW + 14 * DAY).remembered.broken
    assert mine.recall(NOW + 14 * DAY + 1).remembered == Remembered((), Held("no-autotune", NOW + DAY))
    assert mine.recall(NOW + 15 * DAY + 1).remembered == Remembered()
    assert replace(mine, remember_for_days=20).recall(NOW + 15 * DAY).remembered.broken


def test_an_expired_mark_does_not_come_back_with_the_next_note(mine: Memory) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)
    mine.note_broken("triton", *FAULT, NOW + 20 * DAY)
    assert [mark.rung for mark in replace(mine, remember_for_days=99).recall(NOW).remembered.broken] == ["triton"]


@pytest.mark.parametrize(("back", "is_believed"), [(1, True), (13, True), (15, False), (4000, False)])
def test_after_the_clock_was_set_back_marks_are_believed_for_as_long_before_their_time(
    mine: Memory, back: float, is_believed: bool
) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)
    mine.note_held("triton", NOW)
    found = mine.recall(NOW - back * DAY)
    assert (bool(found.remembered.broken), bool(found.remembered.held)) == (is_believed, is_believed)
    assert found.problems == ()


def test_a_clock_at_1970_wipes_nothing(mine: Memory) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)
    mine.note_held("no-autotune", NOW)
    assert mine.recall(100.0) == (Remembered(), ())
    assert mine.note_broken("triton", *FAULT, 100.0) == ()
    found = mine.recall(NOW + 1).remembered
    assert found == Remembered((Broken("as-asked", *FAULT, NOW),), Held("no-autotune", NOW))


def test_a_count_stays_within_what_can_be_read_again(mine: Memory) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)

    def most(content: Any) -> None:
        content["rungs"]["as-asked"]["times_broken"] = content["rungs"]["as-asked"]["times_held"] = 1 << 53

    changed(mine, most)
    assert mine.note_broken("as-asked", *FAULT, NOW) == ()
    assert mine.recall(NOW) == (Remembered((Broken("as-asked", *FAULT, NOW, times=1 << 53),)), ())
    assert mine.note_held("as-asked", NOW) == ()
    assert mine.recall(NOW) == (Remembered((), Held("as-asked", NOW, times=1 << 53)), ())


@pytest.mark.parametrize("depth", [40, 400, 900])
def test_a_record_that_is_too_deep_to_be_written_again_is_set_aside(mine: Memory, depth: int) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)

    def deepen(content: Any) -> None:
        inner: list[Any] = []
        content["about"]["a"] = inner
        for _ in range(depth):
            inner.append([])
            inner = inner[0]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # only to write it
    changed(mine, deepen)
    sys.setrecursionlimit(limit)
    check_set_aside(mine, file_of(mine).read_bytes(), "damaged")


def test_memory_without_end_is_possible(mine: Memory) -> None:
    endless = replace(mine, remember_for_days=float("inf"))
    endless.note_broken("as-asked", *FAULT, NOW)
    assert endless.recall(NOW * 3).remembered.broken


@pytest.mark.parametrize("days", [0.0, float("nan")])
def test_nothing_is_read_and_nothing_written_where_nothing_is_to_be_remembered(mine: Memory, days: float) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)
    before = file_of(mine).read_bytes()
    off = replace(mine, remember_for_days=days)
    assert off.recall(NOW) == (Remembered(), ())
    assert off.note_broken("triton", *FAULT, NOW) == off.note_held("triton", NOW) == off.drop() == ()
    assert file_of(mine).read_bytes() == before


def test_without_a_directory_nothing_is_remembered_and_nothing_goes_wrong() -> None:
    nowhere = Memory(None, Fingerprint(KEY, {}), 14.0)
    assert nowhere.note_broken("triton", *FAULT, NOW) == nowhere.note_held("triton", NOW) == nowhere.drop() == ()
    assert nowhere.recall(NOW) == (Remembered(), ())


def test_each_fingerprint_has_a_memory_of_its_own(mine: Memory) -> None:
    other = replace(mine, fingerprint=Fingerprint("fedcba9876543210", {}))
    mine.note_broken("as-asked", *FAULT, NOW)
    assert other.recall(NOW) == (Remembered(), ())
    other.note_held("triton", NOW)
    assert mine.recall(NOW).remembered.held is None


def test_who_looks_first_makes_nothing(mine: Memory) -> None:
    assert mine.recall(NOW) == (Remembered(), ())
    assert mine.directory and list(mine.directory.iterdir()) == []
    assert mine.drop() == ()


def test_a_dropped_memory_is_empty(mine: Memory) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)
    assert mine.drop() == ()
    assert mine.recall(NOW) == (Remembered(), ())
    assert not file_of(mine).exists()


def test_files_are_for_their_owner_alone_and_say_what_they_are_of(mine: Memory) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)
    path = file_of(mine)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}
    content = json.loads(path.read_text())
    assert (content["v"], content["fingerprint"], content["about"]) == (1, KEY, {"model": "m"})


def _newer(content: Any) -> None:
    content["v"] = 2


def _absurdly_new(content: Any) -> None:
    content["v"] = 10**400


def _old(content: Any) -> None:
    content["v"] = 0


def _true(content: Any) -> None:
    content["v"] = True


def _of_another(content: Any) -> None:
    content["fingerprint"] = "fedcba9876543210"


def _wrong_type(content: Any) -> None:
    content["rungs"]["as-asked"]["broken"]["at"] = "yesterday"


def _negative(content: Any) -> None:
    content["rungs"]["as-asked"]["times_broken"] = -1


def _endless(content: Any) -> None:
    content["rungs"]["as-asked"]["broken"]["at"] = 10**400


def _odd_key(content: Any) -> None:
    content["\ud800"] = 2


def _odd_key_within(content: Any) -> None:
    content["rungs"]["as-asked"]["broken"]["\ud800"] = 2


def _caches_that_no_system_has(name: str) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        content["rungs"]["as-asked"] = {"held": {"at": NOW, "caches": name}}

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_newer, "a newer safe-vllm wrote it (form 2, this one knows 1)"),
        (_absurdly_new, "a newer safe-vllm wrote it"),
        (_old, "no record of ours"),
        (_true, "no record of ours"),
        (_of_another, "of another fingerprint"),
        (_wrong_type, "damaged: expected"),
        (_negative, "damaged: expected"),
        (_endless, "damaged"),
        (_odd_key, "damaged"),
        (_odd_key_within, "damaged"),
        (_caches_that_no_system_has("/caches/\ud800"), "damaged: no directory can be called as those of the caches"),
        (_caches_that_no_system_has("/caches/\0"), "damaged: no directory can be called as those of the caches"),
    ],
)
def test_a_record_that_cannot_be_used_is_set_aside_with_its_bytes_and_reported(
    mine: Memory, change: Callable[[Any], None], said: str
) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)
    changed(mine, change)
    check_set_aside(mine, file_of(mine).read_bytes(), said)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"3", b'{"a": 1}', b"\xff\xfe", b"[" * 100_000, b'{"v": 1}']
)
def test_foreign_content_is_set_aside_with_its_bytes_and_reported(mine: Memory, content: bytes) -> None:
    file_of(mine).parent.mkdir()
    file_of(mine).write_bytes(content)
    check_set_aside(mine, content, "")


def check_set_aside(mine: Memory, content: bytes, said: str) -> None:
    path = file_of(mine)
    looked = mine.recall(NOW, changes_nothing=True)
    assert looked.remembered == Remembered() and path.read_bytes() == content
    (sentence,) = looked.problems
    assert sentence.startswith(f"{path}: ") and said in sentence
    found = mine.recall(NOW)
    aside = path.with_name(f"{path.name}.aside-1")
    assert found.remembered == Remembered() and aside.read_bytes() == content and not path.exists()
    (sentence,) = found.problems
    assert said in sentence and aside.name in sentence and "\n" not in sentence
    assert mine.note_held("triton", NOW) == ()
    assert mine.recall(NOW) == (Remembered((), Held("triton", NOW)), ())


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/hostname")])
def test_what_is_no_file_is_set_aside_too(mine: Memory, make: Callable[[Path], None]) -> None:
    file_of(mine).parent.mkdir()
    make(file_of(mine))
    (sentence,) = mine.note_broken("as-asked", *FAULT, NOW)
    assert "no regular file" in sentence
    assert mine.recall(NOW).remembered.broken


def test_a_damaged_record_that_is_written_to_is_set_aside_first(mine: Memory) -> None:
    file_of(mine).parent.mkdir()
    file_of(mine).write_bytes(b"{")
    (sentence,) = mine.note_broken("as-asked", *FAULT, NOW)
    assert "put aside" in sentence
    assert mine.recall(NOW) == (Remembered((Broken("as-asked", *FAULT, NOW),)), ())


def test_a_damaged_record_that_is_dropped_is_set_aside_all_the_same(mine: Memory) -> None:
    file_of(mine).parent.mkdir()
    file_of(mine).write_bytes(b"{")
    (sentence,) = mine.drop()
    assert "put aside" in sentence
    assert mine.recall(NOW) == (Remembered(), ())


def test_keys_of_a_later_release_with_the_same_form_are_passed_over(mine: Memory) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)

    def add(content: Any) -> None:
        content["later"] = content["rungs"]["as-asked"]["later"] = content["rungs"]["as-asked"]["broken"]["later"] = 1

    changed(mine, add)
    assert mine.recall(NOW) == (Remembered((Broken("as-asked", *FAULT, NOW),)), ())


def test_a_lock_that_another_keeps_costs_a_sentence_and_the_record_stays(
    mine: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.note_broken("as-asked", *FAULT, NOW)
    monkeypatch.setattr(files.locked.__wrapped__, "__defaults__", (0.05,))  # type: ignore[attr-defined]
    with files.locked(file_of(mine).parent):
        (sentence,) = mine.note_held("triton", NOW)
        assert mine.recall(NOW).remembered.broken  # readers need no lock
    assert "it could not be kept that triton held: another process has had the lock" in sentence
    assert mine.recall(NOW).remembered.held is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_record_of_another_user_is_neither_believed_nor_overwritten(mine: Memory) -> None:
    mine.note_held("triton", NOW, "/tmp/with-code-of-theirs")
    os.chown(file_of(mine), 65534, 65534)
    before = file_of(mine).read_bytes()
    assert mine.recall(NOW).remembered == Remembered()
    assert "another user" in mine.recall(NOW).problems[0]
    assert "another user" in mine.note_held("as-asked", NOW)[0]
    assert file_of(mine).read_bytes() == before


def test_names_that_no_encoding_has_are_kept(mine: Memory) -> None:
    caches = os.fsdecode(b"/caches/\xff")
    odd = replace(mine, fingerprint=Fingerprint(KEY, {"model": os.fsdecode(b"m\xfe")}))
    assert odd.note_held("as-asked", NOW, caches) == ()
    held = odd.recall(NOW).remembered.held
    assert held and held.caches == caches


def test_a_command_line_of_megabytes_makes_no_record_that_cannot_be_read_again(mine: Memory) -> None:
    long = replace(mine, fingerprint=Fingerprint(KEY, {"settings": {"--hf-overrides": "x" * (2 << 20)}}))
    assert long.note_broken("as-asked", *FAULT, NOW) == long.note_held("triton", NOW) == ()
    assert long.recall(NOW).problems == ()
    assert long.recall(NOW).remembered.held


def test_the_oldest_of_too_many_records_makes_room_for_a_new_one(mine: Memory) -> None:
    folder = file_of(mine).parent
    folder.mkdir()
    for number in range(memory.MAX_RECORDS):
        (folder / f"{number:03}.json").touch()
        os.utime(folder / f"{number:03}.json", (NOW + number, NOW + number))
    os.utime(folder / "042.json", (NOW - 1, NOW - 1))
    (sentence,) = mine.note_broken("as-asked", *FAULT, NOW)
    assert sentence.startswith(f"{folder}/042.json: ")
    assert len(list(folder.glob("*.json"))) == memory.MAX_RECORDS
    assert mine.note_broken("as-asked", *FAULT, NOW) == ()
