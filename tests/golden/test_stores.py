"""The verdict does not depend on what stored a log, and no word of a prompt is ever the cause."""

# ruff: noqa: E501 - lines of a log are as long as they are

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.evidence import Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.lives import lives
from safe_vllm.verdict.signatures import parse
from safe_vllm.verdict.unwrap import unwrapped

SIGNATURES = parse(read_data("signatures.yaml"))

BEGUN = "(APIServer pid=1) INFO 11-30 09:48:08 [api_server.py:1839] vLLM API server version 0.12.0\n"
ENGINE = (
    "(EngineCore_DP0 pid=92) INFO 11-30 09:48:31 [core.py:77] "
    "Initializing a V1 LLM engine (v0.12.0) with config: model='example/a'\n"
)
UP = "(APIServer pid=1) INFO:     Application startup complete.\n"
ANSWERED = '(APIServer pid=1) INFO:     127.0.0.1:50001 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * 2
FAILED = "(EngineCore_DP0 pid=92) ERROR 11-30 09:49:40 [core.py:843] EngineCore failed to start.\n"
HEAD = "Traceback (most recent call last):"


def judged(log: str, status: int | None = None) -> Verdict:
    return [judge(life.observations) for life in lives(unwrapped([log.encode()]), status, SIGNATURES)][-1]


def engine(*said: str) -> str:
    return "".join(f"(EngineCore_DP0 pid=92) ERROR 11-30 09:49:40 [core.py:843] {line}\n" for line in said)


STORES: dict[str, Callable[[str], str]] = {
    "plain": lambda line: line,
    "stern": lambda line: f"vllm-7d9f8b6c5-x2k4q vllm {line}",
    "kubectl-prefix-and-timestamps": lambda line: f"[pod/vllm-0/vllm] 2026-11-30T10:00:00.123456789Z {line}",
    "compose-timestamps": lambda line: f"vllm-1  | 2026-11-30T10:00:00.123456789Z {line}",
    "journal-monotonic": lambda line: f"[8123311.402188] gpu-node-3 vllm[48120]: {line}",
    "ts": lambda line: f"Nov 30 10:00:00 {line}",
    "bracketed": lambda line: f"[2026-11-30 10:00:00] {line}",
    "grep-n": lambda line: f"17:{line}",
    "grep-n-of-compose": lambda line: f"17:vllm-1  | {line}",
    "google-cloud": lambda line: json.dumps({"insertId": "a", "textPayload": line, "severity": "ERROR"}),
    "loki": lambda line: json.dumps({"line": line, "timestamp": "2026-11-30T10:00:00Z", "fields": {}}),
    "fluent-bit": lambda line: json.dumps({"stream": "stderr", "_p": "F", "log": line}),
    "rsyslog": lambda line: line.replace("(", "#033[0;36m(", 1).replace(") ", ")#033[0;0m ", 1),
}
ASKED = (
    "why does it say CUDA error: an illegal memory access was encountered and NVRM: Xid (PCI:0000:01:00): 79, what now"
)
SERVING = BEGUN + ENGINE + UP + ANSWERED
HOSTILE = (
    f"(APIServer pid=1) INFO 11-30 09:59:58 [logger.py:39] Received request chatcmpl-2: prompt: '{ASKED}', params: None\n"
    + engine("EngineCore encountered a fatal error.", "ValueError: No valid structured output parameter found")
)


def stored(log: str, store: str) -> str:
    return "".join(f"{STORES[store](line)}\n" for line in log.splitlines())


@pytest.mark.parametrize("is_signed", [True, False])
@pytest.mark.parametrize("store", STORES)
def test_no_word_of_a_prompt_is_the_cause_whatever_stored_the_log(store: str, is_signed: bool) -> None:
    log = SERVING + HOSTILE
    if not is_signed:
        log = log.replace("(APIServer pid=1) ", "").replace("(EngineCore_DP0 pid=92) ", "")
    verdict = judged(stored(log, store), 1)
    assert (verdict.fault, verdict.action, verdict.phase) == ("unknown", "retry-same", "serving")


@pytest.mark.parametrize("store", STORES)
def test_a_bare_traceback_is_read_whatever_stored_the_log(store: str) -> None:
    frame = '  File "/opt/v/site-packages/vllm/model_executor/models/utils.py", line 290, in load_weights'
    log = BEGUN + ENGINE + FAILED + f"{HEAD}\n{frame}\nAssertionError\n"
    assert judged(stored(log, store), 1).fault == "bad-model"


@pytest.mark.parametrize("store", STORES)
def test_the_reason_does_not_quote_what_the_store_wrote(store: str) -> None:
    log = BEGUN + ENGINE + FAILED + engine("RuntimeError: No CUDA GPUs are available")
    assert judged(stored(log, store), 1).reason.endswith(
        "while it was starting: RuntimeError: No CUDA GPUs are available"
    )


def test_a_part_of_a_line_that_fluent_bit_marks_is_joined() -> None:
    parts = [{"_p": "P", "log": "RuntimeError: No CUDA GPUs are "}, {"_p": "F", "log": "available"}]
    log = stored(BEGUN + ENGINE + FAILED, "fluent-bit") + "".join(json.dumps(part) + "\n" for part in parts)
    assert judged(log, 1).fault == "no-gpu"


def test_a_formatter_that_names_its_line_is_no_store() -> None:
    said = json.dumps({"level": "ERROR", "message": "RuntimeError: No CUDA GPUs are available", "line": "core.py"})
    assert judged(f"{said}\n" * 3, 1).fault == "no-gpu"


def test_pythons_own_layout_is_known() -> None:
    said = [
        "vllm.entrypoints.openai.api_server - INFO - vLLM API server version 0.11.0",
        "uvicorn.error - INFO - Application startup complete.",
        'uvicorn.access - INFO - 10.0.0.1:5501 - "POST /v1/chat/completions HTTP/1.1" 200',
        'uvicorn.access - INFO - 10.0.0.1:5501 - "POST /v1/chat/completions HTTP/1.1" 200',
        f"vllm.entrypoints.logger - INFO - Received request chatcmpl-78: prompt: '{ASKED}', params: None",
        "vllm.v1.engine.core_client - ERROR - Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
    ]
    verdict = judged("".join(f"2026-11-02 13:13:01,001 - {line}\n" for line in said), 1)
    assert (verdict.fault, verdict.action) == ("unknown", "retry-same")
