"""P8, P9, P10: what befalls the guardian, or a process below it, does not keep the guardian from its work."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tracing
from fuse import SilentFileSystem
from launch import DEADLINE_S, Launch, Stage
from scenes import DEAF, ENGINE, HOLD, WORKER, Step, fork, leave, mark, on_signal, serve, serve_ok

from safe_vllm.attempt import tree
from safe_vllm.attempt.titles import Titles


@contextmanager
def locked_engine(stage: Stage, silent: SilentFileSystem, *leader: Step) -> Iterator[Launch]:
    """Start vLLM with an engine whose command line nobody can read, since it waits for a disk until the block ends."""
    go = stage.root / "go"
    lock = {"do": "lock-memory", "path": str(silent.weights), "until": str(go)}
    run = stage.start([fork(ENGINE, lock), *leader], serve_ok(), options=("--max-attempts", "1", "--no-canary"))
    try:
        run.wait_for("the engine to read", silent.is_being_read.is_set)
        run.wait_for("the guardian to watch the engine", lambda: _is_watched(run, ENGINE))
        go.touch()
        run.wait_for_mark("locked")
        engine = run.child(ENGINE).pid
        run.wait_for("the lock", lambda: _state(engine) == "D")
        yield run
    finally:
        silent.close()


def _is_watched(run: Launch, title: str) -> bool:
    wanted = f"\nPid:\t{run.child(title).pid}\n"
    try:
        return any(wanted in path.read_text() for path in Path(f"/proc/{guardian(run)}/fdinfo").iterdir())
    except OSError:  # one was closed meanwhile
        return False


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]


def guardian(run: Launch) -> int:
    """Return the number of the guardian of the latest attempt."""
    return int(run.attempts()[-1]["parent"])


def test_p8_the_end_of_the_leader_is_noticed_although_an_engine_is_locked(
    stage: Stage, silent: SilentFileSystem
) -> None:
    with locked_engine(stage, silent, HOLD) as run:
        leader = run.leader().pid
        os.kill(leader, signal.SIGKILL)
        run.wait_for("the leader to be reaped", lambda: not Path(f"/proc/{leader}").exists())
    assert run.finish() == 70


def test_p9_a_stop_reaches_the_leader_although_an_engine_is_locked(stage: Stage, silent: SilentFileSystem) -> None:
    with locked_engine(stage, silent, on_signal("SIGTERM", steps=[mark("heard"), leave(0)]), HOLD) as run:
        run.signal(signal.SIGTERM)
        run.wait_for_mark("heard")
    assert run.finish() == 0


def test_p10_killed_it_takes_the_leader_with_it_although_an_engine_is_locked(
    stage: Stage, silent: SilentFileSystem
) -> None:
    with locked_engine(stage, silent, HOLD) as run:
        leader = run.leader()
        run.signal(signal.SIGKILL)
        run.wait_for("the end of the leader", lambda: not leader.is_alive)
    run.wait_for("the end of the engine", lambda: run.survivors() == [])


def test_a_title_that_cannot_be_read_keeps_nobody_from_reading_another(stage: Stage, silent: SilentFileSystem) -> None:
    titles = Titles()
    with locked_engine(stage, silent, fork(WORKER, HOLD), HOLD) as run:
        engine, worker = run.child(ENGINE).pid, run.child(WORKER).pid
        assert titles.read([engine, worker], DEADLINE_S / 10) == {worker: WORKER}
        assert tree.name(engine) == ENGINE[:15]
    run.wait_for("the other one", lambda: titles.read([engine], 0.0) == {engine: ENGINE})
    assert run.stop() == 0


def test_p14_the_end_of_the_leader_is_noticed_although_the_guardian_stands_still(stage: Stage) -> None:
    run = stage.start(serve_ok(), serve_ok())
    run.wait_until_ready()
    os.kill(guardian(run), signal.SIGSTOP)
    os.kill(run.leader().pid, signal.SIGSEGV)
    assert run.wait_for_event("attempt-ended")["status"] == -signal.SIGSEGV
    run.wait_for_event("ready", 2)
    assert run.stop() == 0


def test_p14_the_end_of_the_leader_is_noticed_although_the_guardian_hangs(stage: Stage) -> None:
    run = stage.start([fork("witness", HOLD, ignores=DEAF), *serve_ok()], serve_ok())
    run.wait_until_ready()
    first, witness = guardian(run), run.child("witness")
    tracing.seize(first)
    tracing.interrupt(first)
    os.kill(run.leader().pid, signal.SIGKILL)
    tracing.reap(first)
    run.wait_for_event("ready", 2)
    assert not witness.is_alive
    assert run.stop() == 0


@contextmanager
def short_of(run: Launch, shortage: str, path: str, times: str) -> Iterator[Path]:
    """Let the guardian's attempts to open a path fail for so many times; yield where strace tells of them."""
    strace, told = shutil.which("strace"), run.journal_path.with_name("strace")
    if strace is None:
        pytest.skip("no strace here")
    failing = f"inject=openat:error={shortage}:when={times}"
    words = [strace, "-o", str(told), "-p", str(guardian(run)), "-P", path, "-e", "trace=openat", "-e", failing]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr
        said = tracer.stderr.readline()
        if "attached" not in said:
            pytest.skip(f"no process may be traced here: {said}")
        try:
            yield told
        finally:
            tracer.terminate()
            tracer.wait(DEADLINE_S)


