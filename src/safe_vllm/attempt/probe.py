"""A thread with a question of the loop's, and what is said of a bug in one."""

from __future__ import annotations

import threading
from collections.abc import Callable

NOT_ASKED = (OSError, ImportError, MemoryError, RuntimeError)
"""What a question ends in for which there was no descriptor, no memory or no thread: that is no bug of ours."""


class Probe(threading.Thread):
    """A thread with a question, and what to do where there is no answer."""

    def __init__(self, work: Callable[[], None], on_none: Callable[[], None]) -> None:
        """Be about to ask."""
        super().__init__(target=work, daemon=True, name="probe")
        self.on_none = on_none


class Bugs:
    """The bugs so far. Each is told once for its place: the same question is asked again and again."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begin with none."""
        self._say = say
        self._told: set[tuple[type[BaseException], str, int | None]] = set()

    def tell(self, bug: BaseException) -> None:
        """Say what is wrong, unless that was said."""
        import traceback  # slow to import, and seldom needed

        last = traceback.extract_tb(bug.__traceback__)[-1]
        place = (type(bug), last.filename, last.lineno)
        if place not in self._told:
            self._told.add(place)
            self._say("safe-vllm: this is a bug in safe-vllm; please report the lines below; the launch goes on")
            self._say("".join(traceback.format_exception(bug)).rstrip("\n"))
