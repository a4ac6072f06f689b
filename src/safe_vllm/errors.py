"""Expected trouble: what went wrong, what to do about it, and the exit status that says so."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class Status(IntEnum):
    """Exit statuses of ``safe-vllm serve``. The meanings follow sysexits(3) where one fits."""

    STOPPED = 0
    """Asked to stop, and everything ended."""
    USAGE = 2
    """Wrong command line, ours or vLLM's."""
    HARDWARE = 69
    """Hardware fault: this node needs attention."""
    SPENT = 70
    """Budget or ladder spent: vLLM kept failing."""
    STUCK = 71
    """A process of the old server survived SIGKILL."""
    PASSING = 75
    """A condition that may pass: port in use, hub unreachable."""
    CONFIGURATION = 78
    """No retry can help."""
    BUG = 125
    """Our own bug."""
    NOT_EXECUTABLE = 126
    """vLLM is there but cannot be executed."""
    NOT_FOUND = 127
    """vLLM was not found."""


class Trouble(Exception):
    """Something that can happen to a careful operator: a sentence, a next step, and an exit status."""

    def __init__(self, message: str, *, hint: str | None = None, status: Status = Status.CONFIGURATION) -> None:
        """Keep the sentence (lower case, what and where), the next step, and the exit status."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status

    def __str__(self) -> str:
        """Return one line: what, where, what to do next."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


def nearest(word: str, known: Sequence[str], least: float = 0.6) -> str | None:
    """Return the known word most like ``word``; ``None``: none is ``least`` alike, from 0 to 1."""
    import difflib  # only when something is wrong

    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=least)), None)


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return the nearest known word as the end of a sentence, else all of them."""
    near = nearest(word, known)
    return f", did you mean {near!r}?" if near else f", expected one of: {', '.join(known)}"


def reason_of(error: Exception) -> str:
    """Return why it did not work, in lower case and, where the system says it, without the path."""
    told: str | None = getattr(error, "strerror", None)
    return (told or str(error)).lower()
