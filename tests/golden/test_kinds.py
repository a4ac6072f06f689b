"""Kinds of logs that were judged wrong: the server in front of a well engine, toolchains, transports, shells."""

# ruff: noqa: E501 - lines of a log are as long as they are

from __future__ import annotations

import pytest

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.advice_table import parse as parse_advice
from safe_vllm.verdict.evidence import Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.lives import lives
from safe_vllm.verdict.signatures import parse
from safe_vllm.verdict.unwrap import unwrapped

SIGNATURES = parse(read_data("signatures.yaml"))
ADVICE = parse_advice(read_data("advice.yaml"))

BEGUN = "(APIServer pid=1) INFO 11-30 09:48:08 [api_server.py:1839] vLLM API server version 0.12.0\n"
ENGINE = (
    "(EngineCore_DP0 pid=92) INFO 11-30 09:48:31 [core.py:77] "
    "Initializing a V1 LLM engine (v0.12.0) with config: model='example/a'\n"
)
CAPTURE = "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 83/83 [01:45<00:00,  1.27s/it]\n"
TOOK = "(EngineCore_DP0 pid=92) INFO 11-30 09:50:40 [core.py:216] init engine (profile, create kv cache, warmup model) took 41.2 seconds\n"
UP = "(APIServer pid=1) INFO:     Application startup complete.\n"
ANSWERED = '(APIServer pid=1) INFO:     127.0.0.1:50001 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * 2
FAILED = "(EngineCore_DP0 pid=92) ERROR 11-30 09:49:40 [core.py:843] EngineCore failed to start.\n"
HEAD = "Traceback (most recent call last):"
FRAME = '  File "/opt/v/site-packages/vllm/entrypoints/openai/api_server.py", line 1869, in run_server_worker'


def judged(log: str | bytes, status: int | None = None) -> Verdict:
    data = log if isinstance(log, bytes) else log.encode()
    return [judge(life.observations, ADVICE) for life in lives(unwrapped([data]), status, SIGNATURES)][-1]


def by(process: str, *said: str) -> str:
    return "".join(f"({process} pid=92) {line}\n" for line in said)


def uncaught(said: str, process: str = "APIServer") -> str:
    return by(process, HEAD, FRAME, said)


def engine(*said: str) -> str:
    return by("EngineCore_DP0", *(f"ERROR 11-30 09:49:40 [core.py:843] {line}" for line in said))


# ---- the server in front of an engine that is well

FRONT_END = [
    ("openai_harmony.HarmonyError: error downloading or loading vocab file: failed to download", "hub"),
    ("ValueError: The supplied chat template (/t/a.jinja) looks like a path, but is no file", "bad-config"),
    ("FileNotFoundError: [Errno 2] No such file or directory", "bad-config"),
    ("ModuleNotFoundError: No module named 'our_middleware'", "toolchain"),
    ("RuntimeError: Failed to connect to MCP tool server localhost:8888", "bad-config"),
    ("ValueError: Call to add_lora method failed: Loading lora a failed: No adapter found for /a", "bad-config"),
]


@pytest.mark.parametrize("status", [1, None])
@pytest.mark.parametrize("prepared", [CAPTURE, TOOK, CAPTURE + TOOK], ids=["captured", "eager", "both"])
@pytest.mark.parametrize(("said", "fault"), FRONT_END)
def test_what_fails_in_front_of_a_well_engine_is_no_kernels(
    said: str, fault: str, prepared: str, status: int | None
) -> None:
    verdict = judged(BEGUN + ENGINE + prepared + uncaught(said), status)
    assert (verdict.fault, verdict.action) == (fault, "stop")


def test_older_versions_do_not_sign_what_the_server_says() -> None:
    log = (BEGUN + ENGINE + CAPTURE + TOOK).replace("(APIServer pid=1) ", "").replace("(EngineCore_DP0 pid=92) ", "")
    log += f"{HEAD}\n{FRAME}\nRuntimeError: Failed to connect to MCP tool server localhost:8888\n"
    assert (judged(log).fault, judged(log).action) == ("bad-config", "stop")


