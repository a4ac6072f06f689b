"""Real vLLM on the CPU dies in many ways, and safe-vllm does what it promises."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from real_launch import EXPERT_PARALLEL, Event, RealLaunch, fault
from starter import Starter, assert_it_stops_cleanly

pytestmark = pytest.mark.e2e
NO_AUTOTUNE = "--no-enable-flashinfer-autotune"
UNASKED_0 = (0, None)
"""How vLLM ends after the death of a worker; ``None`` when it was so slow about it that safe-vllm ended it first."""


def first_end(launch: RealLaunch) -> Event:
    """Return how attempt 1 ended."""
    return launch.events("attempt-ended")[0]


def assert_it_serves_only_at(launch: RealLaunch, rung: str) -> None:
    """The last attempt alone was announced ready, at this rung, and it answers."""
    launch.wait_until_ready()
    assert [(event["attempt"], event["rung"]) for event in launch.events("ready")] == [(len(launch.rungs()), rung)]
    assert launch.complete()


@pytest.mark.e2e_ci
def test_a_native_fault_at_the_first_inference_is_cured_by_switching_expert_parallelism_off(start: Starter) -> None:
    straight_down = ["--pin", "caches"]  # without the attempt with fresh caches, which is not what this is about
    launch = start(*EXPERT_PARALLEL, options=straight_down)
    if launch.wait_until_ready()["attempt"] == 1:
        # This CPU survives it, other kernels are in use: the same death, injected.
        assert launch.complete()
        assert_it_stops_cleanly(launch)
        injected = fault(at="inference", how="segv", when="expert-parallel")
        launch = start(*EXPERT_PARALLEL, options=straight_down, environment=injected)
    assert_it_serves_only_at(launch, "no-expert-parallel")
    assert launch.rungs() == ["as-asked", "no-autotune", "no-expert-parallel"]
    ended = first_end(launch)
    assert (ended["fault"], ended["action"]) == ("engine-signal", "retry-safer")
    assert ended["phase"] == "first-inference"
    assert ended["status"] in UNASKED_0
    assert "- --enable-expert-parallel" in launch.events("step")[-1]["changes"]
    assert_it_stops_cleanly(launch)


@pytest.mark.parametrize(
    ("how", "found"),
    [
        pytest.param("segv", "engine-signal", marks=pytest.mark.e2e_ci),
        ("exception", "illegal-memory-access"),
    ],
)
def test_a_fault_during_autotune_is_cured_by_switching_autotune_off(start: Starter, how: str, found: str) -> None:
    launch = start(environment=fault(at="startup", how=how, when="autotune"))
    assert_it_serves_only_at(launch, "no-autotune")
    assert launch.rungs() == ["as-asked", "no-autotune"]
    ended = first_end(launch)
    assert (ended["fault"], ended["action"], ended["phase"]) == (found, "retry-safer", "autotune")
    assert ended["status"] in (1, None)
    assert launch.events("step")[0]["changes"] == [f"+ {NO_AUTOTUNE}"]
    assert_it_stops_cleanly(launch)


def test_a_backend_that_this_machine_refuses_is_skipped_and_costs_no_attempt(start: Starter) -> None:
    launch = start("--moe-backend", "flashinfer_trtllm", options=["--max-attempts", "1"])
    # The rungs below are taken without what was refused.
    assert_it_serves_only_at(launch, "no-autotune")
    assert launch.rungs() == ["as-asked", "no-autotune"]
    assert first_end(launch)["fault"] == "backend-refused"
    assert "does not support the deployment configuration" in launch.ours()
    assert_it_stops_cleanly(launch)


@pytest.mark.e2e_ci
def test_a_worker_that_dies_while_serving_is_noticed_although_vllm_ends_with_status_0(start: Starter) -> None:
    launch = start()
    launch.wait_until_ready()
    assert launch.complete()
    (worker,) = launch.pids("VLLM::Worker")
    os.kill(worker, signal.SIGSEGV)
    assert launch.wait_until_ready(2)["attempt"] == 2
    assert launch.complete()
    ended = first_end(launch)
    assert (ended["fault"], ended["action"]) == ("engine-signal", "retry-safer")
    assert ended["phase"] == "serving"
    assert ended["status"] in UNASKED_0
    assert_it_stops_cleanly(launch)


def test_a_server_that_is_healthy_and_cannot_infer_is_never_announced_ready(
    start: Starter, model_that_cannot_infer: Path
) -> None:
    launch = start(model=model_that_cannot_infer)
    status = launch.finish()
    assert '"GET /health HTTP/1.1" 200' in launch.output()
    assert launch.events("ready") == []
    assert "head_dim=16" in launch.ours()
    assert {ended["phase"] for ended in launch.events("attempt-ended")} == {"first-inference"}
    assert status == 70
    assert "safe-vllm: ended with status 70: no rung is left" in launch.ours()
    assert launch.survivors() == []


def test_an_unknown_flag_ends_with_status_2_after_one_attempt(start: Starter) -> None:
    launch = start("--no-such-flag")
    assert launch.finish() == 2
    assert launch.rungs() == ["as-asked"]
    assert "unrecognized arguments: --no-such-flag" in launch.ours()


def test_a_stop_while_the_model_loads_ends_with_status_0_and_leaves_nothing(start: Starter) -> None:
    launch = start()
    launch.wait_for("loading", lambda: "Starting to load model" in launch.output())
    assert_it_stops_cleanly(launch)
    assert launch.events("ready") == []
