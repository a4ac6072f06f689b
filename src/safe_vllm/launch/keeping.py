"""What a launch keeps: what broke and what held, reports on failed attempts, and what runs now.

The disk may be slow, full or gone. All of it is written by threads that the loop waits for only where something must
be kept before vLLM is started again, and then for so long at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from safe_vllm.announce.picture import Event, Picture, facts
from safe_vllm.attempt.asking import comes
from safe_vllm.attempt.loop import Loop
from safe_vllm.errors import reason_of
from safe_vllm.launch.telling import Account
from safe_vllm.patience import within
from safe_vllm.plan.ladder import Rung
from safe_vllm.record.memory import Memory, Problems
from safe_vllm.record.run_file import RunFile
from safe_vllm.verdict.evidence import Verdict

KEEP_WITHIN_S = 5.0
"""A disk that takes longer keeps nothing, and the launch goes on."""
LATE = ("the state directory does not answer: nothing is kept for now; check --state-dir",)

T = TypeVar("T")


@dataclass
class Keeper:
    """Keeps what outlives the launch. Only the loop's own thread changes it."""

    loop: Loop
    account: Account
    memory: Memory
    run_file: RunFile | None = None
    pending: int = 0
    """Deeds that threads are about."""
    wanted: Picture | None = None
    """The picture that is to be written next, while an older one is."""
    is_writing: bool = False
    untold: set[str] = field(default_factory=set)
    """Why what runs now could not be written, each reason as it was told."""
    is_given_up: bool = False
    """Whether the end once waited in vain."""

    # What runs now

    def open(self, launch: str) -> Problems:
        """Begin to tell what runs now; return why that cannot be."""
        if self.memory.directory is None:
            return ()
        try:
            self.run_file = within(KEEP_WITHIN_S, partial(RunFile, self.memory.directory, launch))
        except OSError as error:
            return (f"{self.memory.directory}: what runs now cannot be told: {reason_of(error)}",)
        if self.run_file is None:
            return LATE
        self._begin(self.run_file.tidy, lambda _: None)
        return ()

    def on_event(self, event: Event, picture: Picture) -> None:
        """Write what runs now; of several pictures that wait, the last."""
        self.wanted = picture
        if self.run_file and not self.is_writing:
            self._write(self.run_file)

    def _write(self, file: RunFile) -> None:
        picture, self.wanted = self.wanted, None
        if picture is None:
            return
        self.is_writing = True
        on_written = partial(self._on_written, file)
        self._begin(partial(file.write, facts(picture)), on_written, partial(on_written, None))

    def _on_written(self, file: RunFile, problem: str | None) -> None:
        self.is_writing = False
        if problem and problem not in self.untold:
            self.untold.add(problem)
            self.account.untold(problem)
        self._write(file)

    # What broke, and what held

    def broke(self, number: int, rung: Rung, verdict: Verdict) -> None:
        """Remember that a rung broke, before anything else is started."""
        note = partial(self.memory.note_broken, rung.name, verdict.fault, verdict.suspect, verdict.phase, time.time())
        if self.memory.is_on:
            problems = self._done(note)
            self.account.remembered(number, rung, "broken", LATE if problems is None else problems)

    def held(self, number: int, rung: Rung, caches: str | None) -> None:
        """Remember that a rung held."""
        note = partial(self.memory.note_held, rung.name, time.time(), caches)
        if self.memory.is_on:
            self._begin(note, partial(self.account.remembered, number, rung, "held"))

    def forget(self) -> None:
        """Drop what is remembered, since it is of no use any more."""
        self._begin(self.memory.drop, lambda _: None)

    # Reports

    def report(self, number: int, rung: Rung, write: Callable[[Path], tuple[Path | None, str | None]]) -> None:
        """Have the report on an attempt written, and tell where it is."""
        if self.memory.directory is None:
            return
        self._begin(
            partial(write, self.memory.directory), lambda done: self.account.incident(number, rung, done[0], done[1])
        )

    def fresh_caches(self, launch: str) -> str | None:
        """Return an empty directory of ours for caches; ``None``: there is none to be had."""
        from safe_vllm.record import caches  # seldom needed

        if self.memory.directory is None:
            return None
        return self._done(partial(caches.make, self.memory.directory, launch))

    # How

    def finish(self) -> None:
        """Let what was begun come to its end; what did not come to it once is not waited for again."""
        self.is_given_up = self.is_given_up or not comes(self.loop, lambda: not self.pending, KEEP_WITHIN_S)

    def _begin(
        self, deed: Callable[[], T], on_done: Callable[[T], None], on_none: Callable[[], None] = lambda: None
    ) -> None:
        def ended(then: Callable[[], None]) -> None:
            self.pending -= 1
            then()

        self.pending += 1
        self.loop.ask(deed, lambda result: ended(partial(on_done, result)), partial(ended, on_none))

    def _done(self, deed: Callable[[], T]) -> T | None:
        """Return what came of a deed; ``None``: it failed or is late. A stop that comes meanwhile waits for it."""
        given, missed = list[T](), list[bool]()
        self._begin(deed, given.append, lambda: missed.append(True))
        comes(self.loop, lambda: given or missed, KEEP_WITHIN_S)
        return given[0] if given else None
