"""P15, P17: a hang is found by lack of progress, never by a slow ``/health``, and looked at before it is ended."""

from __future__ import annotations

import os
import resource
import signal
import socket
from pathlib import Path

from launch import Entry, Launch, Stage
from scenes import CANARY, Scene, Step, churn, mark, repeat, serve_ok, wait_for_file, write

from leftovers import below

AUTOTUNE = write(
    "stderr", "2025-11-30 - INFO - autotuner.py:622 - flashinfer.jit: [Autotuner]: Autotuning process starts ...\n"
)
BAR = write("stderr", "\r[AutoTuner]: Tuning flashinfer::trtllm_bf16_moe:   5%|5    | 1/21 [00:09<03:00, 9.0s/profile]")
WAITS = write(
    "stderr",
    "(EngineCore pid=7) INFO 11-30 08:40:48 [shm_broadcast.py:542] No available shared memory broadcast block found in "
    "60 seconds. This typically happens when some processes are hanging.\n",
)
STALLED = [2, 1]
SOON = {"stall_s": 1.0}


def patient(stage: Stage, **policy: float) -> tuple[str, ...]:
    """Return options with these limits, as a profile of the operator's has them."""
    limits = "".join(f"  {name}: {value}\n" for name, value in policy.items())
    profile = stage.root / "limits.yaml"
    profile.write_text(f"name: limits\nextends: cpu\npolicy:\n{limits}")
    return ("--backoff", "0.01", "--fault-grace", "30", "--profile", str(profile))


def silent(stage: Stage, *before: Step) -> Scene:
    """Print something, and then nothing any more."""
    return [*before, mark("silent"), wait_for_file(stage.root / "never")]


def the_end(run: Launch) -> Entry:
    """Return the event of the first attempt's end."""
    return run.wait_for_event("attempt-ended")


def asked(run: Launch, path: str) -> int:
    """Return how often the fake was asked for something."""
    return len([entry for entry in run.entries("request") if entry["path"] == path])


def install_py_spy(stage: Stage, script: str) -> dict[str, str]:
    """Put a ``py-spy`` on the PATH, in front of the fake vLLM."""
    binaries = stage.root / "tools"
    binaries.mkdir()
    (binaries / "py-spy").write_text(f"#!/bin/sh\n{script}")
    (binaries / "py-spy").chmod(0o755)
    return {"PATH": f"{binaries}:{stage.binaries}:/usr/bin:/bin"}


def test_a_start_without_a_sign_of_life_is_ended_and_the_next_rung_is_tried(stage: Stage) -> None:
    run = stage.start(silent(stage), serve_ok(), options=patient(stage, start_silence_s=1))
    run.wait_until_ready("no-autotune")
    ended = the_end(run)
    assert (ended["fault"], ended["phase"], ended["action"]) == ("hang", "init", "retry-safer")
    assert ended["status"] is None
    assert "no output and no data moved for 1 s" in ended["reason"]
    assert "safe-vllm:   no stacks of its 1 process: py-spy is not installed" in run.ours()
    assert run.stop() == 0


def test_p17_a_hang_in_autotuning_has_its_own_limit_and_suspect(stage: Stage) -> None:
    options = patient(stage, start_silence_s=600, autotune_silence_s=1)
    run = stage.start(silent(stage, AUTOTUNE), serve_ok(), options=options)
    run.wait_until_ready("no-autotune")
    ended = the_end(run)
    assert (ended["fault"], ended["phase"], ended["suspect"]) == ("hang", "autotune", "autotune")
    assert run.stop() == 0


def test_autotuning_that_crawls_is_no_hang(stage: Stage) -> None:
    crawl = repeat(BAR, pause_s=0.2, times=30)
    options = patient(stage, start_silence_s=4, autotune_silence_s=4)
    run = stage.start([AUTOTUNE, crawl, *serve_ok()], options=options)
    run.wait_until_ready("as-asked")
    assert run.stop() == 0


def test_a_silent_start_that_moves_data_is_no_hang(stage: Stage) -> None:
    loading = repeat(churn(70), pause_s=0.2, times=30)
    run = stage.start([loading, *serve_ok()], options=patient(stage, start_silence_s=4))
    run.wait_until_ready("as-asked")
    assert run.stop() == 0


