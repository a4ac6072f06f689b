"""The scan finds what matters in any stream, and stays small."""

# ruff: noqa: E501 - lines of a log are as long as they are

from __future__ import annotations

import pytest

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.evidence import Evidence, Setup
from safe_vllm.verdict.lines import LONGEST_BYTES
from safe_vllm.verdict.scan import ANSWERED, Scan
from safe_vllm.verdict.signatures import parse

SIGNATURES = parse(read_data("signatures.yaml"))
FAULT = b"(Worker_TP1 pid=7) ERROR 07-19 08:20:16 [m.py:1007] torch.AcceleratorError: CUDA error: misaligned address"
POST = b'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
CALM = b"(APIServer pid=1) INFO 08-06 10:00:00 [loggers.py:259] Engine 000: all is well\n"
TOKENS = (
    b"(APIServer pid=1) INFO 08-06 10:00:00 [loggers.py:259] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
    b"Avg generation throughput: 5.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"
)


def told(evidence: tuple[Evidence, ...] | list[Evidence]) -> list[tuple[str, str]]:
    return [(e.signature, e.kind) for e in evidence]


def test_evidence_tells_its_place_its_writer_and_its_time() -> None:
    scan = Scan(SIGNATURES)
    scan.feed("stdout", CALM * 3, 1.0)
    (found,) = scan.feed("stderr", b"noise\n" + FAULT + b"\r\n", 2.5)
    assert found == Evidence(
        5, FAULT.decode(), "root", "cuda-misaligned-address", "misaligned-address", None, "Worker_TP1", "init", 2.5
    )
    assert scan.lines == 5


def test_a_line_that_has_not_ended_is_read_at_the_end() -> None:
    scan = Scan(SIGNATURES)
    assert scan.feed("stderr", FAULT, 1.0) == []
    assert told(scan.close(2.0)) == [("cuda-misaligned-address", "root")]
    assert scan.close(3.0) == []


def test_the_streams_do_not_mix_their_unfinished_lines() -> None:
    scan = Scan(SIGNATURES)
    scan.feed("stdout", FAULT[:60], 0.0)
    scan.feed("stderr", b"something else\n", 0.0)
    assert told(scan.feed("stdout", FAULT[60:] + b"\n", 0.0)) == [("cuda-misaligned-address", "root")]


def test_one_fault_in_a_flood_is_found_in_its_place() -> None:
    scan = Scan(SIGNATURES)
    flood = CALM * 20_000
    for _ in range(3):
        scan.feed("stdout", flood, 0.0)
    scan.feed("stdout", FAULT + b"\n" + flood, 0.0)
    assert [(e.number, e.signature) for e in scan.evidence] == [(60_001, "cuda-misaligned-address")]


def test_an_endless_line_is_read_as_far_as_its_limit() -> None:
    scan = Scan(SIGNATURES)
    for _ in range(40):
        scan.feed("stderr", FAULT + b"x" * LONGEST_BYTES, 0.0)
    assert told(scan.feed("stderr", b"\n" + FAULT + b"\n", 0.0)) == [("cuda-misaligned-address", "root")] * 2
    assert scan.lines == 2


def test_a_fault_beyond_the_limit_of_its_line_is_not_seen() -> None:
    scan = Scan(SIGNATURES)
    assert scan.feed("stderr", b"x" * LONGEST_BYTES + FAULT + b"\n", 0.0) == []


def test_repetition_does_not_make_the_evidence_grow() -> None:
    scan = Scan(SIGNATURES)
    for _ in range(50):
        scan.feed("stderr", (FAULT + b"\n") * 100, 0.0)
    assert len(scan.evidence) == 8


def test_recovered_faults_do_not_make_the_evidence_grow() -> None:
    scan = Scan(SIGNATURES)
    for _ in range(500):
        scan.feed("stderr", FAULT + b"\n" + POST, 0.0)
    assert len(scan.evidence) <= 64


def test_a_request_of_ours_that_is_answered_clears_a_line() -> None:
    scan = Scan(SIGNATURES)
    scan.ready()
    scan.feed("stderr", FAULT + b"\n", 1.0)
    scan.settled(2.0)
    assert [(e.signature, e.number, e.at_s) for e in scan.evidence] == [
        ("cuda-misaligned-address", 1, 1.0),
        (ANSWERED, 1, 2.0),
    ]


def test_an_answer_that_nothing_needed_leaves_no_trace() -> None:
    scan = Scan(SIGNATURES)
    scan.settled(2.0)
    assert scan.evidence == ()