@pytest.mark.parametrize(
    "also",
    [
        FAILED,
        engine("torch.AcceleratorError: CUDA error: misaligned address"),
        "(EngineCore_DP0 pid=92) ERROR 11-30 09:49:40 [m.py:1] Worker proc VllmWorker-0 died unexpectedly, shutting down executor.\n",
    ],
)
def test_with_a_dead_process_or_a_fault_of_a_kernel_it_may_be_the_kernels(also: str) -> None:
    log = BEGUN + ENGINE + CAPTURE + also + uncaught("RuntimeError: it is gone")
    assert judged(log, 1).action == "retry-safer"


def test_what_an_engine_says_before_it_is_up_stays_unknown() -> None:
    log = BEGUN + ENGINE + CAPTURE + FAILED + engine("RuntimeError: it broke")
    assert (judged(log, 1).fault, judged(log, 1).action) == ("unknown", "retry-safer")


# ---- how a log ends


def test_a_log_that_ends_with_what_nobody_caught_is_of_a_server_that_is_over() -> None:
    verdict = judged(BEGUN + uncaught("AttributeError: SomeTokenizer has no attribute words"))
    assert (verdict.fault, verdict.action) == ("bad-config", "stop")


@pytest.mark.parametrize(
    "goes_on",
    [
        "(APIServer pid=1) INFO 11-30 09:48:20 [a.py:1] all the same\n",
        "(APIServer pid=1) ERROR 11-30 09:48:20 [a.py:1] left out\n",
        UP + ANSWERED,
    ],
)
def test_a_server_that_goes_on_after_an_exception_is_not_over(goes_on: str) -> None:
    assert judged(BEGUN + uncaught("AttributeError: SomeTokenizer has no attribute words") + goes_on).fault == "none"


def test_an_exception_of_an_engine_at_the_end_does_not_tell_that_the_server_is_over() -> None:
    assert judged(BEGUN + ENGINE + uncaught("AttributeError: x", "EngineCore_DP0")).fault == "none"


def test_whoever_presses_ctrl_c_stops_it() -> None:
    log = BEGUN + ENGINE + uncaught("KeyboardInterrupt") + uncaught("KeyboardInterrupt", "EngineCore_DP0")
    assert (judged(log).fault, judged(log).action) == ("stopped", "stop")


def test_whoever_gives_up_on_a_server_that_hangs_has_seen_a_hang() -> None:
    wait = "(EngineCore_DP0 pid=92) INFO 11-30 09:49:41 [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds.\n"
    assert judged(BEGUN + ENGINE + wait * 2 + uncaught("KeyboardInterrupt")).fault == "hang"


# ---- what a shell says

LOADING = BEGUN + ENGINE + "Loading safetensors checkpoint shards:  41% Completed | 12/29 [00:41<00:58,  3.46s/it]\n"


@pytest.mark.parametrize("said", ['./run.sh: line 28:     7 Killed                  vllm serve "$MODEL"', "Killed"])
def test_a_shell_that_says_killed_is_no_reason_for_a_safer_kernel(said: str) -> None:
    assert (judged(f"{LOADING}{said}\n").fault, judged(f"{LOADING}{said}\n").action) == ("unknown", "retry-same")


@pytest.mark.parametrize(
    "said",
    ["Aborted                 (core dumped)", "Segmentation fault      ", "Illegal instruction     (core dumped)"],
)
def test_a_shell_pads_what_it_says_of_a_crash(said: str) -> None:
    verdict = judged(f'{LOADING}./run.sh: line 28:     7 {said} vllm serve "$MODEL"\n')
    assert (verdict.fault, verdict.action) == ("engine-signal", "retry-safer")


def test_what_a_shell_says_of_another_program_is_no_crash() -> None:
    assert judged(f"{LOADING}./run.sh: line 9:     7 Killed                  sleep 60\n").fault == "none"


