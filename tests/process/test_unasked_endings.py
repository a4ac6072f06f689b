"""P14 and P15: an end that nobody asked for is a failure, whatever its status, and a line alone is not a verdict."""

from __future__ import annotations

import os
import signal

import pytest
from launch import Launch, Stage
from scenes import (
    CANARY,
    ENGINE,
    ILLEGAL_ACCESS,
    WORKER,
    WORKER_TRACEBACK,
    engine,
    fork,
    leave,
    mark,
    on_signal,
    serve,
    serve_ok,
    serve_with_worker,
    write,
)

IMPATIENT = ("--backoff", "0.01", "--fault-grace", "0.5")


def ready(run: Launch) -> Launch:
    """Wait for the first attempt to serve."""
    run.wait_until_ready("as-asked")
    return run


@pytest.mark.parametrize("victim", [ENGINE, WORKER])
def test_an_engine_process_killed_while_serving_is_seen_although_vllm_ends_with_0(stage: Stage, victim: str) -> None:
    run = ready(stage.start(serve_with_worker(), serve_ok()))
    run.kill_child(victim, signal.SIGSEGV)
    run.wait_until_ready("no-autotune")
    [ended] = run.events("attempt-ended")
    assert (ended["status"], ended["fault"], ended["action"]) == (0, "engine-signal", "retry-safer")
    assert ended["phase"] == "serving"
    assert run.stop() == 0


@pytest.mark.parametrize("number", ["SIGABRT", "SIGILL", "SIGSEGV"])
def test_the_signal_of_a_worker_is_known_although_no_line_names_it(stage: Stage, number: str) -> None:
    run = ready(stage.start(serve_with_worker(), serve_ok()))
    run.kill_child(WORKER, getattr(signal, number))
    run.wait_for_event("ready", 2)
    assert number in run.ours()
    assert run.stop() == 0


def test_after_long_service_the_same_rung_gets_another_chance(stage: Stage) -> None:
    run = ready(stage.start(serve_with_worker(), serve_ok(), options=("--backoff", "0.01", "--proving-window", "0")))
    run.wait_for_event("proven")
    run.kill_child(WORKER, signal.SIGSEGV)
    run.wait_for_event("ready", 2)
    assert run.rungs() == ["as-asked", "as-asked"]
    assert run.stop() == 0


@pytest.mark.parametrize("scene", [[leave(0)], [mark("quiet"), write("stdout", "bye\n"), leave(0)]])
def test_p14_a_quiet_end_with_0_before_ready_is_a_failure(stage: Stage, scene: list[dict[str, object]]) -> None:
    run = stage.start(scene, options=("--max-attempts", "1"))
    assert run.finish() not in (0, 125)
    assert run.events("attempt-ended")[0]["action"] != "none"


def test_p14_a_quiet_end_with_0_while_serving_is_a_failure_and_is_tried_again(stage: Stage) -> None:
    run = ready(stage.start(serve_ok(completions=(*CANARY, {"first": [leave(0)], "then": "drop"})), serve_ok()))
    with pytest.raises(ConnectionError):
        run.request("POST", "/v1/completions", {})
    run.wait_for_event("ready", 2)
    assert run.stop() == 0


def test_quiet_ends_with_0_do_not_become_a_success_when_nothing_is_left_to_try(stage: Stage) -> None:
    scene = serve_ok(completions=(*CANARY, {"first": [leave(0)], "then": "drop"}))
    run = ready(stage.start(scene, options=("--max-attempts", "1")))
    with pytest.raises(ConnectionError):
        run.request("POST", "/v1/completions", {})
    assert run.finish() == 70


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_p14_a_leader_stopped_by_somebody_else_in_good_order_ends_the_launch_with_0(
    stage: Stage, number: signal.Signals
) -> None:
    run = ready(stage.start(serve_ok()))
    os.kill(run.leader().pid, number)
    assert run.finish() == 0
    assert "clean shutdown" in run.marks()
    assert len(run.attempts()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_leader_that_dies_of_somebody_elses_stop_ends_the_launch_with_0(stage: Stage, number: signal.Signals) -> None:
    run = stage.start([mark("loading"), {"do": "hold"}])
    run.wait_for_mark("loading")
    os.kill(run.leader().pid, number)
    assert run.finish() == 0
    assert len(run.attempts()) == 1


def test_p14_a_shutdown_that_a_fault_came_before_is_no_stop(stage: Stage) -> None:
    run = ready(stage.start(serve_ok(), serve_ok()))
    run.play(write("stderr", WORKER_TRACEBACK.format(ILLEGAL_ACCESS)))
    run.wait_for("the fault to be relayed", lambda: ILLEGAL_ACCESS in run.stderr_text())
    os.kill(run.leader().pid, signal.SIGTERM)
    run.wait_until_ready("no-autotune")
    assert run.events("attempt-ended")[0]["fault"] == "illegal-memory-access"
    assert run.stop() == 0


def test_a_leader_killed_by_somebody_unknown_is_started_again_as_it_was(stage: Stage) -> None:
    run = ready(stage.start(serve_ok(), serve_ok()))
    os.kill(run.leader().pid, signal.SIGKILL)
    run.wait_for_event("ready", 2)
    assert run.rungs() == ["as-asked", "as-asked"]
    first, second = run.attempts()
    assert first["argv"] == second["argv"]
    assert run.stop() == 0


def test_a_dead_engine_that_vllm_does_not_notice_is_acted_on(stage: Stage) -> None:
    run = ready(stage.start(serve_with_worker(notices=False), serve_ok(), options=IMPATIENT))
    run.kill_child(WORKER, signal.SIGSEGV)
    run.wait_until_ready("no-autotune")
    assert run.stop() == 0


def test_p15_a_fault_line_is_confirmed_by_a_canary_that_fails(stage: Stage) -> None:
    run = ready(stage.start(serve_ok(completions=(*CANARY, 500)), serve_ok(), options=IMPATIENT))
    run.play(write("stderr", WORKER_TRACEBACK.format(ILLEGAL_ACCESS)))
    run.wait_until_ready("no-autotune")
    assert run.events("attempt-ended")[0]["fault"] == "illegal-memory-access"
    assert run.stop() == 0


def test_p15_a_fault_line_is_disproved_by_a_canary_that_is_answered(stage: Stage) -> None:
    """Users' prompts are logged too."""
    run = ready(stage.start(serve_ok(), options=IMPATIENT))
    run.play(write("stdout", f"INFO [logger.py:40] Received request: prompt: 'what is {ILLEGAL_ACCESS}?'\n"))
    run.play(write("stderr", f"torch.AcceleratorError: {ILLEGAL_ACCESS}\n"))
    run.wait_for(
        "the second canary",
        lambda: (
            len([e for e in run.entries("request") if e["method"] == "POST" and e["path"] == "/v1/completions"])
            == len(CANARY) + 1
        ),
    )
    assert run.request("POST", "/v1/completions", {}) == 200
    assert run.stop() == 0
    assert len(run.attempts()) == 1


def test_a_worker_that_ends_in_a_stop_by_somebody_else_is_no_fault(stage: Stage) -> None:
    run = ready(stage.start([fork(WORKER, on_signal("SIGUSR1"), {"do": "hold"}), engine(), serve()]))
    os.kill(run.leader().pid, signal.SIGTERM)
    assert run.finish() == 0
    assert len(run.attempts()) == 1