def test_a_fault_after_an_answer_is_told_however_many_there_were_before() -> None:
    scan = Scan(SIGNATURES)
    for _ in range(3):
        told_now = [scan.feed("stderr", FAULT + b"\n", 1.0) for _ in range(20)]
        assert sum(map(len, told_now)) == 8
        scan.settled(2.0)


def test_a_request_answered_after_a_fault_is_told() -> None:
    scan = Scan(SIGNATURES)
    scan.ready()
    assert scan.feed("stdout", POST * 3, 0.0) == []
    assert told(scan.feed("stdout", FAULT + b"\n" + POST * 3, 0.0)) == [
        ("cuda-misaligned-address", "root"),
        (ANSWERED, "marker"),
    ]


def test_tokens_count_only_when_they_were_made_after_the_fault() -> None:
    scan = Scan(SIGNATURES)
    scan.ready()
    assert ANSWERED not in dict(told(scan.feed("stdout", TOKENS + FAULT + b"\n" + TOKENS, 0.0)))
    assert told(scan.feed("stdout", TOKENS, 0.0)) == [(ANSWERED, "marker")]


@pytest.mark.parametrize("answer", [b"400 Bad Request", b"500 Internal Server Error"])
def test_a_refused_request_proves_nothing(answer: bytes) -> None:
    scan = Scan(SIGNATURES)
    scan.ready()
    found = scan.feed("stdout", FAULT + b"\n" + POST.replace(b"200 OK", answer), 0.0)
    assert told(found) == [("cuda-misaligned-address", "root")]


def test_what_vllm_only_warns_about_is_no_root() -> None:
    scan = Scan(SIGNATURES)
    assert told(scan.feed("stderr", FAULT.replace(b"ERROR", b"WARNING") + b"\n", 0.0)) == [
        ("cuda-misaligned-address", "echo")
    ]


def test_a_line_that_repeats_a_fault_keeps_it_and_is_no_root() -> None:
    line = b"RuntimeError: Worker failed with error 'CUDA error: an illegal memory access was encountered\n"
    (found,) = Scan(SIGNATURES).feed("stderr", line, 0.0)
    assert (found.kind, found.fault) == ("echo", "illegal-memory-access")


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        ("INFO 04-08 13:01:10 [u.py:190] Using FLASHINFER_CUTLASS Unquantized MoE backend out of potential backends: []",
         "FLASHINFER_CUTLASS"),
        ("INFO 07-19 08:14:40 [n.py:291] Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN']", "MARLIN"),
        ("INFO 01-06 03:54:13 [fp8.py:168] Using FlashInfer CUTLASS backend for FP8 MoE", "FlashInfer CUTLASS"),
        ("INFO 11-30 09:55:56 [u.py:529] Using CPUUnquantizedExperts MoE backend", None),
        ("INFO 11-30 09:55:56 [x.py:1] Using FLASH_ATTN attention backend", None),
    ],
)  # fmt: skip
def test_the_moe_backend_is_read(line: str, backend: str | None) -> None:
    scan = Scan(SIGNATURES)
    scan.feed("stdout", f"(Worker_TP0 pid=1) {line}\n".encode(), 0.0)
    assert scan.backend == backend


