"""The phase is read from what is printed, and never goes back from service."""

# ruff: noqa: E501 - lines of a log are as long as they are

from __future__ import annotations

import pytest

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.phase import Progress
from safe_vllm.verdict.scan import Scan
from safe_vllm.verdict.signatures import parse

SIGNATURES = parse(read_data("signatures.yaml"))
POST = b'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
TOKENS = (
    b"(APIServer pid=1) INFO 08-06 10:00:00 [loggers.py:259] Engine 000: Avg prompt throughput: 0.2 tokens/s, "
    b"Avg generation throughput: 212.4 tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"
)
STARTUP = [
    (b"(Worker pid=9) INFO 11-30 09:55:56 [runner.py:68] Starting to load model /m...\n", "init"),
    (b"2026-06-11 17:03:32,437 - INFO - autotuner.py:622 - flashinfer.jit: [Autotuner]: Autotuning process starts ...\n",
     "autotune"),
    (b"\rCapturing CUDA graphs (decode, FULL):   3%| | 1/35 [00:00<00:18,  1.80it/s]\r", "capture"),
    (b"INFO:     Application startup complete.\n", "first-inference"),
    (POST, "first-inference"),
    (POST, "serving"),
    (b"INFO 11-30 09:48:54 [launcher.py:254] [shutdown] API server: shutdown triggered\n", "shutdown"),
]  # fmt: skip


def test_a_start_passes_through_all_phases() -> None:
    scan = Scan(SIGNATURES)
    for line, phase in STARTUP:
        scan.feed("stderr", line, 0.0)
        assert scan.phase == phase


def test_reported_tokens_mean_service() -> None:
    scan = Scan(SIGNATURES)
    scan.feed("stdout", STARTUP[3][0] + TOKENS, 0.0)
    assert scan.phase == "serving"


@pytest.mark.parametrize("path", ["/tokenize", "/v1/load_lora_adapter", "/sleep"])
def test_requests_that_need_no_inference_prove_nothing(path: str) -> None:
    scan = Scan(SIGNATURES)
    scan.feed("stdout", STARTUP[3][0] + POST.replace(b"/v1/completions", path.encode()) * 3, 0.0)
    assert scan.phase == "first-inference"


def test_the_launcher_can_say_what_it_knows() -> None:
    """What is answered before it says ready, the launcher itself had asked."""
    scan = Scan(SIGNATURES)
    scan.health_answered()
    assert scan.phase == "first-inference"
    scan.feed("stdout", POST * 3 + TOKENS, 0.0)
    assert scan.phase == "first-inference"
    scan.ready()
    assert scan.phase == "serving"


@pytest.mark.parametrize("late", ["init", "autotune", "capture", "first-inference"])
def test_a_server_in_service_stays_there(late: str) -> None:
    assert Progress("serving").enter(late).phase == "serving"


def test_graphs_may_be_captured_before_kernels_are_tuned() -> None:
    assert Progress("capture").enter("autotune").phase == "autotune"


@pytest.mark.parametrize("line", [POST, TOKENS, POST.replace(b"200 OK", b"400 Bad Request")])
def test_a_log_read_from_its_middle_tells_the_phase_when_it_can(line: bytes) -> None:
    scan = Scan(SIGNATURES, from_start=False)
    scan.feed("stdout", b"something\n" + line, 0.0)
    assert scan.phase == "serving"
    assert scan.known_from == (2, "serving")
