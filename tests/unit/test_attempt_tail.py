"""A bounded copy of the output: the end of it, and what stood around the lines that name a fault."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_vllm import known
from safe_vllm.attempt.tail import AFTER_LINES, BEFORE_BYTES, BEFORE_LINES, LIMIT_BYTES, Line, Tail
from safe_vllm.verdict.scan import Scan, Stream

Fed = tuple[Stream, bytes]
IMA = b"torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"


def fed(chunks: Iterable[Fed], limit: int = LIMIT_BYTES) -> Tail:
    tail = Tail(limit)
    for stream, chunk in chunks:
        tail.feed(stream, chunk)
    return tail


def texts(lines: Sequence[Line]) -> list[str]:
    return [line.text for line in lines]


def numbers(lines: Sequence[Line]) -> list[int]:
    return [line.number for line in lines]


def cut_at(chunks: Sequence[Fed], places: Iterable[int]) -> list[Fed]:
    """Return the same output in other chunks: cut at these places of each."""
    found: list[Fed] = []
    for stream, chunk in chunks:
        ends = sorted({0, len(chunk), *(place % (len(chunk) + 1) for place in places)})
        found += [(stream, chunk[start:end]) for start, end in pairwise(ends)]
    return found


STREAMS: st.SearchStrategy[Stream] = st.sampled_from(["stdout", "stderr"])
PARTS = st.sampled_from([b"a", b"\n", b"\r", b"\xc3\xbc", b"\x1b[31m", b"50%|##|]", b"\xff"])
CHUNKS = st.lists(st.tuples(STREAMS, st.lists(PARTS).map(b"".join)), max_size=30)


@given(chunks=CHUNKS, places=st.lists(st.integers(0, 60), max_size=5), limit=st.sampled_from([8, 40, LIMIT_BYTES]))
def test_how_the_output_was_cut_into_chunks_makes_no_difference(
    chunks: list[Fed], places: list[int], limit: int
) -> None:
    assert fed(chunks, limit).last_lines() == fed(cut_at(chunks, places), limit).last_lines()


@given(chunks=CHUNKS)
def test_lines_have_the_numbers_that_the_scan_gives_them(chunks: list[Fed]) -> None:
    scan, tail = Scan(known.signatures()), Tail()
    marked: list[int] = []
    for stream, chunk in [*chunks, ("stdout", b"\n"), ("stderr", b"\n"), ("stderr", IMA)]:
        tail.feed(stream, chunk)
        marked += [found.number for found in scan.feed(stream, chunk, 0.0) if found.kind == "root"]
    [line] = [line for line in tail.last_lines() if "illegal memory access" in line.text]
    assert [line.number] == marked


def test_a_line_is_whole_though_the_other_stream_came_between() -> None:
    tail = fed([("stdout", b"one "), ("stderr", b"err\n"), ("stdout", b"two\n"), ("stderr", b"open")])
    assert tail.last_lines() == (Line(1, "err"), Line(2, "one two"), Line(3, "open"))


def test_of_a_bar_the_last_state_is_kept_and_colours_go() -> None:
    bar = b"".join(b"\rload:  %d%%|###  | %d/9 [00:0%d<00:01, 3.1it/s]" % (at, at, at) for at in range(9))
    tail = fed([("stderr", b"\x1b[1;36mred\x1b[0m" + bar + b"\nbell\x07 \xff\n")])
    assert texts(tail.last_lines()) == ["red", "load:  8%|###  | 8/9 [00:08<00:01, 3.1it/s]", "bell\ufffd \ufffd"]


def test_what_another_process_wrote_into_a_bar_is_not_taken_for_an_older_state() -> None:
    bar = b"load:   0%|   | 0/9 [00:00<?, ?it/s]"
    tail = fed([("stderr", bar + b"CUDA error: bad\r" + b"Fatal: worse\r" + bar + b"\r\n")])
    assert texts(tail.last_lines()) == [(bar + b"CUDA error: bad").decode(), "Fatal: worse", bar.decode()]


def test_a_record_of_several_lines_with_carriage_returns_stays_whole() -> None:
    assert texts(fed([("stdout", b"one\r\ntwo\r\n")]).last_lines()) == ["one", "two"]


def test_a_line_of_which_the_beginning_was_dropped_is_left_out() -> None:
    tail = fed([("stdout", b"token=abcdef\nwhole\n")], limit=10)
    assert tail.last_lines() == (Line(2, "whole"),)
    tail = fed(
        [("stderr", b"of another stream "), ("stdout", b"x" * 20 + b"\nwhole\n"), ("stderr", b"end\n")], limit=12
    )
    assert texts(tail.last_lines()) == ["whole"]


@pytest.mark.parametrize("size", [1, 100, 4095, 5000, 262_144, 1_000_000])
def test_the_memory_is_bounded_whatever_comes(size: int) -> None:
    tail = Tail()
    chunk = (b"x" * 79 + b"\n") * (size // 80) + b"y" * (size % 80)
    tracemalloc.start()
    for at in range(3_000_000 // size if size > 1 else 300_000):
        tail.feed("stderr" if at % 2 else "stdout", chunk)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3 * LIMIT_BYTES


def test_the_memory_is_bounded_though_every_line_names_a_fault() -> None:
    tail, chunk = Tail(), (b"x" * 79 + b"\n") * 100
    tracemalloc.start()
    for at in range(2000):
        tail.feed("stderr", chunk)
        tail.mark(100 * at + 1)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 12 * LIMIT_BYTES


def marked(before: int, after: int, line: bytes = IMA, *, size: int = 20) -> tuple[Tail, int]:
    """Return what is kept of so many lines around one that was marked, and its number."""
    tail = Tail()
    for at in range(before):
        tail.feed("stderr", f"before {at}".ljust(size, ".").encode() + b"\n")
    tail.feed("stderr", line)
    tail.mark(before + 1)
    for at in range(after):
        tail.feed("stderr", f"after {at}".ljust(size, ".").encode() + b"\n")
    return tail, before + 1


def test_around_the_root_line_a_hundred_lines_before_and_two_hundred_after_are_kept() -> None:
    tail, number = marked(500, 20_000, size=60)
    assert numbers(tail.last_lines())[0] > number  # the end is far beyond it
    found = tail.lines_around(number)
    assert numbers(found) == list(range(number - BEFORE_LINES, number + AFTER_LINES + 1))
    assert found[BEFORE_LINES].text.encode() + b"\n" == IMA


def test_long_lines_around_the_root_line_are_fewer_and_none_is_cut() -> None:
    tail, number = marked(50, 3000, size=5000)
    found = tail.lines_around(number)
    before, after = ([line for line in found if (line.number < number) == is_before] for is_before in (True, False))
    assert len(before) == len(after) - 1 == BEFORE_BYTES // 5000
    assert {len(line.text) for line in found if line.number != number} == {5000}


def test_the_root_line_in_the_middle_of_a_large_chunk_has_lines_on_both_sides() -> None:
    tail = Tail()
    tail.feed("stderr", b"early\n" * 50)
    tail.feed("stderr", IMA + b"later, in the same chunk\n" * 10_480)  # as large as what is read at once
    tail.mark(51)
    assert numbers(tail.lines_around(51)) == list(range(1, 51 + AFTER_LINES + 1))


def test_the_first_place_and_the_last_ones_are_kept() -> None:
    tail = Tail()
    for at in range(10):
        tail.feed("stderr", b"x" * 99 + b"\n" + IMA)
        tail.mark(4001 * at + 2)
        tail.feed("stderr", b"y" * 99 + b"\n" + b"z" * 99 + b"\n" + b"calm\n" * 3997)
    for _ in range(100):
        tail.feed("stdout", b"w" * 9999 + b"\n")
    kept = [at for at in range(10) if tail.lines_around(4001 * at + 2)]
    assert kept == [0, 7, 8, 9]


def test_a_burst_of_marked_lines_is_one_place() -> None:
    tail = Tail()
    for burst in range(4):
        for at in range(10):
            tail.feed("stderr", IMA)
            tail.mark(5010 * burst + at + 1)
        tail.feed("stderr", b"calm, and so long that it fills what is kept of the end of the output\n" * 5000)
    assert all(tail.lines_around(5010 * burst + 1) for burst in range(4))


def test_small_chunks_of_one_stream_take_no_more_room_than_large_ones() -> None:
    tail = fed(("stdout", b"line %3d\n" % (at % 1000)) for at in range(20_000))
    assert numbers(tail.last_lines())[0] == 1


def test_a_line_that_was_never_marked_is_found_in_the_end_of_the_output() -> None:
    tail = fed([("stdout", b"a\nb\nc\n")])
    assert texts(tail.lines_around(2)) == ["a", "b", "c"]
    assert tail.lines_around(9) == tail.lines_around(0) == ()