def test_p13_a_launcher_that_can_open_nothing_for_a_while_ends_no_healthy_start(stage: Stage) -> None:
    """Its limit stands for a machine whose descriptors are used up: neither a module nor /proc can be read."""
    go, options = stage.root / "go", patient(stage, autotune_silence_s=12)
    run = stage.start([AUTOTUNE, wait_for_file(go), *serve_ok()], options=options)
    run.wait_for_event("phase")
    held = {int(path.name) for path in Path(f"/proc/{run.process.pid}/fd").iterdir()}
    limits = resource.prlimit(run.process.pid, resource.RLIMIT_NOFILE)
    free = next(number for number in range(limits[0]) if number not in held)
    resource.prlimit(run.process.pid, resource.RLIMIT_NOFILE, (free, limits[1]))
    run.let_pass(5)
    resource.prlimit(run.process.pid, resource.RLIMIT_NOFILE, limits)
    go.touch()
    run.wait_until_ready("as-asked")
    assert run.stop() == 0
    assert "bug" not in run.ours()


def test_p15_a_pause_of_everything_is_no_hang(stage: Stage) -> None:
    """As the freezer of a container's engine does it: nobody is told."""
    go = stage.root / "go"
    run = stage.start([AUTOTUNE, wait_for_file(go), *serve_ok()], options=patient(stage, autotune_silence_s=6))
    run.wait_for_event("phase")
    everybody = [known.pid for known in below(os.getpid(), run.older)]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    run.let_pass(7)
    for pid in reversed(everybody):
        os.kill(pid, signal.SIGCONT)
    run.let_pass(2)
    go.touch()
    run.wait_until_ready("as-asked")
    assert run.stop() == 0


def test_lines_that_tell_of_waiting_are_no_sign_of_life(stage: Stage) -> None:
    waiting = repeat(WAITS, pause_s=0.1, path=str(stage.root / "never"))
    run = stage.start([AUTOTUNE, waiting], serve_ok(), options=patient(stage, autotune_silence_s=1))
    run.wait_until_ready()
    ended = the_end(run)
    assert (ended["fault"], ended["phase"], ended["action"]) == ("hang", "autotune", "retry-safer")
    assert run.stop() == 0


def test_p15_requests_that_wait_without_a_token_are_a_hang_once_a_real_one_does_not_come_back(stage: Stage) -> None:
    hung = serve_ok(completions=(*CANARY, "never"), metrics=([1, 0, "grows"], STALLED))
    run = stage.start(hung, serve_ok(), options=patient(stage, **SOON))
    run.wait_for_event("ready", 2)
    ended = the_end(run)
    assert (ended["fault"], ended["phase"], ended["action"]) == ("hang", "serving", "retry-same")
    assert "requests waited 1 s without a token, and a real request got no answer" in ended["reason"]
    assert run.rungs() == ["as-asked", "as-asked"]
    assert run.stop() == 0


