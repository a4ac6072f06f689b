"""Waiting for what may never come, while the loop turns and everything stays alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from safe_vllm.attempt.loop import Loop, StopAsked

ANSWER_WITHIN_S = 10.0
"""A question to the driver or to a network disk may never be answered."""

T = TypeVar("T")


def answer(loop: Loop, question: Callable[[], T], within_s: float = ANSWER_WITHIN_S) -> tuple[T] | None:
    """Return the answer to a question that may block; ``None``: there is none, or none in time. Raises StopAsked."""
    given, missed = list[T](), list[bool]()
    loop.ask(question, given.append, lambda: missed.append(True))
    comes(loop, lambda: given or missed or loop.stops, within_s)
    if loop.stops:
        raise StopAsked
    return (given[0],) if given else None


def comes(loop: Loop, what: Callable[[], object], within_s: float) -> bool:
    """Return whether something is so within so many seconds; everything stays alive meanwhile."""
    until = loop.now() + within_s
    while not what() and loop.now() < until:
        loop.turn(until)
    return bool(what())
