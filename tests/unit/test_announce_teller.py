"""Telling people and programs: the same thing, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safe_vllm.announce.teller import Teller
from safe_vllm.plan.veil import plain_veil
from safe_vllm.record.events import EventLog

SECRET = "hunter2"
QUOTES = (
    f"OSError: cannot reach https://user:{SECRET}@hub.example/org/model",
    f"vllm: error: unrecognized arguments: --api-key {SECRET}",
    f"ValueError: bad value in {{'hf_token': '{SECRET}'}}",
    f"Authorization: Bearer {SECRET}",
)


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize("wants_json", [False, True])
def test_what_is_quoted_of_vllms_words_holds_no_secret(quote: str, wants_json: bool, tmp_path: Path) -> None:
    said, file = Said(), tmp_path / "events"
    teller = Teller(said, wants_json, EventLog(str(file)))
    teller.tell("attempt-ended", [f"it died: {quote}"], reason=quote, evidence=[{"line": 1, "text": quote}], ends=(1,))
    assert SECRET not in "".join(said.lines) + file.read_text()
    told = json.loads(file.read_text())
    assert told["reason"].startswith(quote.split(SECRET, 1)[0][:10])
    assert told["ends"] == [1]


@pytest.mark.parametrize("wants_json", [False, True])
def test_a_secret_of_the_launch_is_hidden_wherever_it_stands(wants_json: bool, tmp_path: Path) -> None:
    said, file = Said(), tmp_path / "events"
    teller = Teller(said, wants_json, EventLog(str(file)))
    teller.veil = plain_veil(["--api-key", SECRET], []).text
    heard: list[object] = []
    teller.listeners.append(lambda event, picture: heard.extend((event, picture)))
    line = f"ValueError: cannot use {SECRET} here"
    teller.tell("attempt-ended", [line], reason=line, evidence=[{"text": line}], attempt=1)
    assert SECRET not in "".join(said.lines) + file.read_text() + repr(heard)
    assert "cannot use *** here" in said.lines[0]


def test_why_events_are_not_written_holds_no_secret(tmp_path: Path) -> None:
    said = Said()
    teller = Teller(said, False, EventLog(str(tmp_path / SECRET / "events")))
    teller.veil = plain_veil(["--api-key", SECRET], []).text
    teller.tell("x", [])
    assert "events are not written" in said.lines[0] and SECRET not in said.lines[0]
