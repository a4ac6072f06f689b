"""What the driver reports of the GPUs counts when a server ends, and not while it serves."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from gpus import Gpus
from launch import Launch, Stage
from scenes import CANARY, ENGINE, Scene, engine, leave, mark, serve, serve_ok, wait_for_file

SOON = ("--backoff", "0.01", "--fault-grace", "0.1")


def dies_without_a_word(go: Path) -> Scene:
    """Serve until the engine goes away, and say nothing about it."""
    return [engine(wait_for_file(go), leave(1)), serve()]


def verdict(run: Launch, number: int = 1) -> dict[str, Any]:
    return run.wait_for_event("attempt-ended", number)


@pytest.fixture
def go(stage: Stage) -> Path:
    """Where to write that the engine may end."""
    return stage.root / "go"


def serving(gpus: Gpus, stage: Stage, *scenes: Scene, **how: Any) -> Launch:
    gpus.report_to_listeners()
    run = gpus.start(stage, *scenes, **how)
    run.wait_for_event("ready")
    return run


@pytest.mark.parametrize("xid", [79, 94, None])
def test_a_broken_board_ends_the_launch_with_69_and_spends_no_rung(
    stage: Stage, gpus: Gpus, go: Path, xid: int | None
) -> None:
    run = serving(gpus, stage, dies_without_a_word(go), serve_ok(), visible="1")
    gpus.report(run, 1, xid)
    assert not run.events("attempt-ended")
    go.touch()
    assert run.finish() == 69
    assert len(run.attempts()) == 1
    assert (verdict(run)["fault"], verdict(run)["action"]) == ("board", "stop")
    line = "NVML: GPU is lost on GPU 0" if xid is None else f"NVML: Xid (PCI:0000:66:00): {xid} on GPU 0"
    assert line in run.ours()


def test_p15_a_board_that_broke_ends_a_server_that_does_not_answer_any_more(stage: Stage, gpus: Gpus) -> None:
    """Nobody waits for vLLM to notice."""
    run = serving(gpus, stage, serve_ok(completions=(*CANARY, "drop")), serve_ok(), options=SOON)
    gpus.report(run, 0, 79)
    assert run.finish() == 69
    assert len(run.attempts()) == 1


def test_p15_a_server_that_answers_after_a_fault_of_its_board_serves_on(stage: Stage, gpus: Gpus) -> None:
    """A fault may be contained in another process."""
    run = serving(gpus, stage, serve_ok(completions=(*CANARY, {"first": [mark("asked")], "then": 200})), options=SOON)
    gpus.report(run, 0, 94)
    run.wait_for_mark("asked")
    gpus.report(run, 0, 45)
    assert run.child(ENGINE).is_alive
    assert run.stop() == 0
    assert len(run.attempts()) == 1
    assert "Xid" not in run.ours()


def test_a_fault_of_a_gpu_that_is_not_ours_is_ignored(stage: Stage, gpus: Gpus, go: Path) -> None:
    run = serving(gpus, stage, dies_without_a_word(go), serve_ok(), visible="1")
    gpus.report(run, 0, 79)
    gpus.report(run, 0, 31)
    gpus.report(run, 1, 45)  # so that the others are known to have been passed over
    go.touch()
    run.wait_for_event("ready", 2)
    assert verdict(run)["fault"] == "unknown"
    assert run.stop() == 0
    assert run.rungs() == ["as-asked", "as-asked"]


@pytest.mark.parametrize(
    ("xid", "fault"), [(31, "illegal-memory-access"), (13, "illegal-memory-access"), (43, "launch-failure")]
)
def test_an_engine_that_dies_without_a_word_died_of_the_kernel_that_the_driver_reports(
    stage: Stage, gpus: Gpus, go: Path, xid: int, fault: str
) -> None:
    run = serving(gpus, stage, dies_without_a_word(go), serve_ok())
    gpus.report(run, 1, xid)
    go.touch()
    run.wait_for_event("ready", 2)
    assert (verdict(run)["fault"], verdict(run)["action"]) == (fault, "retry-safer")
    assert f"NVML: Xid (PCI:0000:66:00): {xid} on GPU 1" in run.ours()
    assert run.rungs() == ["as-asked", "no-autotune"]
    assert run.stop() == 0


def test_a_kernel_fault_of_somebody_else_is_nothing_to_a_server_that_serves(stage: Stage, gpus: Gpus) -> None:
    run = serving(gpus, stage, serve_ok(), options=SOON)
    for xid in (43, 31, 13, 45):
        gpus.report(run, 0, xid)
    assert run.child(ENGINE).is_alive
    assert run.request("POST", "/v1/completions", {"prompt": "x"}) == 200
    assert run.stop() == 0
    assert len(run.attempts()) == 1
    assert "Xid" not in run.ours()


def test_a_driver_that_reports_to_nobody_changes_nothing(stage: Stage, gpus: Gpus, go: Path) -> None:
    run = gpus.start(stage, dies_without_a_word(go), serve_ok())
    run.wait_for_event("ready")
    go.touch()
    run.wait_for_event("ready", 2)
    assert verdict(run)["fault"] == "unknown"
    assert run.stop() == 0
    assert "NVML" not in run.ours()


def test_a_driver_that_never_answers_holds_up_nothing(stage: Stage, gpus: Gpus, go: Path) -> None:
    gpus.set(80_000, 40_000, hangs_for_listeners=True)
    run = gpus.start(stage, dies_without_a_word(go), serve_ok())
    run.wait_for_event("ready")
    go.touch()
    run.wait_for_event("ready", 2)
    run.signal(signal.SIGTERM)
    assert run.finish() == 0
    assert "NVML" not in run.ours()
