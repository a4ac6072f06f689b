"""The fake does what the other tests rely on. Nothing of safe-vllm is involved here."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import launch
import pytest
from launch import Launch, Stage
from scenes import (
    ENGINE,
    WORKER,
    argparse_error,
    fork,
    ima_at_startup,
    kill,
    leave,
    load_until,
    on_signal,
    serve_ok,
    serve_with_worker,
    wait_for_file,
    write,
)


@pytest.fixture
def plain(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Start the fake itself."""
    monkeypatch.setattr(launch, "SAFE_VLLM", stage.binaries / "vllm")
    return stage


def serving(run: Launch) -> Launch:
    run.wait_for_mark("serving")
    return run


def test_it_notes_words_environment_and_descriptors(plain: Stage) -> None:
    run = plain.start([leave(3)], words=[b"a\xff", "", "--", "new\nline"], options=(), environment={"EXTRA": "x\ny"})
    assert run.finish() == 3
    [start] = run.attempts()
    assert start["argv"] == ["serve", "a\xff", "", "--", "new\nline"]
    assert "EXTRA=x\ny" in start["environ"]
    assert set(start["descriptors"]) == {"0", "1", "2"}
    assert start["blocked_signals"] == "0" * 16


def test_it_plays_one_scene_per_attempt_and_says_when_there_are_too_many(plain: Stage) -> None:
    run = plain.start([leave(3)], [leave(4)], options=())
    assert run.finish() == 3
    here = run.journal_path.parents[1]
    same_place = {"FAKE_VLLM_SCENES": str(here / "scenes.json"), "FAKE_VLLM_JOURNAL": str(here / "journal")}
    assert [subprocess.call([plain.binaries / "vllm", "serve"], env=same_place) for _ in range(2)] == [4, 99]
    assert [start["attempt"] for start in run.attempts()] == [1, 2, 3]


def test_it_writes_every_byte_value(plain: Stage) -> None:
    everything = bytes(range(256))
    run = plain.start([write("stdout", everything), write("stderr", everything[::-1], times=3)], options=())
    assert run.finish() == 0
    assert run.stdout() == everything
    assert run.stderr() == everything[::-1] * 3


def test_its_processes_bear_the_titles_of_vllm(plain: Stage) -> None:
    run = serving(plain.start(serve_with_worker(), options=()))
    for title in (ENGINE, WORKER):
        pid = run.child(title).pid
        assert Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0") == title
        assert Path(f"/proc/{pid}/comm").read_text() == title[:15] + "\n"
    os.kill(run.child(WORKER).pid, signal.SIGKILL)
    assert run.finish() == 0
    assert b"EngineDeadError" in run.stderr()


def test_it_serves_and_stops_in_good_order(plain: Stage) -> None:
    run = serving(plain.start(serve_ok(health=(503, 200), completions=(500, 200)), options=()))
    assert [run.request("GET", "/health") for _ in range(3)] == [503, 200, 200]
    assert [run.request("POST", "/v1/completions", {}) for _ in range(3)] == [500, 200, 200]
    assert run.stop() == 0
    assert b"[shutdown] API server: shutdown triggered" in run.stdout()


def test_it_loses_its_worker_at_the_first_inference_and_ends_with_0(plain: Stage) -> None:
    scene = serve_with_worker(completions=({"first": [kill(WORKER, "SIGSEGV")], "then": "drop"},))
    run = serving(plain.start(scene, options=()))
    assert run.request("GET", "/health") == 200
    with pytest.raises(ConnectionError):
        run.request("POST", "/v1/completions", {})
    assert run.finish() == 0


@pytest.mark.parametrize(("scene", "status"), [(argparse_error(), 2), (ima_at_startup(), 1)])
def test_it_fails_to_start_as_vllm_does(plain: Stage, scene: list[dict[str, object]], status: int) -> None:
    assert plain.start(scene, options=()).finish() == status


def test_it_swallows_what_would_stop_it_while_it_loads(plain: Stage) -> None:
    file = plain.root / "loaded"
    run = plain.start([*load_until(file), leave(5)], options=())
    run.wait_for_mark("loading")
    run.signal(signal.SIGTERM)
    run.wait_for("the signal", run.signals)
    file.touch()
    assert run.finish() == 5
    os.kill(run.child(ENGINE).pid, signal.SIGTERM)
    run.wait_for("the end of the engine", lambda: not run.survivors())


def test_its_escapees_outlive_it(plain: Stage) -> None:
    escapee = fork("escapee", on_signal("SIGTERM"), {"do": "hold"}, leaves_session=True, double=True)
    run = plain.start([escapee, leave(0)], options=())
    assert run.finish() == 0
    assert run.child("escapee").is_alive
    os.kill(run.child("escapee").pid, signal.SIGTERM)
    run.wait_for("the note of the signal", lambda: run.signals("escapee"))
    assert run.child("escapee").is_alive
    os.kill(run.child("escapee").pid, signal.SIGKILL)
    run.wait_for("the end of the escapee", lambda: not run.survivors())


def test_it_waits_for_a_file(plain: Stage) -> None:
    file = plain.root / "go"
    run = plain.start([write("stdout", "before"), wait_for_file(file), write("stdout", "after")], options=())
    run.wait_for("the first words", lambda: run.stdout() == b"before")
    file.touch()
    assert run.finish() == 0
    assert run.stdout() == b"beforeafter"