def _failed(told: Path) -> int:
    return told.read_text().count("(INJECTED)") if told.exists() else 0


@pytest.mark.parametrize("shortage", ["ENFILE", "ENOMEM"])
def test_a_look_that_fails_is_taken_again(stage: Stage, shortage: str) -> None:
    """P14: the guardian lives, and follows the process that was born meanwhile."""
    run = stage.start(serve_ok(), serve_ok())
    run.wait_until_ready()
    with short_of(run, shortage, "/proc", "1..3") as told:
        run.play(fork(WORKER, HOLD))
        run.wait_for("three looks to fail", lambda: _failed(told) == 3)
    run.wait_for("the worker to be followed", lambda: _is_watched(run, WORKER))
    assert run.stop() == 0
    assert len(run.attempts()) == 1


def test_p8_a_sweep_is_repeated_until_it_can_be_told_who_is_left(stage: Stage) -> None:
    """Not the list fails here, but the look at one process, which counts as alive until it can be seen."""
    run = stage.start([fork("deaf", HOLD, ignores=DEAF), *serve_ok()], serve_ok())
    run.wait_until_ready()
    with short_of(run, "ENFILE", f"/proc/{run.child('deaf').pid}/stat", "1..30") as told:
        os.kill(run.leader().pid, signal.SIGKILL)
        run.wait_for("looks to fail", lambda: _failed(told) == 30)
    run.wait_for_event("ready", 2)
    assert run.attempts()[1]["left_from_before"] == []
    assert run.stop() == 0


def test_p9_an_order_that_fails_is_carried_out_later(stage: Stage) -> None:
    leader = [on_signal("SIGTERM", steps=[mark("heard"), leave(0)]), mark("works"), HOLD]
    run = stage.start(leader, words=["tiny", "--headless"])
    run.wait_for_mark("works")
    with short_of(run, "ENOMEM", f"/proc/{run.leader().pid}/stat", "1..3") as told:
        run.signal(signal.SIGTERM)
        run.wait_for_mark("heard")
        assert _failed(told) == 3
    assert run.finish() == 0


def test_p8_where_no_limit_can_be_raised_more_processes_than_descriptors_are_all_ended(stage: Stage) -> None:
    crowd = [fork(f"one-{number}", HOLD, ignores=DEAF, double=True) for number in range(50)]
    run = stage.start([*crowd, *serve_ok()], prefix=("/bin/sh", "-c", 'ulimit -n 48; exec "$0" "$@"'))
    run.wait_until_ready()
    run.let_pass(5)  # for some more looks of the guardian
    assert run.stop() == 0
    assert "clean shutdown" in run.marks()
    assert run.survivors() == []


@pytest.mark.parametrize("is_copy", [True, False])
def test_p15_a_fork_is_no_engine_under_the_title_that_it_was_born_with(stage: Stage, is_copy: bool) -> None:
    """As a data loader of an engine has it; a worker that is forked takes one of its own."""
    title = "copy" if is_copy else WORKER
    engine = fork(ENGINE, fork(title, HOLD, keeps_title=is_copy), HOLD)
    run = stage.start([engine, serve()], serve_ok(), options=("--backoff", "0.01", "--fault-grace", "1"))
    run.wait_until_ready()
    run.kill_child(title, signal.SIGKILL)
    if is_copy:
        run.let_pass(5)  # a server is ended one second after its worker was killed
        assert len(run.attempts()) == 1
    else:
        run.wait_for_event("ready", 2)
    assert run.stop() == 0


@pytest.mark.parametrize("has_guardian", [True, False])
def test_p8_a_process_of_another_user_is_not_called_stuck(stage: Stage, has_guardian: bool) -> None:
    """As ``sudo`` starts them: they are below us, and no signal of ours is for them."""
    setpriv, user = shutil.which("setpriv"), 54350
    if os.geteuid() or setpriv is None:
        pytest.skip("only root can become another user")
    other = fork("other", {"do": "become-user", "uid": user}, HOLD, double=True)
    options = ("--max-attempts", "1", "--stop-timeout", "1")
    run = stage.start([other, *serve_ok()], prefix=(setpriv, "--bounding-set=-kill"), options=options)
    run.wait_until_ready()
    pid = run.child("other").pid
    run.wait_for("the other user", lambda: f"Uid:\t{user}\t" in Path(f"/proc/{pid}/status").read_text())
    if has_guardian:
        run.signal(signal.SIGTERM)
    else:
        os.kill(guardian(run), signal.SIGKILL)
    assert run.finish(90) == 71
    assert f"other ({pid}) belongs to another user and cannot be ended by us" in run.ours()
    assert "stuck in the kernel" not in run.ours()
    os.kill(pid, signal.SIGKILL)
    run.wait_for("the end of all", lambda: run.survivors() == [])
