"""The tables of docs/events.md are those of the code: every event that a launch tells, with every field."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_tables import plain, rows

import safe_vllm
from incident_cases import GB200
from safe_vllm.announce.picture import Degraded, Picture
from safe_vllm.announce.teller import Teller
from safe_vllm.attempt.event import Stack, StacksTaken
from safe_vllm.errors import Status
from safe_vllm.launch.telling import Account
from safe_vllm.machine.listeners import Listener
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Rung
from safe_vllm.policy.descent import End, Next
from safe_vllm.preparing import prepare
from safe_vllm.record.events import EventLog
from safe_vllm.verdict.evidence import Observations
from safe_vllm.verdict.judge import judge

ROOM = Path(safe_vllm.__file__).with_name("launch")
SOURCES = {path.stem: path.read_text() for path in sorted(ROOM.glob("*.py"))}
DEGRADED = Degraded("triton", "2026-03-01T09:00:00Z", "as-asked died here", ("slower kernels",), "stop, then forget")
RUNG = Rung("as-asked", ("m",))
DEATH = Observations(-11)

TOLD: dict[str, Callable[[Account], None]] = {
    "launch-started": lambda to: to.opening(prepare(Intent(("m",), machine=str(GB200)), changes_nothing=True)),
    "attempt-started": lambda to: to.attempt_started(1, RUNG),
    "port-taken": lambda to: to.port_taken(1, RUNG, Endpoint("127.0.0.1", 8000), Listener(5, "python3")),
    "blind": lambda to: to.blind(1, RUNG, "it counts nothing"),
    "phase": lambda to: to.phase(1, RUNG, "capture"),
    "ready": lambda to: to.ready(1, RUNG, 95.0, ""),
    "proven": lambda to: to.proven(1, RUNG),
    "degraded": lambda to: to.degraded(),
    "stacks": lambda to: to.stacks(1, RUNG, StacksTaken((Stack(7, "VLLM::Worker", "frames"),), 1)),
    "hang": lambda to: to.stacks(1, RUNG, StacksTaken((), 1)),
    "stop-asked": lambda to: to.stop_asked(1, 60.0),
    "attempt-ended": lambda to: to.death(1, RUNG, 29.0, DEATH, judge(DEATH)),
    "remembered": lambda to: to.remembered(1, RUNG, "broken", ()),
    "incident": lambda to: to.incident(1, RUNG, Path("/state/incidents/x"), None),
    "untold": lambda to: to.untold("no room is left"),
    "would-end": lambda to: to.would_end(1, RUNG, "it hangs"),
    "observed": lambda to: to.observed(1, RUNG, Next(1, "a fault", 1), ["as-asked", "triton"]),
    "step": lambda to: to.step(2, RUNG, Rung("triton", ("m", "--x")), 2.0, "a fault", frozenset()),
    "launch-ended": lambda to: to.closing(End(Status.SPENT, "nothing is left to try")),
}
"""How each event is told, but for ``gate``, whose fields depend on the gate."""


class Nobody:
    """Reads none of our lines."""

    def say(self, line: str) -> None:
        pass


def first_told(tell: Callable[[Account], None]) -> dict[str, Any]:
    """Return the first event that is told."""
    heard: list[Any] = []
    picture = Picture(state="ready", ladder=("as-asked", "triton"), rung="triton", attempt=2, degraded=DEGRADED)
    account = Account(Teller(Nobody(), False, EventLog(None), picture=picture))
    account.teller.listeners.append(lambda event, _: heard.append(event))
    tell(account)
    return dict(heard[0])


def fields(cell: str) -> set[str]:
    """Return the fields that a cell names: in front of each semicolon's part, before what is said of them."""
    return {name for part in cell.split("; ") for name in re.findall(r"`(\w+)`", part.partition(":")[0])}


def in_every_event() -> set[str]:
    return {plain(name) for name, _ in rows("events.md", "field")}


EVENTS = {plain(name): fields(cell) for name, _, cell in rows("events.md", "`event`")}


def calls(source: str, *names: str) -> Iterator[ast.Call]:
    """Yield the calls of methods with these names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node


@pytest.mark.parametrize("name", sorted(TOLD))
def test_an_event_has_the_fields_of_its_row(name: str) -> None:
    event = first_told(TOLD[name])
    assert event["event"] == name
    assert set(event) - in_every_event() == EVENTS[name]


def test_a_gate_has_the_fields_of_its_row() -> None:
    told = calls(SOURCES["gating"], "_tell", "tell")
    assert {word.arg for call in told for word in call.keywords if word.arg} == EVENTS["gate"]


def test_what_is_in_every_event_is_in_the_first_table() -> None:
    assert set(first_told(lambda to: to.teller.tell("x", ()))) == in_every_event()


def test_every_event_that_the_code_tells_has_a_row_and_no_other() -> None:
    told = [call.args[0] for source in SOURCES.values() for call in calls(source, "tell")]
    assert {name.value for name in told if isinstance(name, ast.Constant)} == set(EVENTS)
    assert set(TOLD) | {"gate"} == set(EVENTS)


def test_the_fields_of_a_cell_are_those_before_what_is_said_of_them() -> None:
    assert fields("`a`, `b`; `c`: `d` or `e`; `f`: x, `g`") == {"a", "b", "c", "f"}
