"""Short logs, each of a kind that was once judged wrong."""

from __future__ import annotations

import json

import pytest

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.evidence import Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.lives import lives
from safe_vllm.verdict.signatures import parse
from safe_vllm.verdict.unwrap import unwrapped

SIGNATURES = parse(read_data("signatures.yaml"))

BEGUN = (
    "(APIServer pid=1) INFO 11-30 09:48:08 [api_server.py:1839] vLLM API server version 0.15.1\n"
    "(APIServer pid=1) INFO 11-30 09:48:08 [utils.py:233] non-default args: {'model': 'example/a'}\n"
)
ENGINE = (
    "(EngineCore_DP0 pid=92) INFO 11-30 09:48:31 [core.py:77] "
    "Initializing a V1 LLM engine (v0.15.1) with config: model='example/a'\n"
)
UP = "(APIServer pid=1) INFO:     Application startup complete.\n"
ANSWERED = '(APIServer pid=1) INFO:     127.0.0.1:50001 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * 2
SERVING = BEGUN + ENGINE + UP + ANSWERED
NO_START = "(EngineCore_DP0 pid=92) ERROR 11-30 09:49:40 [core.py:843] EngineCore failed to start.\n"
STOPPED = "(APIServer pid=1) INFO 11-30 11:00:00 [launcher.py:270] [shutdown] API server: shutdown triggered\n"
ADDRESS = "CUDA error: an illegal memory access was encountered"


def engine(text: str) -> str:
    return f"(EngineCore_DP0 pid=92) ERROR 11-30 09:49:40 [core.py:843] {text}\n"


def judged(log: bytes, status: int | None) -> Verdict:
    return [judge(life.observations) for life in lives(unwrapped([log]), status, SIGNATURES)][-1]


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', 'main.c']' returned "
         "non-zero exit status 1.", "toolchain"),
        ("torch._inductor.exc.InductorError: FileNotFoundError: [Errno 2] No such file or directory: 'ptxas'",
         "toolchain"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'", "toolchain"),
        ("NotImplementedError: No compiled cutlass_scaled_mm for a compute capability less than CUDA device "
         "capability: 120", "unsupported-gpu"),
        ("torch.AcceleratorError: CUDA error: API call is not supported in the installed CUDA driver", "driver"),
        ("RuntimeError: can't start new thread", "host-oom"),
        ("RuntimeError: Qwen2-VL does not support FLASHINFER backend now.", "bad-config"),
        ("RuntimeError: [enforce fail at device.cc:83] ifa != nullptr. Unable to find address for: eth9", "nccl-init"),
        ("OSError: PermissionError at /models when downloading example/a. Check the permissions.", "permission"),
    ],
)  # fmt: skip
def test_a_start_that_cannot_succeed_is_not_tried_again(said: str, fault: str) -> None:
    verdict = judged((BEGUN + ENGINE + NO_START + engine(said)).encode(), 1)
    assert (verdict.fault, verdict.action) == (fault, "stop")


def test_what_fails_before_any_engine_begins_is_the_configuration() -> None:
    failed = "(APIServer pid=1) jinja2.exceptions.TemplateSyntaxError: unexpected '}'\n"
    assert judged((BEGUN + failed).encode(), 1).fault == "bad-config"
    assert judged((BEGUN + ENGINE + failed).encode(), 1).fault == "unknown"


def test_a_full_disk_explains_a_download_that_broke_off() -> None:
    log = BEGUN + "RuntimeError: Data processing error: Internal Writer Error\nNo space left on device (os error 28)\n"
    assert judged(log.encode(), 1).fault == "disk-full"


def test_workers_that_a_stop_reached_first_did_not_fail() -> None:
    died = engine("Worker proc VllmWorker-0 died unexpectedly (exit code: -15), shutting down executor.")
    assert judged((SERVING + died + STOPPED).encode(), 0).fault == "stopped"
    assert judged((SERVING + died).encode(), 0).fault != "stopped"


@pytest.mark.parametrize(
    "chatter",
    [
        "host:1:1 [0] NCCL INFO NET/Plugin: dlerror=libnccl-net.so: cannot open shared object file: No such file\n",
        "ERROR: ld.so: object 'a.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.\n",
        "OSError: [Errno 30] Read-only file system: '/root/.config/vllm'\n",
    ],
)
def test_chatter_of_a_start_is_not_the_cause_of_its_end(chatter: str) -> None:
    cause = engine("ValueError: No available memory for the cache blocks.")
    assert judged((BEGUN + chatter + ENGINE + NO_START + cause).encode(), 1).fault == "kv-cache"


@pytest.mark.parametrize(
    "line",
    [
        f'10.0.0.1 - - [30/Nov/2026:10:02:00 +0000] "GET /search?q={ADDRESS} HTTP/1.1" 200 612 "-" "curl/8.0"',
        f"(APIServer pid=1) ERROR 11-30 10:02:00 [serving.py:1] Error with model error=ErrorInfo(message='The model "
        f"`{ADDRESS}` does not exist.', code=404)",
        f"/usr/lib/python3/x.py:12: UserWarning: {ADDRESS}",
        f"+ vllm serve /models/a --served-model-name '{ADDRESS}'",
        json.dumps({"severity": "INFO", "message": f"Received request a: prompt: '{ADDRESS}'"}),
        json.dumps({"levelname": "INFO", "msg": f"Received request a: prompt: '{ADDRESS}'"}),
    ],
)
def test_foreign_text_is_no_fault(line: str) -> None:
    assert judged((SERVING + line + "\n").encode(), None).fault == "none"


def test_a_traceback_in_a_json_record_is_read_whatever_its_key() -> None:
    record = {"level": "ERROR", "message": "EngineCore encountered a fatal error.", "exception": f"T\nE: {ADDRESS}"}
    assert judged((SERVING + json.dumps(record) + "\n").encode(), 0).fault == "illegal-memory-access"


@pytest.mark.parametrize(
    "front",
    ["[pod/vllm-0/vllm] ", "2026-11-30T10:00:00+0000 node-a vllm[123]: ", "vllm.1.ab12@node-a    | ", "0: "],
)
def test_what_stands_in_front_of_each_line_is_passed_over(front: str) -> None:
    log = "".join(front + line for line in (BEGUN + "(APIServer pid=1) ValueError: odd\n").splitlines(True))
    assert judged(log.encode(), 1).fault == "bad-config"


def test_a_log_in_utf_16_is_read() -> None:
    assert judged((SERVING + engine(f"RuntimeError: {ADDRESS}")).encode("utf-16"), 1).fault == "illegal-memory-access"


def test_the_frames_of_a_traceback_alone_tell_the_phase() -> None:
    serving = '  File "/x/vllm/v1/engine/core.py", line 900, in run_busy_loop\nRuntimeError: odd\n'
    capture = '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 5, in capture_model\n' + engine("RuntimeError: odd")
    assert (judged(serving.encode(), 1).phase, judged(serving.encode(), 1).action) == ("serving", "retry-same")
    assert judged((BEGUN + ENGINE + capture).encode(), 1).phase == "capture"


def test_ray_says_that_it_killed_a_worker_for_want_of_memory() -> None:
    log = SERVING + (
        "(raylet) node_manager.cc:3041: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers\n"
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    )
    assert judged(log.encode(), 1).fault == "host-oom"
