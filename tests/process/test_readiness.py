"""P12: ready means that ``/health`` answered and that real requests were answered."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from launch import Entry, Launch, Stage
from scenes import (
    CANARY,
    ILLEGAL_ACCESS,
    PORT_IN_USE,
    Step,
    die_first_inference,
    engine,
    fail,
    ima_at_startup,
    leave,
    mark,
    serve,
    serve_ok,
    wait_for_file,
    write,
)

from waiting import free_port

IMPATIENT = ("--backoff", "0.01", "--fault-grace", "0.5")


def completions(run: Launch) -> list[Entry]:
    """Return the real requests that the fake was sent."""
    return [entry for entry in run.entries("request") if entry["path"] == "/v1/completions"]


def test_a_server_that_fails_at_the_last_of_the_first_requests_never_served(stage: Stage) -> None:
    answered = {
        "first": [write("stdout", 'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n')],
        "then": 200,
    }
    run = stage.start(serve_ok(completions=(answered, answered, answered, 500)), options=("--max-attempts", "1"))
    assert run.finish() == 70
    [ended] = run.events("attempt-ended")
    assert ended["phase"] == "first-inference"
    assert run.events("ready") == []


def test_health_alone_is_not_ready_the_first_inference_may_kill(stage: Stage) -> None:
    run = stage.start(die_first_inference(), serve_ok())
    run.wait_until_ready("no-autotune")
    [ready] = run.events("ready")
    assert (ready["attempt"], ready["rung"]) == (2, "no-autotune")
    [ended] = run.events("attempt-ended")
    assert (ended["status"], ended["phase"], ended["action"]) == (0, "first-inference", "retry-safer")
    assert ended["fault"] == "engine-signal"
    assert len(completions(run)) == 1 + len(CANARY)
    assert run.stop() == 0


@pytest.mark.parametrize("answers", [(500,), ("drop",), (200, 500), (200, 200, 200, "drop")])
def test_a_server_that_fails_at_one_of_the_requests_is_not_ready_and_the_next_rung_is_tried(
    stage: Stage, answers: tuple[object, ...]
) -> None:
    run = stage.start(serve_ok(completions=answers), serve_ok(), options=IMPATIENT)
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


def test_the_canary_asks_for_little_in_several_lengths_and_in_a_batch(stage: Stage) -> None:
    port = str(free_port())
    run = stage.start(serve_ok(), words=["tiny", f"--port={port}", "--served-model-name", "a name"])
    run.wait_until_ready()
    requests = completions(run)
    asked = [json.loads(request["body"]) for request in requests]
    assert len(asked) == len(CANARY)
    assert {request["method"] for request in requests} == {"POST"}
    assert {one["model"] for one in asked} == {"a name"}
    assert {
        1 <= one["max_tokens"] <= 32 and one["ignore_eos"] is True and one["temperature"] == 0 for one in asked
    } == {True}
    alone = [one["prompt"] for one in asked if isinstance(one["prompt"], str)]
    assert [prompt.count(" ") for prompt in alone] == [8, 0, max(prompt.count(" ") for prompt in alone)]
    assert max(map(len, alone)) < 256
    assert [len(one["prompt"]) for one in asked if isinstance(one["prompt"], list)] == [8]
    [ready] = run.events("ready")
    assert ready["note"] == ""
    assert run.stop() == 0


def test_a_server_that_was_ready_is_asked_once_when_in_doubt(stage: Stage) -> None:
    """P15: the canary that settles a fault line is one short request."""
    run = stage.start(serve_ok(), options=IMPATIENT)
    run.wait_until_ready()
    run.play(write("stderr", f"torch.AcceleratorError: {ILLEGAL_ACCESS}\n"))
    run.wait_for("the second canary", lambda: len(completions(run)) > len(CANARY))
    assert run.request("GET", "/v1/models") == 200  # one request at a time: whatever else was sent comes before it
    assert run.stop() == 0
    assert len(completions(run)) == len(CANARY) + 1


def test_nonsense_is_reported_and_no_reason_to_step_down(stage: Stage) -> None:
    run = stage.start(serve_ok(completions=("odd",)))
    run.wait_until_ready("as-asked")
    [ready] = run.events("ready")
    assert ready["note"] == (
        "replacement characters in 11 of 11 answers; one token repeated over the whole of 11 of 11 answers"
    )
    assert f"({ready['note']})" in run.ours()
    assert run.stop() == 0


@pytest.mark.parametrize(
    ("route", "note"),
    [
        ("/v1/embeddings", ""),
        ("/v1/nothing/of/ours", "the canary could not be sent: /v1/completions says 404"),
    ],
)
def test_a_server_is_asked_for_what_its_model_can_do(stage: Stage, route: str, note: str) -> None:
    run = stage.start(serve_ok(offers=(route,)))
    run.wait_until_ready("as-asked")
    [ready] = run.events("ready")
    assert ready["note"] == note
    assert len([entry for entry in run.entries("request") if entry["path"] == route]) == (0 if note else len(CANARY))
    assert run.stop() == 0


def test_an_embedding_server_whose_embedding_fails_is_not_ready(stage: Stage) -> None:
    scenes = (serve_ok(offers=("/v1/embeddings",), completions=(answer,)) for answer in (500, 200))
    run = stage.start(*scenes, options=IMPATIENT)
    run.wait_until_ready()
    assert [ready["attempt"] for ready in run.events("ready")] == [2]
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


@pytest.mark.parametrize("host", [[], ["--host", "0.0.0.0"], ["--host=127.0.0.1"], ["--host", "localhost"]])
def test_the_server_is_found_where_the_words_put_it(stage: Stage, host: list[str]) -> None:
    run = stage.start(serve_ok(), words=["tiny", *host, "--port", str(free_port())])
    run.wait_until_ready()
    assert run.stop() == 0


def test_the_server_is_found_at_its_socket_file(stage: Stage) -> None:
    run = stage.start(serve_ok(), words=["tiny", "--uds", str(stage.root / "socket"), "--port", "0"])
    run.wait_until_ready()
    assert len(completions(run)) == len(CANARY)
    assert run.stop() == 0


def test_a_server_that_is_ready_is_asked_for_nothing_but_its_counters(stage: Stage) -> None:
    """P12: every question stands in the operator's log."""
    profile = stage.root / "limits.yaml"
    profile.write_text("name: limits\nextends: cpu\npolicy:\n  stall_s: 1\n")
    run = stage.start(serve_ok(), options=("--profile", str(profile)))
    run.wait_until_ready()
    run.wait_for("many looks", lambda: [entry["path"] for entry in run.entries("request")].count("/metrics") >= 12)
    paths = [entry["path"] for entry in run.entries("request")]
    assert set(paths[paths.index("/metrics") :]) == {"/metrics"}
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
    (taken,) = run.events("port-taken")
    assert f"({os.getpid()})" in taken["holder"] and f"({os.getpid()})" in run.ours()
    assert shlex.split(taken["command"])[0] == Path("/proc/self/cmdline").read_text().split("\0")[0]
    assert run.events("ready") == []
    assert len(run.attempts()) <= 1


