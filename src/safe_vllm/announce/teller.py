"""Telling people and programs the same thing at the same time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from safe_vllm.announce.picture import Event, Picture
from safe_vllm.plan.secrets import without_secrets
from safe_vllm.printable import as_utf8, encodable
from safe_vllm.record.events import EventLog, Origin

PREFIX = "safe-vllm: "

Listener = Callable[[Event, Picture], None]


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
    origin: Origin = field(default_factory=Origin)
    started_at: float = field(default_factory=time.monotonic)
    picture: Picture = field(default_factory=Picture)
    """What all events so far add up to."""
    listeners: list[Listener] = field(default_factory=list)
    """Told of each event after it was written down, with the picture that it leads to."""
    veil: Callable[[str], str] = without_secrets
    """What may be shown of a text: without the secrets of this launch too, as soon as they are known."""
    _complaint: str | None = None

    def tell(self, event: str, lines: Sequence[str], **fields: object) -> None:
        """Tell one event: its name, the lines for people, and the fields for programs."""
        at_s = round(time.monotonic() - self.started_at, 3)
        head = {"event": event, **self.origin.stamp(), "at_s": at_s}
        content = {**head, **{name: _shown(value, self.veil) for name, value in fields.items()}}
        self.log.write(content)
        self.picture = self.picture.after(content)
        said = [as_utf8(json.dumps(content, ensure_ascii=False))] if self.wants_json else map(self.veil, lines)
        for line in said:
            self.output.say(PREFIX + encodable(line.replace("\n", " ")))
        if self.log.error != self._complaint:
            self._complaint = self.log.error
            if self._complaint:
                said_of_it = f"events are not written: {self._complaint}; the launch goes on"
                self.output.say(PREFIX + self.veil(said_of_it))
        for listener in self.listeners:
            listener(content, self.picture)


def _shown(value: object, veil: Callable[[str], str]) -> object:
    """Return what may be told of a value: lines of vLLM's that we quote may hold what an operator wrote."""
    if isinstance(value, str):
        return veil(value)
    if isinstance(value, dict):
        return {key: _shown(inner, veil) for key, inner in value.items()}
    return [_shown(inner, veil) for inner in value] if isinstance(value, (list, tuple)) else value
