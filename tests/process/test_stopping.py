"""P9: a request to stop is obeyed at any time, by the right processes, once and for all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGQUIT, SIGTERM, Signals

import pytest
from launch import Launch, Stage
from scenes import (
    ENGINE,
    HOLD,
    ILLEGAL_ACCESS,
    WAIT_FOR_CHILD,
    engine,
    fork,
    ima_at_startup,
    leave,
    load_until,
    mark,
    on_signal,
    serve,
    serve_ok,
    write,
)

STOPS = [SIGTERM, SIGINT, SIGHUP, SIGQUIT]
LOADING = load_until(Path("/nowhere/never"))


def assert_stopped_for_good(run: Launch, attempts: int = 1) -> None:
    """Assert the end that was asked for: status 0, nothing left, no further attempt."""
    assert run.finish() == 0
    assert run.survivors() == []
    assert len(run.attempts()) == attempts
    assert "one attempt too many" not in run.marks()


@pytest.mark.parametrize("number", STOPS)
def test_while_it_loads_the_whole_tree_is_asked_because_vllm_swallows_the_signal(stage: Stage, number: Signals) -> None:
    """SIGTERM, SIGINT, SIGHUP and SIGQUIT are all SIGTERM to vLLM."""
    run = stage.start([*LOADING[:-1], WAIT_FOR_CHILD, leave(1)])
    run.wait_for_mark("loading")
    engine_core = run.child(ENGINE)
    run.signal(number)
    assert_stopped_for_good(run)
    assert run.entries("child-ended")[0]["status"] == -SIGTERM
    assert run.signals() == ["SIGTERM"]  # both were asked at the same time, once
    assert not engine_core.is_alive
    assert "ready" not in run.ours()


def test_a_leader_that_hangs_after_it_swallowed_the_signal_is_killed_at_the_deadline(stage: Stage) -> None:
    run = stage.start(LOADING, options=("--stop-timeout", "0.5"))
    run.wait_for_mark("loading")
    run.signal(SIGTERM)
    assert_stopped_for_good(run)
    assert "SIGTERM" in run.signals()


def test_a_server_that_comes_up_although_it_was_asked_to_stop_is_not_announced(stage: Stage) -> None:
    """The other thing that vLLM 0.11 to 0.33 do with a swallowed signal."""
    loaded = stage.root / "loaded"
    deaf_engine = fork(ENGINE, HOLD, ignores=["SIGTERM"])
    run = stage.start(
        [deaf_engine, on_signal("SIGTERM"), mark("loading"), {"do": "wait-for-file", "path": str(loaded)}, serve()],
        options=("--stop-timeout", "1"),
    )
    run.wait_for_mark("loading")
    run.signal(SIGTERM)
    run.wait_for("the signal", run.signals)
    loaded.touch()
    assert_stopped_for_good(run)
    assert run.events("ready") == []


@pytest.mark.parametrize("number", STOPS)
def test_while_it_serves_only_the_leader_is_asked_and_ends_in_good_order(stage: Stage, number: Signals) -> None:
    """SIGTERM, SIGHUP and SIGQUIT are SIGTERM to vLLM, and SIGINT is what it is."""
    run = stage.start(serve_ok())
    run.wait_until_ready()
    run.signal(number)
    assert_stopped_for_good(run)
    assert "clean shutdown" in run.marks()
    assert run.signals() == ["SIGINT" if number == SIGINT else "SIGTERM"]
    assert run.signals(ENGINE) == []


def test_a_stop_while_the_canary_is_under_way_ends_it_too(stage: Stage) -> None:
    """Its web server waits for every open connection, and the engine that could answer is gone."""
    run = stage.start(serve_ok(completions=("never",)))
    run.wait_for("the canary", lambda: [e for e in run.entries("request") if e["path"] == "/v1/completions"])
    run.signal(SIGTERM)
    assert_stopped_for_good(run)
    assert "clean shutdown" in run.marks()
    assert run.events("ready") == []


@pytest.mark.parametrize("number", STOPS)
def test_during_the_back_off_it_ends_without_another_attempt(stage: Stage, number: Signals) -> None:
    run = stage.start(ima_at_startup(), options=("--backoff", "50"))
    run.wait_for_event("step")
    run.signal(number)
    assert_stopped_for_good(run)


def test_a_tree_that_ignores_everything_is_killed_after_the_stop_timeout(stage: Stage) -> None:
    deaf = fork("deaf", HOLD, ignores=["SIGTERM", "SIGINT", "SIGHUP"], leaves_session=True, double=True)
    run = stage.start([deaf, engine(), serve(stops=False)], options=("--stop-timeout", "0.5"))
    run.wait_until_ready()
    run.signal(SIGTERM)
    assert_stopped_for_good(run)
    assert run.signals() != []
    assert "clean shutdown" not in run.marks()


def test_a_second_signal_hurries(stage: Stage) -> None:
    """SIGTERM to the whole tree."""
    run = stage.start([engine(), serve(stops=False)], options=("--stop-timeout", "1000"))
    run.wait_until_ready()
    run.signal(SIGTERM)
    run.wait_for("the first signal", run.signals)
    run.signal(SIGTERM)
    assert_stopped_for_good(run)


def test_a_fault_during_the_stop_starts_nothing(stage: Stage) -> None:
    dying = on_signal("SIGTERM", steps=ima_at_startup())
    run = stage.start([engine(), serve()], serve_ok())
    run.wait_until_ready()
    run.play(dying)
    run.signal(SIGTERM)
    assert_stopped_for_good(run)
    assert ILLEGAL_ACCESS in run.stderr_text()


def test_a_stop_while_the_old_tree_is_swept_starts_nothing(stage: Stage) -> None:
    deaf = fork("deaf", HOLD, ignores=["SIGTERM"], leaves_session=True, double=True)
    run = stage.start([deaf, write("stdout", b"x"), *ima_at_startup()], serve_ok())
    run.wait_for("the end of the leader", lambda: run.attempts() and not run.leader().is_alive)
    run.signal(SIGTERM)
    assert_stopped_for_good(run)


@pytest.mark.skipif(not shutil.which("strace"), reason="nothing slows a disk down here")
def test_a_stop_while_the_event_of_an_attempt_is_written_to_a_slow_disk_starts_nothing(stage: Stage) -> None:
    events = stage.root / "launch0" / "events.jsonl"
    slow = ("-P", str(events), "-e", "trace=openat", "-e", "inject=openat:delay_enter=150000")
    run = stage.start(serve_ok(), prefix=("strace", "-f", "-qq", "-o", "/dev/null", *slow))
    run.wait_for_event("launch-started")
    launcher = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()[0]
    os.kill(int(launcher), SIGTERM)
    assert run.finish() == 0
    assert run.events("attempt-ended") == run.attempts() == []
    assert "asked to stop, and nothing was running" in run.ours()


def test_a_stop_at_the_very_beginning_leaves_nothing(stage: Stage) -> None:
    run = stage.start(serve_ok())
    run.wait_for("the first line of ours", run.ours)
    run.signal(SIGTERM)
    assert run.finish() == 0
    assert run.survivors() == []
