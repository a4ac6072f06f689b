"""P13: a disk that never answers keeps vLLM neither from starting nor from stopping, and no rung from its turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM

import pytest
from fuse import SilentFileSystem
from launch import Launch, Stage
from scenes import Scene, ima_at_startup, mark, serve_ok, wait_for_file

from safe_vllm.record.events import ANSWERS_WITHIN_S

SILENT = "the state directory does not answer"


@contextmanager
def silent(place: Path) -> Iterator[Path]:
    """Make a place a file system that never answers, where that is allowed; at the end it lets go of who waits."""
    place.mkdir(parents=True, exist_ok=True)
    try:
        mounted = SilentFileSystem(place)
    except OSError as error:
        pytest.skip(f"no file system of ours may be mounted here: {error.strerror}")
    try:
        yield place
    finally:
        mounted.close()


def stop_and_wait_for_the_last_word(run: Launch) -> None:
    """Stop it. The process itself may be held by the kernel for as long as the disk is silent."""
    run.signal(SIGTERM)
    run.wait_for("its last word", lambda: "ended with status 0: asked to stop" in run.ours())
    run.wait_for("the end of vLLM", lambda: not run.survivors())


@pytest.mark.parametrize("folder", ["", "remembered", "run"])
def test_p13_a_state_directory_that_hangs_from_the_start_costs_a_sentence(
    stage: Stage, tmp_path: Path, folder: str
) -> None:
    state = tmp_path / "state"
    with silent(state / folder):
        run = stage.start(ima_at_startup(), serve_ok(), options=("--state-dir", str(state), "--backoff", "0.01"))
        run.wait_until_ready("no-autotune")
        assert SILENT in run.ours()
        stop_and_wait_for_the_last_word(run)
    assert run.finish() == 0


def test_p13_a_state_directory_that_hangs_midway_costs_a_sentence(stage: Stage, tmp_path: Path) -> None:
    state, go = tmp_path / "state", tmp_path / "go"
    scene: Scene = [mark("loading"), wait_for_file(go), *ima_at_startup()]
    run = stage.start(scene, serve_ok(), options=("--state-dir", str(state), "--backoff", "0.01"))
    run.wait_for_mark("loading")
    with silent(state):
        go.touch()
        run.wait_until_ready("no-autotune")
        assert SILENT in run.ours()
        stop_and_wait_for_the_last_word(run)
    assert run.finish() == 0


def test_p13_events_on_a_disk_that_hangs_are_told_of_and_stop_nobody(stage: Stage, tmp_path: Path) -> None:
    go = tmp_path / "go"
    scene: Scene = [mark("loading"), wait_for_file(go), *serve_ok()]
    with silent(tmp_path / "silent") as place:
        run = stage.start(scene, environment={"SAFE_VLLM_EVENTS": str(place / "events")})
        run.wait_for_mark("loading")
        run.let_pass(ANSWERS_WITHIN_S)  # the next event after that tells of it
        go.touch()
        run.wait_until_ready("as-asked")
        run.wait_for("that events are lost", lambda: "events are not written" in run.ours())
        assert f"{place / 'events'}: it does not answer" in run.ours()
        stop_and_wait_for_the_last_word(run)
        assert run.ours().count("events are not written") == 1
    assert run.finish() == 0


def test_all_events_are_in_the_file_in_their_order_when_the_launch_has_ended(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), ima_at_startup())
    assert run.finish() == 70
    told = [json.loads(line) for line in run.events_path.read_text().splitlines()]
    assert told[-1]["event"] == "launch-ended"
    times = [event["at_s"] for event in told]
    assert times == sorted(times)


def test_what_runs_now_that_cannot_be_written_is_told_once(stage: Stage, tmp_path: Path) -> None:
    run = stage.start(ima_at_startup(), serve_ok(), options=("--state-dir", str(tmp_path), "--backoff", "0.01"))
    run.wait_until_ready("no-autotune")
    (written,) = run.wait_for("what runs", lambda: list((tmp_path / "run").glob("*.json")))
    written.with_suffix(".new").mkdir()
    assert run.stop() == 0
    assert [event["problem"] for event in run.events("untold")] == [
        f"{written}: what runs now cannot be told: is a directory"
    ]
    assert run.ours().count("what runs now cannot be told") == 1
