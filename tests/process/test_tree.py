"""P8: an attempt is over when nothing of it is left, and not before; what never belonged to it is not touched."""

from __future__ import annotations

import os
import signal
import subprocess

from launch import DEADLINE_S, Launch, Stage
from scenes import (
    DEAF,
    ENGINE,
    HOLD,
    WORKER,
    argparse_error,
    engine_with_worker,
    escapees,
    fail,
    fork,
    ima_at_startup,
    leave,
    serve,
    serve_ok,
    serve_with_worker,
    write,
)


def test_a_grandchild_that_keeps_the_pipe_open_does_not_hold_up_the_attempt(stage: Stage) -> None:
    run = stage.start([fork("holder", HOLD), *ima_at_startup()], argparse_error())
    assert run.finish() != 0
    [_, second] = run.attempts()
    assert second["left_from_before"] == []
    assert run.survivors() == []


def test_nothing_escapes_the_end_of_an_attempt_and_the_next_starts_only_then(stage: Stage) -> None:
    run = stage.start([*escapees(), *ima_at_startup()], serve_ok())
    run.wait_until_ready()
    [_, second] = run.attempts()
    assert second["left_from_before"] == []
    assert len([entry for entry in run.entries("process") if entry["attempt"] == 1]) >= 7
    assert run.stop() == 0
    assert run.survivors() == []


def test_nothing_escapes_the_end_of_the_launch_while_serving(stage: Stage) -> None:
    run = stage.start([*escapees(), *serve_ok()])
    run.wait_until_ready()
    assert run.stop() == 0
    assert run.survivors() == []


def test_nothing_escapes_when_the_last_attempt_fails(stage: Stage) -> None:
    run = stage.start([*escapees(), *argparse_error()])
    assert run.finish() == 2
    assert run.survivors() == []


def test_a_stranger_who_holds_the_pipe_does_not_hold_up_the_attempt(stage: Stage) -> None:
    """The exit is what ends an attempt; the end of the file may never come."""
    run = stage.start([fork("witness", HOLD), *serve_ok()], argparse_error())
    run.wait_until_ready()
    held = [os.open(f"/proc/{run.leader().pid}/fd/{number}", os.O_WRONLY) for number in (1, 2)]
    try:
        run.play(*fail("", status=1)[1:])
    except (ConnectionError, AssertionError, OSError):  # it ended before it could answer
        pass
    run.wait_for("the end", lambda: run.process.poll() is not None)
    for descriptor in held:
        os.close(descriptor)
    assert len(run.attempts()) == 2
    assert run.finish() == 2


def test_the_engine_left_by_a_killed_leader_is_swept_before_the_next_attempt(stage: Stage) -> None:
    """What real vLLM does: its engine processes outlive a killed parent and keep the GPU and the port."""
    run = stage.start([engine_with_worker(), serve()], serve_ok())
    run.wait_until_ready()
    engine, worker = run.child(ENGINE), run.child(WORKER)
    os.kill(run.leader().pid, signal.SIGKILL)
    run.wait_for_event("ready", 2)
    assert not engine.is_alive
    assert not worker.is_alive
    assert run.attempts()[1]["left_from_before"] == []
    assert run.stop() == 0


def test_output_of_a_descendant_after_the_leader_has_ended_is_not_lost(stage: Stage) -> None:
    words = [{"do": "wait-for-parent"}, write("stdout", b"a last word"), leave(0)]
    run = stage.start([fork("slow", *words, ignores=["SIGTERM"]), *argparse_error()])
    assert run.finish() == 2
    assert run.stdout() == b"a last word"


def test_no_zombie_is_left_below_us_while_we_serve(stage: Stage) -> None:
    orphan = fork("parent", fork("orphan", leave(0), double=True), leave(0))
    run = stage.start([orphan, *ima_at_startup()], [orphan, *serve_ok()])
    run.wait_until_ready()
    run.wait_for("zombies to be reaped", lambda: _zombies_below(run) == [])
    assert run.stop() == 0


def _zombies_below(run: Launch) -> list[str]:
    """Return zombies whose parent is safe-vllm or the guardian; the fake's own are the fake's business."""
    table = subprocess.run(["ps", "-eo", "ppid=,stat=,pid="], capture_output=True, text=True, timeout=DEADLINE_S).stdout
    ours = {str(run.process.pid), str(run.attempts()[-1]["parent"])}
    return [line for line in table.splitlines() if line.split()[0] in ours and line.split()[1].startswith("Z")]


def test_a_worker_that_hangs_in_its_own_end_does_not_hold_up_the_attempt(stage: Stage) -> None:
    deaf_worker = fork(WORKER, HOLD, ignores=DEAF)
    run = stage.start([deaf_worker, *ima_at_startup()], serve_with_worker())
    run.wait_until_ready()
    assert run.attempts()[1]["left_from_before"] == []
    assert run.stop() == 0
