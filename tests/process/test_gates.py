"""P8: the next attempt begins when the GPUs have their memory back and the port is free, unless that does harm."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gpus import IN_A_NAMESPACE, Gpus
from launch import Launch, Stage
from scenes import ENGINE, Scene, engine, fill, ima_at_startup, mark, serve, serve_ok, wait_for_file

from waiting import free_port

PATIENT_S = 90.0


def let_die(go: Path) -> Scene:
    """Die of a kernel fault when the test says so."""
    return [mark("loading"), wait_for_file(go), *ima_at_startup()]


def outcomes(run: Launch, gate: str) -> list[str]:
    return [event["outcome"] for event in run.events("gate") if event["gate"] == gate]


def last(run: Launch, gate: str) -> dict[str, Any]:
    return [event for event in run.events("gate") if event["gate"] == gate][-1]


def wait_for_outcome(run: Launch, gate: str, outcome: str) -> None:
    run.wait_for(f"{gate}: {outcome}", lambda: outcome in outcomes(run, gate))


# The port


def stranger(host: str, port: int) -> socket.socket:
    """Listen there."""
    server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, port))
    server.listen()
    return server


def while_taken(stage: Stage, asked: str, taken: str) -> tuple[Launch, socket.socket]:
    """Let the first attempt die while a stranger takes the port, and return when it is being waited for."""
    go, port = stage.root / "go", free_port()
    run = stage.start(let_die(go), serve_ok(), words=["tiny", "--host", asked, "--port", str(port)])
    run.wait_for_mark("loading")
    server = stranger(taken, port)
    go.touch()
    wait_for_outcome(run, "port", "waiting")
    return run, server


@pytest.mark.parametrize(
    ("asked", "taken"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1"), ("localhost", "0.0.0.0")]
)
def test_p8_the_next_attempt_waits_until_the_port_is_free(stage: Stage, asked: str, taken: str) -> None:
    run, server = while_taken(stage, asked, taken)
    assert len(run.attempts()) == 1
    server.close()
    run.wait_for_event("ready")
    assert outcomes(run, "port") == ["waiting", "passed"]
    assert not run.events("port-taken")
    assert run.stop() == 0


def test_p8_a_port_that_stays_taken_ends_the_launch_with_75_and_names_the_holder(stage: Stage) -> None:
    run, server = while_taken(stage, "127.0.0.1", "127.0.0.1")
    assert run.finish(PATIENT_S) == 75
    server.close()
    assert len(run.attempts()) == 1
    assert outcomes(run, "port") == ["waiting", "failed"]
    assert f"({os.getpid()})" in last(run, "port")["holder"]
    assert f"({os.getpid()})" in run.events("launch-ended")[0]["reason"]


def test_p9_a_stop_while_the_port_is_waited_for_starts_nothing(stage: Stage) -> None:
    run, server = while_taken(stage, "127.0.0.1", "127.0.0.1")
    assert run.stop() == 0
    server.close()
    assert len(run.attempts()) == 1
    assert outcomes(run, "port") == ["waiting"]


def test_a_server_that_served_leaves_a_port_that_is_free_at_once(stage: Stage) -> None:
    """Connections that wait for their last packets do not hold it."""
    run = stage.start(serve_ok(), serve_ok())
    run.wait_until_ready()
    os.kill(run.leader().pid, signal.SIGKILL)
    run.wait_for_event("ready", 2)
    assert outcomes(run, "port") == ["passed"]
    assert run.stop() == 0


def test_the_socket_file_of_a_killed_server_does_not_keep_the_next_one_from_starting(stage: Stage) -> None:
    run = stage.start(serve_ok(), serve_ok(), words=["tiny", "--uds", "here"])
    run.wait_until_ready()
    os.kill(run.leader().pid, signal.SIGKILL)
    run.wait_for_event("ready", 2)
    assert last(run, "socket-file")["removed"] == "here"
    assert run.stop() == 0


def test_the_first_attempt_passes_no_gate(stage: Stage) -> None:
    run = stage.start(serve_ok())
    run.wait_until_ready()
    assert run.stop() == 0
    assert run.events("gate") == []


# GPU memory


def test_p8_the_next_attempt_waits_until_the_gpus_have_their_memory_back(stage: Stage, gpus: Gpus) -> None:
    go = stage.root / "go"
    run = gpus.start(stage, let_die(go), serve_ok())
    run.wait_for_mark("loading")
    gpus.set(80_000, 100, holders=((os.getpid(), 39_000),))
    go.touch()
    wait_for_outcome(run, "gpu-memory", "waiting")
    assert len(run.attempts()) == 1
    asked = gpus.calls()
    run.wait_for("another look", lambda: gpus.calls() >= asked + 2)
    assert len(run.attempts()) == 1
    gpus.set(80_000, 39_500)
    run.wait_for_event("ready")
    assert run.stop() == 0
    assert outcomes(run, "gpu-memory") == ["waiting", "passed"]
    first, second = last(run, "gpu-memory")["gpus"]
    assert (first["free_mib"], first["before_mib"]) == (80_000, 80_000)
    assert (second["free_mib"], second["before_mib"]) == (39_500, 40_000)
    assert f"({os.getpid()}, 39000 MiB, not started by this launch)" in run.ours()


def test_gpus_that_have_their_memory_back_hold_up_nothing(stage: Stage, gpus: Gpus) -> None:
    run = gpus.start(stage, ima_at_startup(), serve_ok())
    run.wait_for_event("ready")
    assert run.stop() == 0
    assert outcomes(run, "gpu-memory") == ["passed"]
    assert "GPU memory is back after" in run.ours()


@pytest.mark.parametrize("how", ["held", "hangs", "is_broken"])
def test_p9_a_stop_while_gpu_memory_is_waited_for_starts_nothing(stage: Stage, gpus: Gpus, how: str) -> None:
    """Also when the driver never answers."""
    go = stage.root / "go"
    run = gpus.start(stage, let_die(go), serve_ok())
    run.wait_for_mark("loading")
    asked = gpus.calls()
    gpus.set(100, 100, **({} if how == "held" else {how: True}))
    go.touch()
    if how == "hangs":
        run.wait_for("a question to the driver", lambda: gpus.calls() > asked)
    else:
        wait_for_outcome(run, "gpu-memory", "waiting")
    run.signal(signal.SIGTERM)
    assert run.finish() == 0
    assert len(run.attempts()) == 1
    assert "passed" not in outcomes(run, "gpu-memory")


def test_without_a_driver_nothing_is_said_about_gpus(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), serve_ok())
    run.wait_for_event("ready")
    assert run.stop() == 0
    assert {event["gate"] for event in run.events("gate")} == {"host", "port"}


# What restarts use up


def test_attempts_that_fill_the_disk_end_the_launch_with_70(stage: Stage) -> None:
    cache = stage.root / "cache"
    cache.mkdir()
    prefix = (*IN_A_NAMESPACE, f'mount -t tmpfs -o size=110m tmpfs {cache}; exec "$0" "$@"')
    if subprocess.run([*prefix, "/bin/true"], capture_output=True, timeout=30).returncode:
        pytest.skip("no mount namespaces here")
    # not the first attempt: what was free before it is found out while it starts
    dies = [fill(cache / "core", 80), *ima_at_startup()]
    scenes = (ima_at_startup(), dies, serve_ok())
    run = stage.start(*scenes, prefix=prefix, environment={"VLLM_CACHE_ROOT": str(cache)})
    assert run.finish() == 70
    assert len(run.attempts()) == 2
    assert "makes things worse: space for vLLM's cache" in run.events("launch-ended")[0]["reason"]
    assert outcomes(run, "host") == ["passed", "failed"]


def test_an_attempt_that_leaves_room_does_not_end_the_launch(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), [engine(), serve()])
    run.wait_for_event("ready")
    assert run.child(ENGINE).is_alive
    assert run.stop() == 0
    levels = last(run, "host")["levels"]
    assert {level["kind"] for level in levels} == {"memory", "disk"}
    assert all(0 < level["free_bytes"] <= level["whole_bytes"] for level in levels)
