"""P12: ready means that ``/health`` answered and that a real completion came back."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from launch import Entry, Launch, Stage, free_port
from scenes import (
    PORT_IN_USE,
    Step,
    die_first_inference,
    fail,
    ima_at_startup,
    leave,
    mark,
    serve_ok,
    wait_for_file,
    write,
)

IMPATIENT = ("--backoff", "0.01", "--fault-grace", "0.5")


def completions(run: Launch) -> list[Entry]:
    """Return the real requests that the fake was sent."""
    return [entry for entry in run.entries("request") if entry["path"] == "/v1/completions"]


def test_health_alone_is_not_ready_the_first_inference_may_kill(stage: Stage) -> None:
    run = stage.start(die_first_inference(), serve_ok())
    run.wait_until_ready("no-autotune")
    [ready] = run.events("ready")
    assert (ready["attempt"], ready["rung"]) == (2, "no-autotune")
    [ended] = run.events("attempt-ended")
    assert (ended["status"], ended["phase"], ended["action"]) == (0, "first-inference", "retry-safer")
    assert ended["fault"] == "engine-signal"
    assert len(completions(run)) == 2
    assert run.stop() == 0


@pytest.mark.parametrize("answer", [500, "drop"])
def test_a_server_whose_completion_fails_is_not_ready_and_the_next_rung_is_tried(stage: Stage, answer: object) -> None:
    run = stage.start(serve_ok(completions=(answer,)), serve_ok(), options=IMPATIENT)
    run.wait_until_ready()
    [ready] = run.events("ready")
    assert (ready["attempt"], ready["rung"]) == (2, "no-autotune")
    assert run.stop() == 0


def test_a_server_whose_completion_never_comes_is_not_ready(stage: Stage) -> None:
    run = stage.start(serve_ok(completions=("never",)), serve_ok(), options=(*IMPATIENT, "--start-timeout", "4"))
    run.wait_until_ready()
    assert [ready["attempt"] for ready in run.events("ready")] == [2]
    assert run.stop() == 0


def test_a_server_that_is_not_healthy_yet_is_waited_for(stage: Stage) -> None:
    run = stage.start(serve_ok(health=(503, 503, 200)))
    run.wait_until_ready("as-asked")
    assert len(run.attempts()) == 1
    assert run.stop() == 0


def test_a_server_that_hangs_in_its_start_is_ended_at_the_start_timeout(stage: Stage) -> None:
    run = stage.start(
        [mark("loading"), wait_for_file(stage.root / "never")], serve_ok(), options=(*IMPATIENT, "--start-timeout", "4")
    )
    run.wait_for_event("ready")
    assert run.events("attempt-ended")[0]["fault"] == "hang"
    assert run.stop() == 0


@pytest.mark.parametrize(("options", "environment"), [(("--no-canary",), {}), ((), {"SAFE_VLLM_NO_CANARY": "1"})])
def test_without_a_canary_health_is_enough(stage: Stage, options: tuple[str, ...], environment: dict[str, str]) -> None:
    run = stage.start(serve_ok(completions=(500,)), options=options, environment=environment)
    run.wait_until_ready("as-asked")
    assert completions(run) == []
    assert run.stop() == 0


def test_the_canary_is_a_small_request_to_the_model_that_is_served(stage: Stage) -> None:
    port = str(free_port())
    run = stage.start(serve_ok(), words=["tiny", f"--port={port}", "--served-model-name", "a name"])
    run.wait_until_ready()
    [request] = completions(run)
    asked = json.loads(request["body"])
    assert request["method"] == "POST"
    assert asked["model"] == "a name"
    assert 1 <= asked["max_tokens"] <= 32
    assert asked["ignore_eos"] is True
    assert run.stop() == 0


@pytest.mark.parametrize("spelling", ["word", "equals", "variable"])
def test_the_canary_shows_the_operators_key_and_no_line_of_ours_does(stage: Stage, spelling: str) -> None:
    key = "sk-never-to-be-seen"
    words = {"word": ["--api-key", key], "equals": [f"--api-key={key}"], "variable": []}[spelling]
    environment = {"VLLM_API_KEY": key} if spelling == "variable" else {}
    words = ["tiny", "--host", "127.0.0.1", "--port", str(free_port()), *words]
    run = stage.start(serve_ok(), words=words, environment=environment)
    run.wait_until_ready()
    assert completions(run)[0]["headers"]["authorization"] == f"Bearer {key}"
    assert run.stop() == 0
    assert key not in run.ours() + run.events_path.read_text()


@pytest.mark.parametrize("host", [[], ["--host", "0.0.0.0"], ["--host=127.0.0.1"], ["--host", "127.0.0.1"]])
def test_the_server_is_found_where_the_words_put_it(stage: Stage, host: list[str]) -> None:
    run = stage.start(serve_ok(), words=["tiny", *host, "--port", str(free_port())])
    run.wait_until_ready()
    assert run.stop() == 0


class Impostor(BaseHTTPRequestHandler):
    """Another server on our port: everything it is asked goes well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "m"}], "choices": [{"text": "x"}]}')

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_the_answers_of_another_server_on_the_port_make_nobody_ready(stage: Stage) -> None:
    with HTTPServer(("127.0.0.1", 0), Impostor) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        loading = stage.root / "loaded"
        refused: list[Step] = [mark("loading"), wait_for_file(loading), *fail(PORT_IN_USE)]
        run = stage.start(refused, words=["tiny", "--host", "127.0.0.1", "--port", str(other.server_port)])
        run.wait_for("loading, or a refusal", lambda: run.process.poll() is not None or "loading" in run.marks())
        loading.touch()
        assert run.finish() == 75
        other.shutdown()
    assert run.events("ready") == []
    assert len(run.attempts()) <= 1


def test_a_port_that_is_really_taken_ends_with_75(stage: Stage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody answers there
        run = stage.start(serve_ok(), words=["tiny", "--host", "127.0.0.1", "--port", str(taken.getsockname()[1])])
        assert run.finish() == 75


def test_a_fault_in_the_output_before_ready_is_not_forgiven_by_a_late_health(stage: Stage) -> None:
    """A leader that prints a fault and ends is never ready, however healthy it looked."""
    run = stage.start(
        [write("stdout", "ready? healthy! ready\n"), *ima_at_startup()], [leave(1)], options=("--max-attempts", "1")
    )
    assert run.finish() == 70
    assert run.events("ready") == []
