"""DESIGN 7: what broke and what held is remembered, what is only observed is not touched, and people can see it all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from launch import SAFE_VLLM, Launch, Stage
from scenes import (
    ENGINE,
    HOLD,
    ILLEGAL_ACCESS,
    REFUSED_BACKEND,
    WAIT_FOR_CHILD,
    WORKER,
    WORKER_TRACEBACK,
    Scene,
    argparse_error,
    die,
    die_first_inference,
    engine,
    fail,
    fork,
    ima_at_startup,
    mark,
    serve,
    serve_ok,
    serve_with_worker,
    wait_until_watched,
    write,
)

from waiting import free_port

AUTOTUNE_OFF = "--no-enable-flashinfer-autotune"
PROVES_AT_ONCE = ("--backoff", "0.01", "--proving-window", "0")
CACHES = "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"


def ours(run: Launch, *words: str) -> str:
    """Return what another command of ours says of the same state directory."""
    done = subprocess.run([str(SAFE_VLLM), *words], env=run.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def with_backend() -> list[str]:
    """Return words for which this machine's ladder has three rungs."""
    return ["tiny", "--host", "127.0.0.1", "--port", str(free_port()), "--moe-backend", "triton"]


def variables(run: Launch, attempt: int) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in run.attempts()[attempt - 1]["environ"]]
    return {name: value for name, _, value in pairs}


def until_proven(stage: Stage, *scenes: Scene) -> Launch:
    """Run a launch until its server has proven itself, and stop it."""
    run = stage.start(*scenes, options=PROVES_AT_ONCE)
    run.wait_for_event("proven")
    held = run.wait_for(
        "that it is remembered", lambda: [e for e in run.events("remembered") if e["outcome"] == "held"]
    )
    assert held[0]["problems"] == []
    assert run.stop() == 0
    return run


def test_p18_the_next_launch_starts_at_the_rung_that_held_and_says_why(stage: Stage) -> None:
    run = until_proven(stage, ima_at_startup(), serve_ok())
    assert run.rungs() == ["as-asked", "no-autotune"]
    again = stage.start(serve_ok())
    again.wait_until_ready("no-autotune")
    assert again.stop() == 0
    assert again.rungs() == ["no-autotune"]
    assert again.port != run.port
    assert AUTOTUNE_OFF in again.attempts()[0]["argv"]
    assert "as-asked died here on" in again.ours()
    assert "no-autotune held since then" in again.ours()


def test_p18_while_a_fault_line_stands_no_rung_is_held(stage: Stage) -> None:
    run = stage.start(serve_with_worker(), [HOLD], options=("--backoff", "0.01", "--proving-window", "5"))
    run.wait_for_event("ready")
    run.play(write("stderr", WORKER_TRACEBACK.format(ILLEGAL_ACCESS)))
    run.let_pass(6)  # until the proving window is over
    run.kill_child(WORKER, signal.SIGSEGV)
    run.wait_for("the next attempt", lambda: len(run.attempts()) == 2)
    assert [(event["rung"], event["outcome"]) for event in run.events("remembered")] == [("as-asked", "broken")]
    assert run.events("proven") == []
    assert run.stop() == 0


def test_p18_a_rung_is_remembered_as_broken_before_anything_else_is_started(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), [{"do": "hold"}])
    run.wait_for("the second attempt", lambda: len(run.attempts()) == 2)
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    run.wait_for("the end of vLLM", lambda: not run.survivors())
    again = stage.start(serve_ok())
    again.wait_until_ready("no-autotune")
    assert again.stop() == 0
    assert again.rungs() == ["no-autotune"]


def test_p18_what_was_forgotten_is_tried_again(stage: Stage) -> None:
    run = until_proven(stage, ima_at_startup(), serve_ok())
    said = ours(run, "forget")
    assert "as-asked broke (once): illegal-memory-access" in said
    assert "no-autotune held (once)" in said
    again = stage.start(serve_ok())
    again.wait_until_ready("as-asked")
    assert again.stop() == 0
    assert "nothing is remembered" in ours(run, "forget")


def test_p18_nothing_is_remembered_for_another_command_or_for_no_days(stage: Stage) -> None:
    until_proven(stage, ima_at_startup(), serve_ok())
    for words, options in ((["other"], ()), (["tiny"], ("--remember-for", "0"))):
        again = stage.start(argparse_error(), words=words, options=options)
        again.finish()
        assert again.rungs() == ["as-asked"]


def test_start_at_beats_what_is_remembered(stage: Stage) -> None:
    until_proven(stage, ima_at_startup(), serve_ok())
    again = stage.start(argparse_error(), options=("--start-at", "as-asked"))
    again.finish()
    assert again.rungs() == ["as-asked"]
    assert "--start-at asks for it" in again.ours()


def test_a_rung_to_start_at_that_there_is_not_starts_nothing(stage: Stage) -> None:
    run = stage.start(serve_ok(), options=("--start-at", "less-parallel"))
    assert run.finish() == 78
    assert run.attempts() == []
    assert "--start-at less-parallel: it is left out here" in run.ours()


