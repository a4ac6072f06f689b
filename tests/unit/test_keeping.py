"""How long a launch waits for what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from safe_vllm.announce.teller import Teller
from safe_vllm.attempt.loop import Loop
from safe_vllm.launch.keeping import KEEP_WITHIN_S, Keeper
from safe_vllm.launch.telling import Account
from safe_vllm.record.events import EventLog
from safe_vllm.record.fingerprint import Fingerprint
from safe_vllm.record.memory import Memory


class Silent:
    """A loop to which no thread answers; its time passes only where somebody waits. It is what the lines go to, too."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def turn(self, until: float) -> None:
        self.time = until

    def ask(
        self, question: Callable[[], object], on_answer: Callable[[Any], None], on_none: Callable[[], None]
    ) -> None:
        pass

    def say(self, line: str) -> None:
        pass


def keeper(loop: Silent, directory: Path) -> Keeper:
    account = Account(Teller(loop, False, EventLog(None)))
    return Keeper(cast(Loop, loop), account, Memory(directory, Fingerprint("0" * 16, {}), 14.0))


def test_what_did_not_come_to_its_end_once_is_not_waited_for_again(tmp_path: Path) -> None:
    loop = Silent()
    keeps = keeper(loop, tmp_path)
    keeps.forget()
    keeps.finish()
    keeps.finish()
    assert loop.time == KEEP_WITHIN_S
