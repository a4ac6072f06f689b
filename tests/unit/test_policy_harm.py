"""Restarts that make things worse end the launch; a machine that is merely small or busy does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from safe_vllm.machine.levels import Level
from safe_vllm.policy.harm import DISK_FULL_BYTES, LEAST_FALL_BYTES, harm

GIB = 1 << 30


def memory(*free_gib: float, whole: float = 64) -> list[list[Level]]:
    return readings("memory", *free_gib, whole=whole)


def disk(*free_gib: float, whole: float = 200) -> list[list[Level]]:
    return readings("disk", *free_gib, whole=whole)


def readings(kind: Literal["memory", "disk"], *free_gib: float, whole: float) -> list[list[Level]]:
    return [[Level(kind, f"the {kind}", int(free * GIB), int(whole * GIB))] for free in free_gib]


def test_memory_that_falls_at_each_of_three_restarts_until_another_would_take_the_last_ends_the_launch() -> None:
    reason = harm(memory(30, 22, 16, 9))
    assert reason is not None
    assert "the memory fell at each of the last 3 restarts, from 30.0 to 9.0 GiB" in reason


@pytest.mark.parametrize(
    "history",
    [
        memory(),
        memory(30),
        memory(30, 3),
        memory(30, 9, 3),
        memory(30, 30, 12, 3),
        memory(60, 55, 50, 45),
        memory(30, 20, 21, 9),
        memory(6, 6, 6, 6, 6),
        disk(60, 55, 50, 45),
        disk(0.01, 0.01, 0.01, 0.01),
        disk(5, 0.5),
    ],
)
def test_a_machine_that_is_small_or_recovers_or_has_plenty_left_goes_on(history: list[list[Level]]) -> None:
    assert harm(history) is None


def test_a_fall_that_anybody_could_have_caused_is_none() -> None:
    little = (LEAST_FALL_BYTES - 1) / GIB
    assert harm(memory(7, 7 - little, 7 - 2 * little, 7 - 3 * little)) is None
    assert harm(memory(7, 7 - 0.25, 7 - 2 * 0.25, 7 - 3 * 0.25)) is not None


def test_only_the_last_restarts_count() -> None:
    assert harm(memory(9, 30, 22, 16, 9)) is not None
    assert harm(memory(30, 22, 16, 9, 9)) is None


def test_core_files_that_leave_no_room_for_the_next_one_end_the_launch() -> None:
    reason = harm(disk(200, 145, 90, 35))
    assert reason is not None
    assert "core files" in reason


def test_a_disk_that_was_filled_since_the_first_attempt_ends_the_launch_at_once() -> None:
    assert harm(disk(55, 0)) is not None
    assert harm(disk(DISK_FULL_BYTES * 1.5 / GIB, 0.9 * DISK_FULL_BYTES / GIB)) is None


def test_memory_that_is_short_once_is_not_called_a_full_disk() -> None:
    assert harm(memory(55, 0)) is None


def test_each_level_has_its_own_history_and_one_that_could_not_be_read_once_is_no_fall() -> None:
    falling, steady = memory(30, 22, 16, 9), disk(100, 100, 100, 100)
    assert harm([[*one, *other] for one, other in zip(steady, falling, strict=True)]) is not None
    assert harm([falling[0], [], [], falling[3]]) is None


def test_a_disk_is_the_same_disk_whatever_it_is_called() -> None:
    before = Level("disk", "space for models (/root)", 2 * GIB, 10 * GIB, "disk 1")
    after = Level("disk", "space for models (/root/.cache)", 1 << 20, 10 * GIB, "disk 1")
    assert "fell from 2.0 to 0.0 GiB" in str(harm([[before], [after]]))
    assert harm([[before], [replace(after, key="disk 2")]]) is None