@pytest.mark.parametrize("said", ["/opt/v/bin/python: No module named vllm", "sh: 1: vllm: not found"])
def test_where_there_is_no_vllm_that_is_said(said: str) -> None:
    verdict = judged(f"{said}\n", 1)
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("toolchain", "stop", 78)
    assert verdict.reason == f"there is no vLLM to start: {said}"
    assert len(verdict.advice) == 1 and "--vllm" in verdict.advice[0]


@pytest.mark.parametrize("said", ["No module named 'vllm._C'", "No module named vllm_plugin"])
def test_a_part_of_vllm_that_is_missing_is_not_all_of_it(said: str) -> None:
    assert "no vLLM to start" not in judged(BEGUN + uncaught(f"ModuleNotFoundError: {said}"), 1).reason


# ---- toolchains, transports, memory


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ('RuntimeError: Assertion error (csrc/apis/../../jit/compiler.hpp:178): false and "NVCC compilation failed"', "toolchain"),
        ("torch._inductor.exc.InductorError: RuntimeError: No valid triton configs. PTXASError: PTXAS error: Internal Triton PTX codegen error", "toolchain"),
        ("nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND", "nccl-init"),
        ("Exception: Could not receive runai_response from libstreamer due to: b'File access error'", "hub"),
        ("RuntimeError: shape '[7447, -1, 128]' is invalid for input of size 137191424", "bad-config"),
    ],
)  # fmt: skip
def test_no_safer_kernel_mends_what_is_not_a_kernels(said: str, fault: str) -> None:
    verdict = judged(BEGUN + ENGINE + FAILED + engine(said), 1)
    assert (verdict.fault, verdict.action) == (fault, "stop")


def test_an_exception_without_a_name_is_told() -> None:
    assert "Exception: it broke" in judged(BEGUN + ENGINE + FAILED + engine("Exception: it broke"), 1).reason


def test_a_choice_that_inductor_passes_over_means_nothing() -> None:
    said = "[rank0]:E0912 11:54:57.926154 44 torch/_inductor/select_algorithm.py:2100] [7/0] No valid triton configs. PTXASError: x\n"
    assert judged(BEGUN + ENGINE + said).fault == "none"


def test_a_plan_that_cudnn_refuses_is_the_librarys() -> None:
    died = engine("EngineCore encountered a fatal error.", "RuntimeError: Plan index 13 is invalid")
    assert judged(BEGUN + ENGINE + UP + ANSWERED + died, 1).action == "retry-safer"


def test_host_memory_that_cannot_be_pinned_is_no_kernels_fault() -> None:
    refused, frame = "RuntimeError: CUDA error: invalid argument", "    kv = torch.zeros(shape, pin_memory=True)"
    verdict = judged(BEGUN + ENGINE + FAILED + engine(HEAD, frame, refused), 1)
    assert (verdict.fault, verdict.action) == ("host-oom", "stop")
    assert judged(BEGUN + ENGINE + FAILED + engine(HEAD, refused), 1).action == "retry-safer"


def test_code_that_was_stored_and_cannot_be_used_is_not_the_configuration() -> None:
    frame = '  File "/opt/v/site-packages/vllm/compilation/compiler_interface.py", line 340, in compile'
    log = BEGUN + ENGINE + FAILED + engine(HEAD, frame, "AssertionError: failed to get the hash of the compiled graph")
    assert (judged(log, 1).fault, judged(log, 1).action) == ("unknown", "retry-safer")


def test_the_port_of_nccls_status_tool_is_not_the_servers() -> None:
    ras = "host-a:25:25 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use\n"
    begins = "(EngineCore_DP0 pid=92) INFO 11-30 09:48:40 [pynccl.py:70] vLLM is using nccl==2.26.2\n"
    assert judged(BEGUN + ENGINE + begins + ras).fault == "hang"
