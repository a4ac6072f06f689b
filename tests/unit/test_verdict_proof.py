"""When the suspect is known, and which cache may have done it: read from whole logs."""

# ruff: noqa: E501 - lines of a log are as long as they are

from __future__ import annotations

import pytest

from replaying import observe_log
from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.evidence import Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.signatures import parse

SIGNATURES = parse(read_data("signatures.yaml"))
WORKER = "(Worker_TP0 pid=7) "
IMA = f"{WORKER}ERROR 06-11 17:03:35 [multiproc_executor.py:987] torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
DUMP = "[21:42:21.090917] coredump: Detected an exception of type CUDBG_EXCEPTION_WARP_ILLEGAL_ADDRESS (14)"
KERNEL = "[21:42:21.373222] coredump:   #0\t0x73ceeaed6d49\t"
CRASH = "!!!!!!! Segfault encountered !!!!!!!"
NATIVE = '  File "<unknown>", line 0, in '
MOE_FRAME = f"{NATIVE}trtllm_bf16_moe(tvm::ffi::TensorView)"
FILE = "/root/.cache/vllm/flashinfer_autotune_cache/0.6.18/100a/3f0c/autotune_configs.json"
USING = f"{WORKER}INFO 09-17 02:14:40 [kernel_warmup.py:188] Using FlashInfer autotune cache file: {FILE}"
LOADED = (
    f"{WORKER}2026-09-17 02:14:41,306 - INFO - autotuner.py:2789 - flashinfer.jit: [Autotuner]: "
    f"Loaded 44 configs from {FILE}"
)
TUNING = "[AutoTuner]: Tuning flashinfer::trtllm_bf16_moe:   0%|          | 0/21 [00:00<?, ?profile/s]"
GRAPH = "/root/.cache/vllm/torch_compile_cache/ea2d23402a"
FRAME = f'{WORKER}ERROR 06-11 17:03:35 [multiproc_executor.py:987]   File "%s", line 370, in call'
GRAPH_FRAME = FRAME % f"{GRAPH}/rank_0_0/inductor_cache/bx/cbxns.py"


def judged(*lines: str, status: int | None = 1) -> Verdict:
    return judge(observe_log("\n".join([*lines, ""]).encode(), status, SIGNATURES))


@pytest.mark.parametrize(
    ("lines", "fault", "suspect", "is_known"),
    [
        pytest.param([DUMP, f"{KERNEL}bmm_Bfloat16_sm100f"], "gpu-coredump", "moe", True, id="a core dump"),
        pytest.param(
            [DUMP, f"{KERNEL}_ZN7cutlass13device_kernelIN5flash16FlashAttnFwdSm90"],
            "gpu-coredump",
            "attention",
            True,
            id="attention that CUTLASS made",
        ),
        pytest.param(
            [DUMP, f"{KERNEL}_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS1_17GroupProblemShape"],
            "gpu-coredump",
            "moe",
            True,
            id="experts that CUTLASS multiplies",
        ),
        pytest.param(
            [DUMP, f"{KERNEL}_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalE"],
            "gpu-coredump",
            "gemm",
            True,
            id="one matrix",
        ),
        pytest.param(
            [DUMP, f"{KERNEL}_ZN9deep_gemm25sm100_bf16_gemm_impl"], "gpu-coredump", "gemm", False, id="DeepGEMM: either"
        ),
        pytest.param([DUMP, f"{KERNEL}_Z9my_kernelv"], "gpu-coredump", "unknown", False, id="an unknown kernel"),
        pytest.param(
            [
                "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'an illegal memory access was encountered'",
                DUMP,
                f"{KERNEL}bmm_Bfloat16_sm100f",
            ],
            "illegal-memory-access",
            "moe",
            True,
            id="the kernel, not who noticed",
        ),
        pytest.param(
            ["Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'an illegal memory access was encountered'"],
            "illegal-memory-access",
            "all-reduce",
            False,
            id="who noticed is a hint",
        ),
        pytest.param(
            [
                "2026-10-01 10:00:00,000 - ERROR - autotuner.py:3770 - flashinfer.jit: [Autotuner]: the CUDA context is "
                "unusable (unspecified), detected when MoERunner tactic 3 failed while tuning flashinfer::trtllm_bf16_moe"
            ],
            "illegal-memory-access",
            "autotune",
            True,
            id="the tuner names the operator",
        ),
        pytest.param([TUNING, IMA], "illegal-memory-access", "autotune", False, id="the phase alone"),
        pytest.param(
            [f'{WORKER}  File "/v/vllm/model_executor/layers/fused_moe/layer.py", line 9, in forward', IMA],
            "illegal-memory-access",
            "unknown",
            False,
            id="a Python traceback",
        ),
        pytest.param([CRASH, MOE_FRAME], "engine-signal", "moe", True, id="the frames of a crash"),
        pytest.param(
            [CRASH, f"{NATIVE}trtllm_paged_attention_decode()", MOE_FRAME],
            "engine-signal",
            "attention",
            True,
            id="the innermost frame",
        ),
        pytest.param([IMA, MOE_FRAME], "illegal-memory-access", "unknown", False, id="native frames of a GPU fault"),
        pytest.param([CRASH, f"{NATIVE}PyObject_IsTrue"], "engine-signal", "unknown", False, id="other frames"),
    ],
)
def test_a_suspect_is_known_where_a_kernel_or_operator_is_named(
    lines: list[str], fault: str, suspect: str, is_known: bool
) -> None:
    verdict = judged(*lines)
    assert (verdict.fault, verdict.suspect, verdict.is_suspect_known) == (fault, suspect, is_known)


