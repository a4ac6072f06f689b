"""P8: an attempt is over when nothing of it is left, and not before; what never belonged to it is not touched."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

import tracing
from fuse import SilentFileSystem
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
    mark,
    serve,
    serve_ok,
    serve_with_worker,
    wait_for_file,
    write,
)

from leftovers import below
from safe_vllm.attempt.watch import Watch


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
    """P8, P11: whoever ended is reaped, as SIGCHLD asks for."""
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


def test_p8_processes_that_are_born_faster_than_they_can_be_listed_are_ended(stage: Stage) -> None:
    go = stage.root / "go"
    hydra = fork("hydra", wait_for_file(go), {"do": "hydra", "lives_s": 4}, ignores=DEAF)
    run = stage.start([hydra, *serve_ok()])
    run.wait_until_ready()
    go.touch()
    run.wait_for_mark("grown")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):  # the third one means: kill, now
        run.signal(number)
    assert run.finish() == 0
    assert run.survivors() == []
    assert "of old age" not in run.marks()


def test_p8_a_process_that_survives_sigkill_is_named_and_ends_the_launch_with_71(
    stage: Stage, silent: SilentFileSystem
) -> None:
    stuck = fork(WORKER, mark("asks"), {"do": "look-at", "path": str(silent.place / "x")})
    run = stage.start([stuck, *ima_at_startup()], serve_ok())
    run.wait_for("the attempt", run.attempts)
    (guardian,) = [known for known in below(os.getpid(), run.older) if known.pid == run.attempts()[0]["parent"]]
    assert run.finish(90) == 71
    assert f"stuck in the kernel: {WORKER} ({run.child(WORKER).pid}); restart the machine" in run.ours()
    assert len(run.attempts()) == 1
    report = json.loads(Path(run.wait_for_event("incident")["path"], "incident.json").read_text())
    assert [past["attempt"] for past in report["history"]] == [report["attempt"]]
    assert not run.leader().is_alive
    assert guardian in below(os.getpid(), run.older)  # it stays for the last process
    silent.close()
    run.wait_for("the end of both", lambda: run.survivors() == [])


def with_stuck_worker(stage: Stage, silent: SilentFileSystem) -> Launch:
    """Start a server with a worker that survives SIGKILL; there is one attempt, and a second one would serve."""
    stuck = fork(WORKER, mark("asks"), {"do": "look-at", "path": str(silent.place / "x")})
    run = stage.start([stuck, *serve_ok()], serve_ok(), options=("--max-attempts", "1"))
    run.wait_until_ready()
    return run


def test_p8_what_survives_sigkill_without_its_guardian_ends_the_launch_with_71(
    stage: Stage, silent: SilentFileSystem
) -> None:
    run = with_stuck_worker(stage, silent)
    os.kill(run.attempts()[0]["parent"], signal.SIGKILL)
    assert run.finish(90) == 71
    assert f"stuck in the kernel: {WORKER} ({run.child(WORKER).pid})" in run.ours()
    silent.close()
    run.wait_for("the end of the last process", lambda: run.survivors() == [])


def test_p9_a_stop_while_the_tree_of_a_lost_guardian_is_ended_is_a_stop(stage: Stage, silent: SilentFileSystem) -> None:
    run = with_stuck_worker(stage, silent)
    leader = run.leader()
    os.kill(run.attempts()[0]["parent"], signal.SIGKILL)
    run.wait_for("the end of the leader", lambda: not leader.is_alive)
    run.signal(signal.SIGTERM)
    silent.close()
    assert run.finish() == 0


def test_p8_a_leader_whose_end_a_tracer_keeps_for_himself_has_ended(stage: Stage) -> None:
    """As under a strace that hangs: it is a zombie that nobody but the tracer can reap, and holds nothing."""
    run = stage.start(serve_ok(), options=("--stop-timeout", "0.5"))
    run.wait_until_ready()
    leader = run.leader()
    tracing.seize(leader.pid)
    try:
        assert run.stop() == 0
        assert _state(leader.pid) == "Z"
    finally:
        tracing.reap(leader.pid)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]


def test_p15_a_dead_leader_is_seen_although_a_tracer_keeps_its_end_for_himself(stage: Stage) -> None:
    run = stage.start([fork("witness", HOLD), *serve_ok()], argparse_error())
    run.wait_until_ready()
    leader = run.leader()
    tracing.seize(leader.pid)
    try:
        os.kill(leader.pid, signal.SIGKILL)
        assert run.finish() == 2
    finally:
        tracing.reap(leader.pid)
    assert run.events("attempt-ended")[0]["status"] == -signal.SIGKILL


def test_a_process_that_was_just_born_is_followed_although_the_last_look_was_long() -> None:
    """So the signal of an engine that dies young is known, also beside a thousand processes of others."""
    watch = Watch(select.poll())
    now = time.monotonic()
    watch.look(now)
    with subprocess.Popen(["/bin/sleep", "1000"]) as child:
        watch.look(now + 0.1)
        try:
            assert _watched(watch) == [child.pid]
        finally:
            child.kill()


def _watched(watch: Watch) -> list[int]:
    facts = [path.read_text() for path in Path("/proc/self/fdinfo").iterdir() if path.exists()]
    return [int(text.split("\nPid:\t")[1].split()[0]) for text in facts if "\nPid:\t" in text]
