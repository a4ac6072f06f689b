"""P10: whoever kills safe-vllm kills vLLM, and nobody else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from launch import DEADLINE_S, Launch, Stage
from scenes import (
    HOLD,
    argparse_error,
    escapees,
    fork,
    ima_at_startup,
    load_until,
    serve_ok,
    serve_with_worker,
)

from leftovers import Process, below

SIDECAR = ("/bin/sh", "-c", 'sleep 1000 & exec "$0" "$@"')
"""Starts a sibling of vLLM's tree: safe-vllm is its parent, and never asked for it."""


def sidecar(run: Launch) -> Process:
    """Return the sibling."""
    return run.wait_for(
        "the sidecar", lambda: [p for p in below(os.getpid(), run.older) if str(p) == f"{p.pid} sleep 1000"]
    )[0]


def kill(run: Launch) -> None:
    """Kill safe-vllm as the out-of-memory killer does. That the fake then finds its pipes broken is no bug of it."""
    run.signal(signal.SIGKILL)
    assert run.process.wait(DEADLINE_S) == -signal.SIGKILL


def test_killed_while_serving_it_takes_the_whole_tree_with_it(stage: Stage) -> None:
    run = stage.start(serve_with_worker())
    run.wait_until_ready()
    kill(run)
    run.wait_for("the end of vLLM", lambda: run.survivors() == [])


def test_killed_while_loading_it_takes_the_whole_tree_with_it(stage: Stage) -> None:
    run = stage.start(load_until(Path("/nowhere/never")))
    run.wait_for_mark("loading")
    kill(run)
    run.wait_for("the end of vLLM", lambda: run.survivors() == [])


def test_killed_it_takes_those_with_it_that_left_the_session_or_are_deaf(stage: Stage) -> None:
    run = stage.start([*escapees(), *serve_ok(stops=False)])
    run.wait_until_ready()
    kill(run)
    run.wait_for("the end of vLLM", lambda: run.survivors() == [])


def test_killed_during_the_second_attempt_it_takes_that_one_with_it(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), serve_ok())
    run.wait_until_ready()
    kill(run)
    run.wait_for("the end of vLLM", lambda: run.survivors() == [])


def test_when_the_guardian_is_killed_nothing_of_the_attempt_is_left(stage: Stage) -> None:
    run = stage.start([fork("own-session", HOLD, leaves_session=True), *serve_ok()], *[serve_ok()] * 3)
    run.wait_until_ready()
    first = [Process(entry["pid"], entry["born"]) for entry in (*run.attempts(), *run.entries("process"))]
    os.kill(run.attempts()[0]["parent"], signal.SIGKILL)
    run.wait_for("the end of the first tree", lambda: not any(process.is_alive for process in first))
    run.wait_for("what follows", lambda: run.process.poll() is not None or len(run.events("ready")) > 1)
    if run.process.poll() is None:
        run.stop()
    assert run.survivors() == []


@pytest.mark.parametrize("ending", ["stopped", "killed", "failed", "stepped down", "guardian killed"])
def test_a_process_that_never_belonged_to_vllm_survives_every_ending(stage: Stage, ending: str) -> None:
    scenes = {"failed": [argparse_error()], "stepped down": [ima_at_startup(), serve_ok()]}
    run = stage.start(*scenes.get(ending, [serve_ok()] * 3), prefix=SIDECAR)
    bystander = sidecar(run)
    if ending != "failed":
        run.wait_until_ready()
    if ending == "killed":
        kill(run)
        run.wait_for("the end of vLLM", lambda: len(run.survivors()) == 1)
    elif ending == "failed":
        assert run.finish() == 2
    elif ending == "guardian killed":
        leader = run.leader()
        os.kill(run.attempts()[0]["parent"], signal.SIGKILL)
        run.wait_for("the end of the tree", lambda: not leader.is_alive)
        run.wait_for_event("ready", 2)
        assert run.stop() == 0
    else:
        assert run.stop() == 0
    assert run.survivors() == [str(bystander)]
    os.kill(bystander.pid, signal.SIGTERM)
    run.wait_for("the end of the sidecar", lambda: not bystander.is_alive)
