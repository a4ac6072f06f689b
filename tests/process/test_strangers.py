"""P8 and P10: no signal meets a process that it was not meant for."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from launch import DEADLINE_S, Launch, Stage
from scenes import serve_ok, serve_with_worker

from leftovers import Process, below
from safe_vllm.attempt import tree

LATER = {
    "an orphan in the sidecar's session": "sleep 1000 & exit",
    "a child in a session of its own": "setsid sleep 1000 & wait",
}
"""What a sidecar that has a session of its own starts when vLLM already runs."""


def begun_before(stage: Stage, later: str) -> tuple[str, ...]:
    """Return what starts safe-vllm when a sidecar is in its session and waits for the file ``go``."""
    go, there = stage.root / "go", stage.root / "there"
    sidecar = f"echo >{there}; while [ ! -e {go} ]; do sleep 0.05; done; {later}"
    wait = f"while [ ! -e {there} ]; do sleep 0.02; done"
    return ("/bin/sh", "-c", f"""setsid /bin/sh -c '{sidecar}' & {wait}; exec "$0" "$@" """)


def sleeper(run: Launch) -> list[Process]:
    """Return what the sidecar started."""
    return [known for known in below(os.getpid(), run.older) if str(known) == f"{known.pid} sleep 1000"]


@pytest.mark.parametrize("later", LATER)
def test_p10_what_a_sidecar_starts_later_survives_when_the_guardian_is_killed(stage: Stage, later: str) -> None:
    """Its orphans are handed to us beside those of the guardian, and were not there when the attempt began."""
    run = stage.start(*[serve_ok()] * 2, prefix=begun_before(stage, LATER[later]))
    run.wait_until_ready()
    (stage.root / "go").touch()
    (bystander,) = run.wait_for("what it starts", lambda: sleeper(run))
    os.kill(run.attempts()[0]["parent"], signal.SIGKILL)
    run.wait_for_event("ready", 2)
    assert run.stop() == 0
    assert bystander.is_alive
    os.kill(bystander.pid, signal.SIGTERM)
    run.wait_for("the end of all", lambda: run.survivors() == [])


def test_p10_who_kills_our_process_group_does_not_meet_the_guardian(stage: Stage) -> None:
    """SIGKILL, as a shell's ``kill -9 %1`` and a time-out with ``kill -- -PID`` send it."""
    run = stage.start(serve_with_worker())
    run.wait_until_ready()
    os.killpg(run.process.pid, signal.SIGKILL)
    run.process.wait(DEADLINE_S)
    run.wait_for("the end of vLLM", lambda: run.survivors() == [])


def test_p8_a_later_process_with_the_same_number_gets_no_signal() -> None:
    """The number may have gone to another one since the tree was looked through: the start time tells."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as later:
        known = tree.process(later.pid)
        assert known
        tree.send(known._replace(started=known.started - 1), signal.SIGKILL)
        tree.send(known, signal.SIGTERM)
        assert later.wait(DEADLINE_S) == -signal.SIGTERM
