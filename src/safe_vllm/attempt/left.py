"""Who survived SIGKILL, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple


class Left(NamedTuple):
    """Who is left of an attempt, each with title and number."""

    stuck: list[str]
    """In the kernel."""
    foreign: list[str]
    """They are another user's, and we may not end them."""

    def __bool__(self) -> bool:
        """Whether there is anybody."""
        return any(self)

    def __str__(self) -> str:
        """Return a sentence about them; empty where there is nobody."""
        stuck, foreign = map(", ".join, self)
        told = [f"SIGKILL did not end what is stuck in the kernel: {stuck}; restart the machine"] if stuck else []
        if foreign:
            told.append(f"{foreign} belongs to another user and cannot be ended by us; end it as that user or as root")
        return "; ".join(told)
