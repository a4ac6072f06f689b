"""Each kind of death of a real vLLM gets the verdict it calls for, at start-up and while it serves."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

import pytest
from real_launch import Event, NotAsTold, RealLaunch, fault
from starter import Starter

pytestmark = pytest.mark.e2e
ONCE = ("--max-attempts", "1")
CANARY_STEPS = 48
"""The canary's own inference steps, and a few to spare."""


def only_end(launch: RealLaunch) -> Event:
    """Return how the one attempt ended."""
    launch.finish()
    (ended,) = launch.events("attempt-ended")
    assert launch.survivors() == []
    return ended


@pytest.mark.parametrize(
    ("how", "found", "action"),
    [
        ("abort", "engine-signal", "retry-safer"),
        ("kill", "unknown", "retry-same"),
        ("out-of-memory", "gpu-oom", "stop"),
        ("hang", "hang", "retry-safer"),
    ],
)
def test_a_death_at_start_up(start: Starter, how: str, found: str, action: str) -> None:
    options = (*ONCE, "--start-timeout", "90") if how == "hang" else ONCE
    ended = only_end(start(environment=fault(at="startup", how=how), options=options))
    assert (ended["fault"], ended["action"]) == (found, action)


@pytest.mark.parametrize(
    ("number", "found", "action"),
    [(signal.SIGABRT, "engine-signal", "retry-safer"), (signal.SIGKILL, "unknown", "retry-same")],
)
def test_a_killed_worker_while_serving(start: Starter, number: int, found: str, action: str) -> None:
    launch = start(options=ONCE)
    launch.wait_until_ready()
    os.kill(launch.pids("VLLM::Worker")[0], number)
    ended = only_end(launch)
    assert (ended["fault"], ended["action"], ended["phase"]) == (found, action, "serving")


@pytest.mark.parametrize(
    ("how", "found", "actions"),
    [
        ("exception", "illegal-memory-access", {"retry-safer"}),
        ("out-of-memory", "gpu-oom", {"retry-same"}),
        ("hang", "hang", {"retry-same", "retry-safer"}),
    ],
)
def test_a_fault_at_a_later_inference(start: Starter, how: str, found: str, actions: set[str]) -> None:
    patience = {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "15"}
    environment = fault(at="inference", how=how, after=CANARY_STEPS) | patience
    launch = start(options=ONCE, environment=environment)
    launch.wait_until_ready()
    with suppress(NotAsTold):
        for _ in range(3):
            launch.complete()
    ended = only_end(launch)
    assert (ended["fault"], ended["phase"]) == (found, "serving")
    assert ended["action"] in actions


def test_a_port_that_is_in_use(start: Starter) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        launch = start("--port", str(stranger.getsockname()[1]))
        assert launch.finish() == 75
    assert launch.events("attempt-ended")[0]["fault"] == "port-in-use"


def test_a_model_that_is_missing(start: Starter, tmp_path: object) -> None:
    launch = start(model=start.model.with_name("absent"))
    assert launch.finish() == 78
    assert launch.events("attempt-ended")[0]["fault"] == "bad-model"


def test_a_fault_sentence_in_a_prompt_leaves_an_idle_server_alone(start: Starter) -> None:
    grace_s = 2
    launch = start("--enable-log-requests", options=("--fault-grace", str(grace_s)))
    launch.wait_until_ready()
    launch.complete("torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    launch.let_pass(5 * grace_s)
    assert launch.complete()
    assert launch.rungs() == ["as-asked"]
    assert launch.stop() == 0