@pytest.mark.parametrize(
    ("lines", "cache"),
    [
        pytest.param([USING, LOADED, IMA], FILE, id="tactics that were loaded"),
        pytest.param([LOADED, TUNING, IMA], FILE, id="also where another rank tunes"),
        pytest.param([USING, IMA], FILE, id="a file that was named, and nothing tuned"),
        pytest.param([USING, TUNING, IMA], None, id="tactics that were just found"),
        pytest.param([USING, TUNING, LOADED, IMA], None, id="and then read by the other ranks"),
        pytest.param([IMA, USING, LOADED], None, id="what came after the fault"),
        pytest.param([LOADED.replace("44", "0"), IMA], None, id="an empty file"),
        pytest.param([GRAPH_FRAME, IMA], GRAPH, id="compiled code in the stack"),
        pytest.param([GRAPH_FRAME, LOADED, IMA], FILE, id="tactics come first"),
        pytest.param([FRAME % "/tmp/torchinductor_root/gd/c.py", IMA], "/tmp/torchinductor_root", id="Inductor"),
        pytest.param([FRAME % "/root/.triton/cache/ABC/k.py", IMA], "/root/.triton/cache/ABC", id="Triton"),
        pytest.param(
            [CRASH, f"{WORKER}frame #5: <unknown function> + 0x12 (0x7f1 in /root/.triton/cache/ABC/launcher.so)"],
            None,
            id="another process",
        ),
        pytest.param(
            [CRASH, "frame #5: <unknown function> + 0x12 (0x7f1 in /root/.triton/cache/ABC/launcher.so)"],
            "/root/.triton/cache/ABC",
            id="a native frame",
        ),
        pytest.param([GRAPH_FRAME, *["x"] * 80, IMA], None, id="a stack far away"),
        pytest.param(
            [f"{WORKER}INFO 05-01 10:00:00 [backends.py:559] Using cache directory: {GRAPH}/rank_0_0 for x", IMA],
            None,
            id="a directory that is merely in use",
        ),
        pytest.param([LOADED, "vllm serve: error: unrecognized arguments: --x"], None, id="a mistake"),
    ],
)
def test_the_cache_that_may_have_done_it_is_named(lines: list[str], cache: str | None) -> None:
    assert judged(*lines).cache == cache


TENSORS = f"{WORKER}ERROR 06-11 17:03:35 [multiproc_executor.py:987] AssertionError: Expected tensors only"
STORED = FRAME % "/usr/lib/python3/vllm/compilation/caching.py"
DIRECTORY = f"{WORKER}INFO 05-01 10:00:00 [backends.py:559] Using cache directory: {GRAPH}/rank_0_0 for torch.compile"


def test_an_exception_out_of_compiled_code_is_no_matter_of_configuration() -> None:
    assert judged(TENSORS).fault == "bad-config"
    for frame in (GRAPH_FRAME, STORED):
        assert (judged(frame, TENSORS).fault, judged(frame, TENSORS).action) == ("unknown", "retry-safer")


@pytest.mark.parametrize(
    ("lines", "cache"),
    [
        pytest.param([GRAPH_FRAME, TENSORS], GRAPH, id="a frame of it"),
        pytest.param([DIRECTORY, STORED, TENSORS], f"{GRAPH}/rank_0_0", id="a frame of what loads it"),
        pytest.param([STORED, TENSORS], None, id="whose directory nothing tells"),
        pytest.param([DIRECTORY, TENSORS], None, id="no frame"),
        pytest.param(
            [DIRECTORY, TENSORS.replace("AssertionError", "RuntimeError")], None, id="nor of another exception"
        ),
        pytest.param([DIRECTORY, STORED, IMA], None, id="a fault of the GPU has such frames anyway"),
    ],
)
def test_an_exception_out_of_compiled_code_names_the_cache(lines: list[str], cache: str | None) -> None:
    assert judged(*lines).cache == cache


def test_the_name_of_a_cache_is_no_fault() -> None:
    assert judged(DIRECTORY.replace("ea2d23402a", "coredump: Segfault encountered"), status=None).fault == "none"


def test_a_crash_that_only_the_exit_status_tells_of_may_be_the_caches_too() -> None:
    assert judged(USING, LOADED, status=-11).cache == FILE
    assert judged(GRAPH_FRAME, status=-11).cache == GRAPH