@pytest.mark.parametrize(
    ("line", "setup"),
    [
        ("INFO 03-20 10:08:32 [cuda.py:317] Using FLASHINFER_MLA attention backend out of potential backends: ['A', 'B'].",
         Setup(attention_backend="FLASHINFER_MLA")),
        ("INFO 08-12 10:52:00 [cuda.py:237] Using Cutlass MLA backend on V1 engine.", Setup(attention_backend="Cutlass MLA")),
        ("INFO 08-12 10:52:00 [cuda.py:237] Using FlashInfer backend on V1 engine.", Setup(attention_backend="FlashInfer")),
        ("INFO 08-12 10:52:00 [cuda.py:446] Using AttentionBackendEnum.TRITON_ATTN backend.", Setup(attention_backend="TRITON_ATTN")),
        ("INFO 05-01 19:55:53 [mm.py:230] Using AttentionBackendEnum.FLASH_ATTN for MMEncoderAttention.", Setup()),
        ("INFO 08-12 10:52:00 [c.py:81] Using DeepEP Low-Latency all2all manager.", Setup(all2all_backend="DeepEP Low-Latency")),
        ("INFO 08-12 10:52:00 [c.py:81] Using AgRsAll2AllManager all2all manager.", Setup(all2all_backend="AgRsAll2AllManager")),
        ("INFO 10-09 16:54:04 [api_server.py:1839] vLLM API server version 0.11.0+582e4e37.nv25.11", Setup(vllm="0.11.0+582e4e37.nv25.11")),
        ("INFO 01-30 10:00:00 [core.py:103] Initializing a V1 LLM engine (v0.22.1rc1.dev255+g4dcd10eb0) with config: model='(v0.9)'",
         Setup(vllm="0.22.1rc1.dev255+g4dcd10eb0")),
        ("INFO 11-30 09:48:08 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0", Setup(vllm="0.32.0")),
        ("ERROR 04-27 03:22:19 [dump_input.py:72] Dumping input data for V1 LLM engine (v0.28.0) with config: model='/m'", Setup(vllm="0.28.0")),
        ("INFO 08-06 20:58:26 [k.py:227] Using FlashInfer autotune cache file: /root/.cache/vllm/flashinfer_autotune_cache/0.6.14/103a/8/a.json",
         Setup(flashinfer="0.6.14")),
        ("INFO 08-06 20:58:26 [k.py:227] Using FlashInfer autotune cache file: /data/8/a.json", Setup()),
        ("ninja: FAILED: /root/.cache/flashinfer/0.6.11.post2/90a/cached_ops/x.o", Setup(flashinfer="0.6.11.post2")),
        ("INFO 06-17 04:09:41 [fused_moe.py:886] Using configuration from /v/configs/E=64,N=320,device_name=NVIDIA_B200.json for MoE layer.",
         Setup(gpu="NVIDIA B200")),
        ("GPU 0: NVIDIA H100 80GB HBM3", Setup(gpu="NVIDIA H100 80GB HBM3")),
    ],
)  # fmt: skip
def test_what_is_in_use_is_read(line: str, setup: Setup) -> None:
    scan = Scan(SIGNATURES)
    scan.feed("stdout", f"(Worker_TP0 pid=1) {line}\n".encode(), 0.0)
    assert scan.setup == setup


def test_of_versions_the_first_counts_and_of_backends_the_last() -> None:
    scan = Scan(SIGNATURES)
    head = "(EngineCore pid=1) INFO 08-12 10:52:00 [x.py:1] "
    for version, backend in (("0.32.0", "FLASH_ATTN"), ("0.9.0", "TRITON_ATTN")):
        scan.feed("stdout", f"{head}vLLM API server version {version}\n".encode(), 0.0)
        scan.feed("stdout", f"{head}Using {backend} attention backend out of potential backends: []\n".encode(), 0.0)
    assert scan.setup == Setup(vllm="0.32.0", attention_backend="TRITON_ATTN")


@pytest.mark.parametrize(
    "carrier",
    [
        "INFO 08-12 10:52:00 [logger.py:40] Received request x: prompt: '{}'",
        "INFO 08-12 10:52:00 [utils.py:233] non-default args: {{'model': '{}'}}",
        "ERROR 08-12 10:52:00 [dump_input.py:79] Dumping scheduler output for model execution: '{}'",
        "vllm serve: error: unrecognized arguments: {}",
    ],
)
def test_what_somebody_else_says_tells_nothing_of_what_is_in_use(carrier: str) -> None:
    scan = Scan(SIGNATURES)
    words = "vLLM API server version 9.9 Using FLASH_ATTN attention backend out of x"
    scan.feed("stdout", f"{carrier.format(words)}\n".encode(), 0.0)
    assert scan.setup == Setup()


def test_a_crash_that_shares_its_line_with_a_progress_bar_is_seen() -> None:
    line = b"[AutoTuner]: Tuning x:   0%|  | 0/21 [00:00<?, ?profile/s]!!!!!!! Segfault encountered !!!!!!!\n"
    assert ("native-crash", "root") in told(Scan(SIGNATURES).feed("stderr", line, 0.0))


@pytest.mark.parametrize(
    ("line", "arms"),
    [
        ("torch.AcceleratorError: CUDA error: unspecified launch failure", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling x", True),
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 1, Hardware limit: 0.",
            False,
        ),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling x", False),
        ("RuntimeError: CUDA error: invalid configuration argument", False),
        ("PermissionError: [Errno 13] Permission denied: '/root/.cache'", False),
        ("urllib3.exceptions.MaxRetryError: Max retries exceeded with url: /x", False),
    ],
)
def test_only_lines_that_nothing_survives_arm(line: str, arms: bool) -> None:
    (found,) = Scan(SIGNATURES).feed("stderr", f"(Worker pid=9) {line}\n".encode(), 0.0)
    assert (found.kind, found.arms) == ("root", arms)
