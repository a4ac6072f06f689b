"""P10: whoever kills safe-vllm kills vLLM, and nobody else."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
import tracing
from launch import DEADLINE_S, Launch, Stage
from scenes import (
    HOLD,
    argparse_error,
    escapees,
    fork,
    ima_at_startup,
    leave,
    load_until,
    mark,
    on_signal,
    serve_ok,
    serve_with_worker,
    wait_for_file,
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
    """SIGKILL."""
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


def test_p10_who_kills_all_that_are_called_safe_vllm_does_not_meet_the_guardian(stage: Stage) -> None:
    """As ``pkill -9 -f safe.vllm`` and ``pkill -9 safe-vllm`` do."""
    run = stage.start(serve_with_worker())
    run.wait_until_ready()
    guardian = run.attempts()[0]["parent"]
    names = [Path(f"/proc/{guardian}/{name}").read_text() for name in ("cmdline", "comm")]
    assert names[0].rstrip("\0") == f"guardian of process {run.process.pid}"
    assert not [name for name in names if re.search("vllm|python", name)]
    for process in below(os.getpid(), run.older):
        if re.search("safe.?vllm", str(process)):
            os.kill(process.pid, signal.SIGKILL)
    run.process.wait(DEADLINE_S)
    run.wait_for("the end of vLLM", lambda: run.survivors() == [])


def test_p9_a_guardian_that_was_stopped_obeys_all_the_same(stage: Stage) -> None:
    run = stage.start(serve_ok())
    run.wait_until_ready()
    os.kill(run.attempts()[0]["parent"], signal.SIGSTOP)
    assert run.stop() == 0
    assert "clean shutdown" in run.marks()
    assert run.survivors() == []


def test_p9_a_guardian_that_hangs_does_not_keep_a_stop_from_ending_everything(stage: Stage) -> None:
    run = stage.start([*escapees(), *serve_ok()])
    run.wait_until_ready()
    guardian = run.attempts()[0]["parent"]
    tracing.seize(guardian)
    tracing.interrupt(guardian)
    run.signal(signal.SIGTERM)
    tracing.reap(guardian)
    assert run.finish() == 0
    assert run.survivors() == []


def test_p9_a_server_that_takes_long_to_wind_down_is_not_mistaken_for_a_guardian_that_hangs(stage: Stage) -> None:
    go = stage.root / "go"
    drains = on_signal("SIGTERM", steps=[mark("draining"), wait_for_file(go), leave(0)])
    run = stage.start([drains, mark("works"), HOLD], words=["tiny", "--headless"])
    run.wait_for_mark("works")
    run.signal(signal.SIGTERM)
    run.wait_for_mark("draining")
    run.let_pass(11)  # more than a guardian has for its answer
    go.touch()
    assert run.finish() == 0
    assert run.events("attempt-ended")[0]["status"] == 0


def test_p10_an_orphan_of_a_sidecar_survives_when_the_guardian_is_killed(stage: Stage) -> None:
    """It is handed to us, as the orphans of the guardian are, and was not there when the attempt began."""
    go = stage.root / "go"
    breed = f"(while [ ! -e {go} ]; do sleep 0.05; done; sleep 1000 & exit) &"
    run = stage.start(*[serve_ok()] * 2, prefix=("/bin/sh", "-c", f'{breed} exec "$0" "$@"'))
    run.wait_until_ready()
    go.touch()
    bystander = sidecar(run)
    leader = run.leader()
    os.kill(run.attempts()[0]["parent"], signal.SIGKILL)
    run.wait_for("the end of the tree", lambda: not leader.is_alive)
    run.wait_for_event("ready", 2)
    assert run.stop() == 0
    assert run.survivors() == [str(bystander)]
    os.kill(bystander.pid, signal.SIGTERM)
    run.wait_for("the end of the orphan", lambda: not bystander.is_alive)
