"""What the loop makes of a question that ends in an exception: it never ends a healthy server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from safe_vllm.attempt.asking import comes
from safe_vllm.attempt.loop import Loop

DEADLINE_S = 60.0


def ask(loop: Loop, question: Callable[[], object]) -> None:
    """Ask something that has no answer, and wait until the loop knows that."""
    answers, missed = list[object](), list[bool]()
    loop.ask(question, answers.append, lambda: missed.append(True))
    assert comes(loop, lambda: missed, DEADLINE_S)
    assert answers == []


@pytest.mark.parametrize(
    "error",
    [
        OSError(24, "Too many open files"),
        RuntimeError("can't start new thread"),
        MemoryError(),
        ImportError("x"),
        TimeoutError(),
    ],
)
def test_a_question_for_which_there_was_no_room_is_no_bug(
    loop: Loop, error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    def question() -> None:
        raise error

    ask(loop, question)
    assert capfd.readouterr().err == ""


def test_a_bug_in_a_question_is_reported_once_for_each_place(loop: Loop, capfd: pytest.CaptureFixture[str]) -> None:
    def one() -> None:
        raise KeyError("one")

    def other() -> None:
        raise KeyError("other")

    for question in (one, other, one, one):
        ask(loop, question)
    said = capfd.readouterr().err
    assert said.count("safe-vllm: this is a bug in safe-vllm; please report the lines below") == 2
    assert [said.count(f"KeyError: '{name}'") for name in ("one", "other")] == [1, 1]