def test_a_pinned_rung_is_left_out_and_the_launch_ends_with_70_and_a_report(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), options=("--pin", "autotune,moe-backend,caches", "--backoff", "0.01"))
    assert run.finish() == 70
    assert run.rungs() == ["as-asked"]
    (report,) = run.events("incident")
    text = (Path(report["path"]) / "incident.md").read_text()
    assert "an illegal memory access" in text
    assert "vllm serve tiny" in text
    assert "no rung is left" in text


def test_a_refused_backend_that_is_pinned_ends_with_78(stage: Stage) -> None:
    run = stage.start(
        fail(REFUSED_BACKEND), words=["tiny", "--moe-backend", "triton"], options=("--pin", "moe-backend")
    )
    assert run.finish() == 78
    assert len(run.attempts()) == 1


def test_p20_every_failed_attempt_leaves_a_report_for_its_owner_alone(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), fail("ValueError: something else"), argparse_error(), serve_ok())
    run.finish()
    reports = [Path(event["path"]) for event in run.events("incident")]
    assert len(reports) == len(run.attempts())
    assert [path.parent.name for path in reports] == ["incidents"] * len(reports)
    for path in reports:
        assert path.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}
        content = json.loads((path / "incident.json").read_text())
        assert content["command"] in (path / "incident.md").read_text()
    listed = ours(run, "status")
    assert all(path.name in listed for path in reports)
    assert ours(run, "status", reports[0].name) == (reports[0] / "incident.md").read_text() + "\n"


def test_p20_a_stop_leaves_no_report(stage: Stage) -> None:
    run = stage.start(serve_ok())
    run.wait_until_ready()
    assert run.stop() == 0
    assert run.events("incident") == []


def test_p18_p20_a_stop_that_comes_when_vllm_is_dying_leaves_the_mark_and_the_report(stage: Stage) -> None:
    dies: Scene = [
        fork(ENGINE, wait_until_watched(ENGINE), die("SIGSEGV")),
        WAIT_FOR_CHILD,
        write("stderr", WORKER_TRACEBACK.format(ILLEGAL_ACCESS)),
        mark("dead"),
        HOLD,
    ]
    run = stage.start(dies, serve_ok())
    run.wait_for_mark("dead")
    run.wait_for("that it was read", lambda: ILLEGAL_ACCESS in run.stderr_text())
    assert run.stop() == 0
    assert len(run.attempts()) == 1
    assert [event["fault"] for event in run.events("attempt-ended")] == ["stopped"]
    assert [(event["rung"], event["outcome"]) for event in run.events("remembered")] == [("as-asked", "broken")]
    (report,) = run.events("incident")
    assert "illegal-memory-access" in Path(report["path"]).name
    again = stage.start(serve_ok())
    again.wait_until_ready("no-autotune")
    assert again.stop() == 0


def test_p20_a_stop_after_a_kill_that_speaks_against_no_rung_leaves_a_report_and_no_mark(stage: Stage) -> None:
    run = stage.start(serve_with_worker(notices=False))
    run.wait_until_ready()
    run.kill_child(WORKER, signal.SIGKILL)
    run.wait_for("that the engine noticed", lambda: "died unexpectedly" in run.stderr_text())
    assert run.stop() == 0
    assert run.events("remembered") == []
    assert len(run.events("incident")) == 1


def test_p18_a_stop_as_a_proven_server_dies_leaves_no_mark_where_its_rung_would_have_been_run_again(
    stage: Stage,
) -> None:
    run = stage.start(serve_with_worker(notices=False), options=PROVES_AT_ONCE)
    run.wait_for("that it is remembered", lambda: run.events("remembered"))
    run.play(write("stderr", WORKER_TRACEBACK.format(ILLEGAL_ACCESS)))
    run.kill_child(WORKER, signal.SIGSEGV)
    run.wait_for("that the engine noticed", lambda: "died unexpectedly" in run.stderr_text())
    assert run.stop() == 0
    assert [event["outcome"] for event in run.events("remembered")] == ["held"]
    assert len(run.events("incident")) == 1


def test_p20_secrets_are_in_no_file_and_in_no_line(stage: Stage) -> None:
    secret = "hunter2-of-the-test"
    leaks = f"ValueError: bad request with Authorization: Bearer {secret} and api_key={secret}"
    run = stage.start(
        [*ima_at_startup()[:-1], *fail(leaks)],
        argparse_error(),
        words=["tiny", "--api-key", secret],
        environment={"HF_TOKEN": secret, "VLLM_API_KEY": secret},
    )
    run.finish()
    state = Path(run.environment["XDG_STATE_HOME"])
    kept = [path for path in state.rglob("*") if path.is_file()]
    assert any(path.name == "incident.md" for path in kept)
    assert [path for path in kept if secret in path.read_text(errors="replace")] == []
    assert secret not in run.ours()
    assert secret not in run.events_path.read_text()


