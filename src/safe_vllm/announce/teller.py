"""Telling people and programs the same thing at the same time."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from safe_vllm.record.events import EventLog

PREFIX = "safe-vllm: "


class Output(Protocol):
    """Where our own lines go."""

    def say(self, line: str) -> None:
        """Write one line."""


@dataclass
class Teller:
    """Says lines on stderr, or the event itself when programs listen, and keeps every event."""

    output: Output
    wants_json: bool
    log: EventLog
    started_at: float = field(default_factory=time.monotonic)
    _complaint: str | None = None

    def tell(self, event: str, lines: Sequence[str], **fields: object) -> None:
        """Tell one event: its name, the lines for people, and the fields for programs."""
        at_s = round(time.monotonic() - self.started_at, 3)
        content = {"event": event, "at_s": at_s, **fields}
        self.log.write(content)
        said = [json.dumps(content, ensure_ascii=False)] if self.wants_json else lines
        for line in said:
            self.output.say(PREFIX + line.replace("\n", " "))
        if self.log.error != self._complaint:
            self._complaint = self.log.error
            if self._complaint:
                self.output.say(f"{PREFIX}events are not written: {self._complaint}; the launch goes on")
