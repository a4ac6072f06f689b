"""The status server of a real launch: what each probe is answered on the way, and that it is in nobody's way."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from launch import Launch, Stage
from scenes import engine, ima_at_startup, mark, serve, serve_ok, wait_for_file

from waiting import free_port


def at(port: int) -> tuple[str, ...]:
    return ("--backoff", "0.01", "--status-address", f"127.0.0.1:{port}")


def ask(port: int, path: str) -> tuple[int, str]:
    """Return what is answered; 0: nobody does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionError:
            return 0, ""


def told(port: int) -> tuple[int, int, str]:
    """Return the answers of the two probes, and the state."""
    status, text = ask(port, "/status")
    return ask(port, "/livez")[0], ask(port, "/readyz")[0], json.loads(text)["state"] if status == 200 else ""


def wait_for(run: Launch, port: int, expected: tuple[int, int, str]) -> None:
    run.wait_for(f"answers {expected}", lambda: told(port) == expected)


def test_every_probe_sees_the_way_through_a_step_down_to_the_end(stage: Stage) -> None:
    port, die, load = free_port(), stage.root / "die", stage.root / "load"
    run = stage.start(
        [mark("loading"), wait_for_file(die), *ima_at_startup()],
        [mark("again"), wait_for_file(load), engine(), serve(stops=False)],
        options=at(port),
    )
    run.wait_for_mark("loading")
    wait_for(run, port, (200, 503, "starting"))
    assert "attempt 1 starting at rung as-asked" in ask(port, "/readyz")[1]
    die.touch()
    run.wait_for_mark("again")
    wait_for(run, port, (200, 503, "starting"))
    assert "attempt 2 starting at rung no-autotune" in ask(port, "/readyz")[1]
    load.touch()
    run.wait_until_ready("no-autotune")
    wait_for(run, port, (200, 200, "ready"))
    assert "degraded" in ask(port, "/readyz")[1]
    run.signal(signal.SIGTERM)
    run.wait_for("the signal at vLLM", lambda: "SIGTERM" in run.signals())
    wait_for(run, port, (200, 503, "stopping"))
    assert run.stop() == 0  # a second signal hurries what does not stop by itself
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


def test_metrics_tell_what_happened_or_what_to_install(stage: Stage) -> None:
    port = free_port()
    run = stage.start(ima_at_startup(), serve_ok(), options=at(port))
    run.wait_until_ready()
    status, text = ask(port, "/metrics")
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        assert (status, "pip install prometheus-client" in text) == (501, True)
    else:
        assert status == 200
        assert 'safe_vllm_rung{rung="no-autotune"} 1.0\n' in text
        assert "safe_vllm_failed_attempts_total 1.0\n" in text
        assert "safe_vllm_ready 1.0\n" in text
    assert run.stop() == 0


def test_two_hundred_slow_clients_hold_up_neither_the_start_nor_a_probe_nor_the_stop(stage: Stage) -> None:
    port, load = free_port(), stage.root / "load"
    run = stage.start([mark("loading"), wait_for_file(load), *serve_ok()], options=at(port))
    run.wait_for_mark("loading")
    wait_for(run, port, (200, 503, "starting"))
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)).sendall(b"GET /l")
        load.touch()
        run.wait_until_ready()
        wait_for(run, port, (200, 200, "ready"))
        assert run.stop() == 0
    assert run.survivors() == []


def test_vllm_does_not_hold_the_listening_socket(stage: Stage) -> None:
    port = free_port()
    run = stage.start(serve_ok(), options=at(port))
    run.wait_until_ready()
    wait_for(run, port, (200, 200, "ready"))
    [start] = run.attempts()
    assert set(start["descriptors"]) == {"0", "1", "2"}
    inodes = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if _is_at(line, port)}
    below = [path for pid in _pids(run) for path in Path(f"/proc/{pid}/fd").iterdir()]
    assert len(inodes) == 1
    assert not {f"socket:[{inode}]" for inode in inodes} & {os.readlink(path) for path in below}  # noqa: PTH115
    assert run.stop() == 0


def _is_at(line: str, port: int) -> bool:
    """Return whether a line of the table of sockets is about one that listens at the port."""
    _, local, _, state, *_ = line.split()
    return state == "0A" and local.endswith(f":{port:04X}")


def _pids(run: Launch) -> list[int]:
    """Return the guardian and the leader."""
    entry = run.attempts()[-1]
    return [entry["parent"], entry["pid"]]


def test_an_address_that_is_taken_is_told_of_and_stops_nothing(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        run = stage.start(serve_ok(), options=at(port))
        run.wait_until_ready()
        assert f"safe-vllm: no status server at 127.0.0.1:{port}: address already in use; " in run.ours()
    assert run.stop() == 0


@pytest.mark.parametrize("text", ["9464", "status.example:9464", "127.0.0.1:0"])
def test_an_address_that_is_not_understood_ends_with_2_before_anything_is_started(stage: Stage, text: str) -> None:
    run = stage.start(serve_ok(), options=(), environment={"SAFE_VLLM_STATUS_ADDRESS": text})
    assert run.finish() == 2
    assert f"--status-address {text!r}: " in run.ours()
    assert run.attempts() == []


def test_the_port_of_vllm_is_not_for_us(stage: Stage) -> None:
    port = free_port()
    words = ["tiny", "--host", "127.0.0.1", "--port", str(port)]
    run = stage.start(serve_ok(), words=words, options=at(port))
    assert run.finish() == 2
    assert "vLLM is to answer at this port" in run.ours()


def test_without_the_option_nothing_listens(stage: Stage) -> None:
    run = stage.start(serve_ok())
    run.wait_until_ready()
    ours = {os.readlink(path) for path in Path(f"/proc/{run.process.pid}/fd").iterdir()}  # noqa: PTH115
    listening = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if " 0A " in line}
    assert not ours & {f"socket:[{inode}]" for inode in listening}
    assert run.stop() == 0