@pytest.mark.parametrize("winner", [0, 1])
def test_p12_the_answers_of_a_server_that_came_up_there_meanwhile_make_nobody_ready(stage: Stage, winner: int) -> None:
    """Two launches of the same command at the same moment: the port was free for both."""
    words, go = ["tiny", "--host", "127.0.0.1", "--port", str(free_port())], [stage.root / "go0", stage.root / "go1"]
    last = [fail(PORT_IN_USE), fail(PORT_IN_USE)]
    last[winner] = [engine(), serve()]
    runs = [stage.start([mark("loading"), wait_for_file(go[one]), *last[one]], words=words) for one in (0, 1)]
    for run in runs:
        run.wait_for_mark("loading")
    go[winner].touch()
    runs[winner].wait_until_ready()
    loser = runs[1 - winner]
    assert f"({runs[winner].attempts()[0]['pid']})" in loser.wait_for_event("port-taken")["holder"]
    loser.let_pass(2)
    go[1 - winner].touch()
    assert loser.finish() == 75
    assert (len(loser.events("port-taken")), loser.events("ready"), len(loser.attempts())) == (1, [], 1)
    assert "this attempt is not ready: the answer is that of the other server" in loser.ours()
    assert runs[winner].stop() == 0


def test_p12_a_server_that_a_stranger_started_for_our_command_is_ready(stage: Stage) -> None:
    """As a container's engine does: it listens, it is not below us, and it began when our command did."""
    with HTTPServer(("127.0.0.1", 0), Impostor) as later:
        port = later.server_port
    go = stage.root / "go"
    words = ["tiny", "--host", "127.0.0.1", "--port", str(port)]
    run = stage.start([mark("loading"), wait_for_file(go)], words=words, options=("--no-canary",))
    run.wait_for_mark("loading")
    script = "import sys; sys.path.insert(0, sys.argv[2]); import test_readiness as t; t.HTTPServer(('127.0.0.1', "
    script += "int(sys.argv[1])), t.Impostor).serve_forever()"
    command = [sys.executable, "-c", script, str(port), str(Path(__file__).parent)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as stranger:
        try:
            run.wait_until_ready()
        finally:
            stranger.kill()
    assert run.stop() == 0


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
