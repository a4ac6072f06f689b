"""Whatever is in the place of a record, and whatever happens to it: nothing raises, and nothing is lost in silence."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from safe_vllm.plan.ladder import RUNG_NAMES
from safe_vllm.plan.remembered import Broken, Held, Remembered
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory
from safe_vllm.record.rungs_file import BrokenMark, HeldMark, Record, Span, believed, empty, with_broken, with_held

KEY, NOW, DAYS, DAY = "0123456789abcdef", 1_800_000_000.0, 14.0, 86_400.0


@contextmanager
def memory() -> Iterator[tuple[Memory, Path]]:
    with tempfile.TemporaryDirectory() as place:
        mine = Memory(Path(place), Fingerprint(KEY, {"model": "m"}), DAYS)
        path = Path(place) / "remembered" / f"{KEY}.json"
        path.parent.mkdir(mode=0o700)
        yield mine, path


def check(mine: Memory, path: Path, content: bytes) -> None:
    """Check that a record is believed as it is, or put aside as it is and reported; and that the next launch works."""
    path.write_bytes(content)
    found = mine.recall(NOW)
    asides = list(path.parent.glob("*.aside-*"))
    if found.problems:
        assert found.remembered == Remembered()
        assert [aside.read_bytes() for aside in asides] == [content]
        asides[0].unlink()
    else:
        assert path.read_bytes() == content and not asides
    assert mine.note_broken("triton", "hang", "moe", "serving", NOW) == ()
    assert "triton" in {mark.rung for mark in mine.recall(NOW).remembered.broken}
    path.unlink()


def test_a_record_that_was_cut_off_at_any_byte_is_put_aside_and_the_next_launch_works() -> None:
    with memory() as (mine, path):
        mine.note_broken("as-asked", "illegal-memory-access", "moe", "autotune", NOW)
        mine.note_held("no-autotune", NOW, "/caches")
        whole = path.read_bytes()
        for size in range(len(whole)):
            is_whole = whole[:size].strip() == whole.strip()
            path.write_bytes(whole[:size])
            assert bool(mine.recall(NOW, changes_nothing=True).problems) is not is_whole
            check(mine, path, whole[:size])


texts = st.text(st.characters(), max_size=5)
"""Also of what no encoding has: JSON can write it."""
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
marks = values | st.fixed_dictionaries(
    {"at": st.floats() | values},
    optional={name: st.text(max_size=3) for name in ("fault", "suspect", "phase", "caches")},
)
rungs = values | st.fixed_dictionaries(
    {}, optional={"broken": marks, "held": marks, "times_broken": st.integers() | values, "times_held": values}
)
records = st.fixed_dictionaries(
    {"v": st.just(1) | values, "fingerprint": st.just(KEY) | values},
    optional={
        "about": values,
        "rungs": values | st.dictionaries(st.sampled_from(RUNG_NAMES), rungs, max_size=3),
        "\ud800": values,
    },
)


@settings(max_examples=100)
@given(content=st.binary(max_size=200) | (records | values).map(lambda value: json.dumps(value).encode()))
def test_any_content_at_all_is_believed_or_put_aside(content: bytes) -> None:
    with memory() as (mine, path):
        check(mine, path, content)


names = st.sampled_from(RUNG_NAMES)
notes = st.lists(st.tuples(st.booleans(), names, st.floats(-40 * DAY, 40 * DAY)), max_size=12)


def noted(history: list[tuple[bool, str, float]]) -> Record:
    record = empty(KEY, {})
    for is_broken, rung, at in history:
        if is_broken:
            record = with_broken(record, rung, BrokenMark("f", "s", "p", NOW + at))
        else:
            record = with_held(record, rung, HeldMark(NOW + at))
    return record


@given(history=notes)
def test_of_any_history_the_last_word_on_each_rung_counts_while_it_is_fresh(
    history: list[tuple[bool, str, float]],
) -> None:
    found = believed(noted(history), Span(NOW, DAYS))
    last = {rung: (is_broken, at) for is_broken, rung, at in history}
    times = {rung: sum(is_broken and name == rung for is_broken, name, _ in history) for rung in last}
    fresh = {rung: broke for rung, (broke, at) in last.items() if abs(at) <= DAYS * DAY}
    assert {mark.rung: mark.times for mark in found.broken} == {
        rung: times[rung] for rung, broke in fresh.items() if broke
    }
    holding = [rung for is_broken, rung, _ in history if not is_broken][-1:]
    expected = holding[0] if holding and not last[holding[0]][0] and holding[0] in fresh else None
    assert (found.held.rung if found.held else None) == expected


@given(history=notes, later=st.floats(2 * DAYS + 40, 1e6))
def test_no_mark_lives_for_ever_wherever_the_clock_was(history: list[tuple[bool, str, float]], later: float) -> None:
    assert believed(noted(history), Span(NOW + later * DAY, DAYS)) == Remembered()


@settings(max_examples=25)
@given(history=notes)
def test_what_was_noted_is_recalled_from_the_file(history: list[tuple[bool, str, float]]) -> None:
    endless = float("inf")
    with memory() as (mine, _):
        mine = Memory(mine.directory, mine.fingerprint, endless)
        for is_broken, rung, at in history:
            assert (mine.note_broken(rung, "f", "s", "p", at) if is_broken else mine.note_held(rung, at)) == ()
        found = mine.recall(NOW)
        expected = believed(noted([(each[0], each[1], each[2] - NOW) for each in history]), Span(NOW, endless))
        assert found.problems == ()
        assert _rounded(found.remembered) == _rounded(expected)


def _rounded(found: Remembered) -> tuple[list[Broken], Held | None]:
    """Return it without times, which adding and subtracting has changed a little."""
    broken = [Broken(each.rung, each.fault, each.suspect, each.phase, 0.0, each.times) for each in found.broken]
    return broken, Held(found.held.rung, 0.0, found.held.times) if found.held else None