def test_p19_a_degraded_server_says_so_when_it_comes_up_and_in_status(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), serve_ok())
    run.wait_until_ready("no-autotune")
    run.wait_for("what it costs", lambda: "DEGRADED: this server runs at no-autotune, not at as-asked" in run.ours())
    assert "way back: stop, then `safe-vllm forget " in run.ours()
    status = ours(run, "status")
    assert "serving at rung no-autotune" in status
    assert "DEGRADED to no-autotune since" in status
    found = json.loads(ours(run, "--output", "json", "status"))
    (place,) = found["places"]
    assert [(one["alive"], one["state"]) for one in place["runs"]] == [(True, "ready")]
    assert run.stop() == 0
    assert "not running" in ours(run, "status")
    assert "ended with status 0" in ours(run, "status")


def test_only_observed_nothing_is_changed_or_ended_and_vllms_end_is_ours(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), serve_ok(), options=("--observe-only",))
    assert run.finish() == 1
    assert len(run.attempts()) == 1
    (would,) = run.events("observed")
    assert would["would"] == "step down to no-autotune"
    assert "observed only: safe-vllm would step down to no-autotune now" in run.ours()
    assert run.attempts()[0]["argv"][:2] == ["serve", "tiny"]
    assert not {name for name in variables(run, 1) if name.startswith(("FLASHINFER_", "TRTLLM_"))}
    again = stage.start(argparse_error())
    again.finish()
    assert again.rungs() == ["as-asked"]  # it was not remembered


def test_only_observed_an_end_that_nobody_asked_for_is_no_success(stage: Stage) -> None:
    run = stage.start(die_first_inference(), options=("--observe-only",))
    assert run.finish() == 70


def test_only_observed_a_dead_engine_is_told_of_and_left_to_vllm(stage: Stage) -> None:
    scene = serve_with_worker(notices=False)
    run = stage.start(scene, options=("--observe-only", "--fault-grace", "0.2"))
    run.wait_until_ready()
    run.kill_child("VLLM::Worker_TP0", signal.SIGSEGV)
    would = run.wait_for_event("would-end")
    assert "VLLM::Worker_TP0 was killed by SIGSEGV" in would["why"]
    assert run.process.poll() is None
    assert run.stop() == 0


def test_only_observed_a_healthy_server_is_ready_although_no_real_request_is_answered(stage: Stage) -> None:
    run = stage.start([engine(), serve(completions=(500,))], options=("--observe-only", "--fault-grace", "0.2"))
    ready = run.wait_for_event("ready")
    assert ready["note"] == "only observed: no real request was answered"
    assert run.stop() == 0
    assert len(run.events("would-end")) == 1


def test_the_same_fault_in_the_same_phase_is_answered_once_by_fresh_caches(stage: Stage) -> None:
    words, dies = with_backend(), ima_at_startup()
    run = stage.start(dies, dies, dies, serve_ok(), words=words, options=PROVES_AT_ONCE)
    run.wait_for_event("proven")
    run.wait_for("that it is remembered", lambda: any(e["outcome"] == "held" for e in run.events("remembered")))
    assert run.stop() == 0
    assert run.rungs() == ["as-asked", "no-autotune", "no-autotune", "triton"]
    directories = [variables(run, number).get(CACHES) for number in (1, 2, 3, 4)]
    assert directories[:2] == [None, None]
    assert directories[2] is not None
    assert directories[3] == directories[2]
    assert directories[2].startswith(run.environment["XDG_STATE_HOME"])
    shown = [f"+ {CACHES}={directories[2]}" in step["changes"] for step in run.events("step")]
    assert shown == [False, True, False]
    assert f"safe-vllm:   + {CACHES}={directories[2]}\n" in run.ours()
    again = stage.start(serve_ok(), words=words)
    again.wait_until_ready("triton")
    assert again.stop() == 0
    assert variables(again, 1)[CACHES] == directories[2]  # it held with them


def test_pinned_caches_are_left_alone(stage: Stage) -> None:
    options = (*PROVES_AT_ONCE, "--pin", "caches")
    run = stage.start(ima_at_startup(), ima_at_startup(), argparse_error(), words=with_backend(), options=options)
    run.finish()
    assert run.rungs() == ["as-asked", "no-autotune", "triton"]
    assert not any(CACHES in variables(run, number) for number in (1, 2, 3))


def test_p13_a_state_directory_that_cannot_be_made_is_told_of_and_stops_nobody(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = stage.start(
        ima_at_startup(), serve_ok(), options=("--state-dir", str(tmp_path / "file" / "state"), "--backoff", "0.01")
    )
    run.wait_until_ready("no-autotune")
    assert run.stop() == 0
    assert "nothing is remembered" in run.ours()
    assert run.events("incident") == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"v": 99}', b"[]"])
def test_p18_a_damaged_memory_is_put_aside_and_the_launch_goes_on(stage: Stage, content: bytes) -> None:
    run = until_proven(stage, ima_at_startup(), serve_ok())
    (record,) = Path(run.environment["XDG_STATE_HOME"]).rglob("remembered/*.json")
    record.write_bytes(content)
    again = stage.start(serve_ok())
    again.wait_until_ready("as-asked")
    assert again.stop() == 0
    assert "put aside" in again.ours()
    assert [path.read_bytes() for path in record.parent.glob("*.aside-*")] == [content]
