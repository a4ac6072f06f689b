"""What counts of an attempt that was asked to stop when it was dying anyway."""

from __future__ import annotations

import signal

import pytest

from safe_vllm import known
from safe_vllm.attempt.event import (
    CanaryAnswered,
    Completed,
    EngineEnded,
    Event,
    FaultLine,
    HealthAnswered,
    LeaderEnded,
    Spawned,
    StopAsked,
    Tick,
)
from safe_vllm.attempt.lifecycle import Lifecycle
from safe_vllm.attempt.seen import Times, dying, observations
from safe_vllm.attempt.timing import Timing
from safe_vllm.verdict.scan import Scan

FAULT = "CUDA error: an illegal memory access was encountered"
READY: tuple[Event, ...] = (HealthAnswered(True), CanaryAnswered("answered"))
TRACEBACK = f"(Worker_TP0 pid=4321) ERROR 11-30 08:40:48 [x.py:949] torch.AcceleratorError: {FAULT}\n"


def attempt(*events: Event, prints: str = "") -> tuple[Lifecycle, Scan]:
    scan = Scan(known.signatures())
    scan.feed("stderr", prints.encode(), 1.0)
    state = Lifecycle(Timing(60, 20, None))
    for now, event in enumerate((Spawned(), *events)):
        state, _ = state.on(event, now)
    return state, scan


@pytest.mark.parametrize(
    ("prints", "events"),
    [
        ("", [EngineEnded("VLLM::EngineCore", -signal.SIGSEGV)]),
        ("", [EngineEnded("VLLM::EngineCore", -signal.SIGSEGV), LeaderEnded(1)]),
        (TRACEBACK, [FaultLine(FAULT)]),
        (TRACEBACK, [*READY, FaultLine(FAULT)]),
        ("", [HealthAnswered(True), CanaryAnswered("failed", "500"), *[Tick()] * 40]),
    ],
    ids=["engine killed", "engine killed and leader ended", "fault line", "fault line in service", "ended by us"],
)
def test_it_was_dying(prints: str, events: list[Event]) -> None:
    assert dying(*attempt(*events, prints=prints))


@pytest.mark.parametrize(
    ("prints", "events"),
    [
        ("", []),
        ("", [*READY]),
        ("", [LeaderEnded(-signal.SIGTERM)]),  # a service manager may have told all of us
        ("", [LeaderEnded(0)]),
        ("", [EngineEnded("VLLM::EngineCore", -signal.SIGTERM)]),
        ("", [HealthAnswered(True), CanaryAnswered("failed")]),
        (TRACEBACK, [*READY, FaultLine(FAULT), Completed()]),
    ],
    ids=["loading", "serving", "leader stopped", "leader ended", "engine stopped", "a failed request", "survived"],
)
def test_it_may_have_lived_on(prints: str, events: list[Event]) -> None:
    assert dying(*attempt(*events, prints=prints)) is None


def test_what_the_leader_ended_with_after_the_stop_tells_nothing() -> None:
    state, scan = attempt(EngineEnded("VLLM::EngineCore", -signal.SIGSEGV))
    was = dying(state, scan)
    state = state.on(StopAsked(signal.SIGTERM), 5)[0].on(LeaderEnded(-signal.SIGTERM), 6)[0]
    seen = observations(state, scan, (), "init", Times(0, 7), is_proven=False)
    assert was
    assert (seen.leader_status, was.without_stop(seen).leader_status) == (-signal.SIGTERM, None)


def test_what_it_ended_with_before_the_stop_does() -> None:
    state, scan = attempt(EngineEnded("VLLM::EngineCore", -signal.SIGSEGV), LeaderEnded(1))
    was = dying(state, scan)
    assert was
    assert was.without_stop(observations(state, scan, (), "init", Times(0, 7), is_proven=False)).leader_status == 1