def test_the_first_request_after_idleness_may_be_the_one_that_hangs(stage: Stage) -> None:
    """The engine tells of its requests after a step: of the one in which it hangs, ``/metrics`` knows nothing."""
    run = stage.start(serve_ok(completions=(*CANARY, "never")), serve_ok(), options=patient(stage, **SOON))
    run.wait_until_ready()
    with socket.create_connection(("127.0.0.1", run.port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        assert the_end(run)["fault"] == "hang"
    run.wait_for_event("ready", 2)
    assert run.stop() == 0


def test_a_stall_in_which_a_real_request_is_answered_is_none(stage: Stage) -> None:
    run = stage.start(serve_ok(metrics=(STALLED,)), options=patient(stage, **SOON))
    run.wait_for("three real requests", lambda: asked(run, "/v1/completions") >= len(CANARY) + 3)
    assert run.events("attempt-ended") == []
    assert run.stop() == 0


def test_p15_a_server_that_makes_tokens_is_left_alone(stage: Stage) -> None:
    run = stage.start(serve_ok(metrics=([2, 9, "grows"],)), options=patient(stage, **SOON))
    run.wait_for("many looks", lambda: asked(run, "/metrics") >= 12)
    assert asked(run, "/v1/completions") == len(CANARY)
    assert run.stop() == 0


def test_an_idle_server_is_left_alone(stage: Stage) -> None:
    run = stage.start(serve_ok(), options=patient(stage, **SOON))
    run.wait_for("many looks", lambda: asked(run, "/metrics") >= 12)
    assert asked(run, "/v1/completions") == len(CANARY)
    assert run.stop() == 0


def test_without_a_canary_a_client_that_waits_is_the_witness(stage: Stage) -> None:
    options = ("--no-canary", *patient(stage, **SOON))
    run = stage.start(serve_ok(completions=("never",), metrics=(STALLED,)), serve_ok(), options=options)
    run.wait_until_ready()
    run.wait_for("many looks", lambda: asked(run, "/metrics") >= 12)
    assert run.events("attempt-ended") == []  # the figures alone may be those of a request that was given up
    with socket.create_connection(("127.0.0.1", run.port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        assert the_end(run)["fault"] == "hang"
    run.wait_for_event("ready", 2)
    assert run.stop() == 0


def test_a_server_without_counters_is_served_all_the_same_and_it_is_said_once(stage: Stage) -> None:
    run = stage.start(serve_ok(metrics=(200,)), options=patient(stage, **SOON))
    run.wait_for_event("blind")
    assert run.ours().count("hangs in service will not be noticed: /metrics has no counters") == 1
    assert run.stop() == 0
    assert asked(run, "/metrics") == 1


STACK = """echo "Process $4: /venv/bin/vllm serve tiny --api-key sk-never-to-be-seen"
echo 'Python v3.12.3 (/usr/bin/python3.12)

Thread 7 (idle): "Thread-1"
    wait (threading.py:355)
Thread 1 (active): "MainThread"
    synchronize (torch/cuda/streams.py:235)
    flashinfer_autotune (vllm/model_executor/warmup/kernel_warmup.py:268)'
"""


def test_p17_the_stacks_of_a_hang_are_kept_before_it_is_ended(stage: Stage) -> None:
    environment = install_py_spy(
        stage, f"[ $1 $2 $3 = 'dump --nonblocking --pid' ] || exit 3\n{STACK}".replace("$1 $2 $3", '"$1 $2 $3"')
    )
    scene = [*serve_ok()[:1], *silent(stage)]
    run = stage.start(scene, serve_ok(), options=patient(stage, start_silence_s=1), environment=environment)
    run.wait_until_ready()
    stacks = run.events("stacks")
    assert sorted(stack["title"] for stack in stacks) == ["VLLM::EngineCore", "vllm"]
    assert {stack["pid"] for stack in stacks} == {run.attempts()[0]["pid"], run.entries("process")[0]["pid"]}
    assert all("wait (threading.py:355)" in stack["text"] for stack in stacks)
    lines = run.ours()
    assert "  stacks of 2 of its 2 processes, innermost frame first:\n" in lines
    assert lines.count("safe-vllm:     synchronize (torch/cuda/streams.py:235)\n") == 1
    assert "threading.py" not in lines
    assert "sk-never-to-be-seen" not in lines + run.events_path.read_text()
    assert run.stop() == 0


def test_a_py_spy_that_may_not_look_says_why(stage: Stage) -> None:
    environment = install_py_spy(stage, "echo 'Permission Denied: try sudo' >&2; exit 1\n")
    run = stage.start(silent(stage), serve_ok(), options=patient(stage, start_silence_s=1), environment=environment)
    run.wait_until_ready()
    assert "no stacks of its 1 process: Permission Denied: try sudo" in run.ours()
    assert run.stop() == 0


def test_a_stop_does_not_wait_for_a_py_spy_that_hangs(stage: Stage) -> None:
    started = stage.root / "looking"
    environment = install_py_spy(stage, f"touch {started}\nexec sleep 60\n")
    run = stage.start(silent(stage), options=patient(stage, start_silence_s=1), environment=environment)
    run.wait_for("py-spy", started.exists)
    assert run.events("attempt-ended") == []
    assert run.stop() == 0
    assert run.events("hang") == []
