"""Three failed attempts, told as a launch knows them: what reports are made of in tests."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from safe_vllm import known
from safe_vllm.attempt.tail import Tail
from safe_vllm.launch.autopsy import advised_anew
from safe_vllm.machine import recorded
from safe_vllm.machine.cores import CoreFile, Cores
from safe_vllm.machine.facts import Machine
from safe_vllm.machine.levels import GpuMemory, Level
from safe_vllm.plan.command import command
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Plan, Rung
from safe_vllm.preparing import prepare
from safe_vllm.record.incident import Earlier
from safe_vllm.record.incident_making import Following, Material
from safe_vllm.verdict.evidence import Observations, ProcessEnd, Setup, Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.scan import Scan

HERE = Path(__file__).parent / "golden"
GB200 = HERE / "machines/gb200-4-flashinfer-0.6.12.json"
H100 = HERE / "machines/h100-8.json"
BEGAN = 1_790_000_000.0
GIB = 1 << 30
SALT = b"the salt of a launch is random"[:16]
ENVIRONMENT = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "HF_TOKEN": "hf_" + "aB3dE5" * 6,
    "HF_HOME": "/data/hf",
    "VLLM_API_KEY": "sk-prod-0123456789abcdef",
    "VLLM_CACHE_ROOT": "/data/vllm",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
    "NCCL_DEBUG": "WARN",
    "SAFE_VLLM_NO_CACHE": "1",
}
CACHES = (
    ("FlashInfer's tuned tactics", "/data/vllm/flashinfer_autotune_cache"),
    ("the graphs that vLLM compiled", "/data/vllm/torch_compile_cache"),
    ("Triton's kernels", "/home/me/.triton/cache"),
)


def seen_of(log: Sequence[str], wanted: Observations) -> tuple[Observations, Scan, Tail]:
    """Return what is observed of this output, in addition to what is known besides."""
    scan, tail = Scan(known.signatures()), Tail()
    for line in log:
        chunk = line.encode() + b"\n"
        tail.feed("stderr", chunk)
        for found in scan.feed("stderr", chunk, 1.0):
            if found.kind == "root":
                tail.mark(found.number)
    seen = replace(wanted, evidence=tuple(scan.evidence), backend=scan.backend, setup=scan.setup)
    return (seen if seen.phase != "init" else replace(seen, phase=scan.phase)), scan, tail


def material(
    machine: Path,
    line: str,
    log: Sequence[str],
    wanted: Observations,
    *,
    rung: int = 0,
    seconds: float = 41.25,
    pins: frozenset[str] = frozenset(),
    first: str = "",
) -> Material:
    """Return what a launch knows of an attempt with this command and output, that is followed by the next rung."""
    prepared = prepare(Intent(tuple(shlex.split(line)), machine=str(machine), pins=pins))
    seen, _, tail = seen_of(log, wanted)
    rungs = prepared.plan.ladder.rungs
    at, below = rungs[rung], rungs[min(rung + 1, len(rungs) - 1)]
    ran = command(at, ("vllm",), ENVIRONMENT)
    verdict = advised_anew(judge(_told(seen, prepared.machine), known.advice()), at, ran, prepared)
    root = verdict.evidence[0].number if verdict.evidence else 0
    return Material(
        salt=SALT,
        launch="4242-19e0b1c2d3e",
        attempt=rung + 1,
        plan=prepared.plan,
        rung=at,
        command=ran,
        verdict=verdict,
        seen=seen,
        machine=prepared.machine,
        started_at=BEGAN,
        ended_at=BEGAN + seconds,
        following=Following(verdict.reason, below, command(below, ("vllm",), ENVIRONMENT), 2.31),
        history=_history(prepared.plan, rung, verdict, seconds, seen, first),
        around=tail.lines_around(root),
        tail=tail.last_lines(),
        caches=CACHES,
    )


def _told(seen: Observations, machine: Machine) -> Observations:
    installed, gpu = machine.installation, machine.gpus[0]
    found = Setup(installed.vllm, installed.flashinfer, gpu.name, gpu.compute_capability, machine.architecture)
    return replace(seen, setup=seen.setup.or_else(found))


def _history(
    plan: Plan, rung: int, verdict: Verdict, seconds: float, seen: Observations, first: str
) -> tuple[Earlier, ...]:
    rungs = [each.name for each in plan.ladder.rungs]
    before = [Earlier(at + 1, rungs[at], verdict.fault, "autotune", 3660.5, reason=first) for at in range(rung)]
    ready = seen.uptime_s if seen.was_ready else None
    return (*before, Earlier(rung + 1, rungs[rung], verdict.fault, verdict.phase, seconds, ready, verdict.reason))


def autotune_fault() -> Material:
    """Return an illegal memory access while kernels are tuned on four GB200."""
    worker = "(Worker_DP0_TP0_EP0 pid=15497)"
    log = [
        "(APIServer pid=14900) INFO 09-21 14:13:24 [utils.py:233] non-default args: {'model_tag': 'org/moe', "
        "'api_key': ['sk-prod-0123456789abcdef'], 'moe_backend': 'flashinfer_trtllm'}",
        *(f"{worker} INFO 09-21 14:13:{at + 25} [weights.py:45] Loading shard {at}" for at in range(30)),
        f"{worker} INFO 09-21 14:13:55 [unquantized.py:98] Using FlashInfer TRTLLM Unquantized MoE backend.",
        f"{worker} 2026-09-21 14:13:56,437 - INFO - autotuner.py:622 - flashinfer.jit: [Autotuner]: Autotuning process "
        "starts ...",
        f"{worker} 2026-09-21 14:13:57,306 - INFO - autotuner.py:2789 - flashinfer.jit: [Autotuner]: Loaded 44 configs "
        "from /data/vllm/flashinfer_autotune_cache/0.6.12/100a/3f0c/autotune_configs.json",
        f"{worker} [AutoTuner]: Tuning flashinfer::trtllm_bf16_moe:   0%|          | 0/21 [00:00<?, ?profile/s]",
        f"{worker} ERROR 09-21 14:13:59 [multiproc_executor.py:962] torch.AcceleratorError: CUDA error: an illegal "
        "memory access was encountered",
        f"{worker} ERROR 09-21 14:13:59 [multiproc_executor.py:962] Search for `cudaErrorIllegalAddress' in "
        "https://docs.nvidia.com/cuda/cuda-runtime-api/ for more information.",
        f'{worker} ERROR 09-21 14:13:59 [multiproc_executor.py:962]   File "/opt/venv/lib/python3.12/site-packages/'
        'flashinfer/fused_moe/core.py", line 1571, in trtllm_bf16_moe_op',
        "(APIServer pid=14900) RuntimeError: Engine core initialization failed. See root cause above. Failed core "
        "proc(s): {'EngineCore_DP0': 1}",
    ]
    line = "org/moe --moe-backend flashinfer_trtllm -dp 2 -ep --api-key sk-prod-0123456789abcdef"
    wanted = Observations(1, ended_at_s=41.2, uptime_s=41.2)
    found = material(GB200, line, log, wanted, pins=frozenset({"caches"}))
    gpus = [GpuMemory(f"GPU-{at}", at, 188_000, 189_471) for at in range(4)]
    return replace(
        found,
        gpus_before=gpus,
        gpus_after=[replace(gpus[0], free_mib=120_000), *gpus[1:]],
        levels=[[Level("memory", "memory", 800 * GIB, 900 * GIB)], [Level("memory", "memory", 799 * GIB, 900 * GIB)]],
        cores=Cores((), "core files are collected by systemd-coredump in /var/lib/systemd/coredump"),
    )


def segfault_in_service() -> Material:
    """Return a worker that was killed by SIGSEGV after 71 minutes of service, on eight H100."""
    log = [
        "(APIServer pid=77) INFO 09-21 14:13:24 [api_server.py:1] vLLM API server version 0.20.0",
        "(EngineCore pid=90) INFO 09-21 14:13:31 [cuda.py:300] Using FLASH_ATTN attention backend out of potential "
        "backends: ['FLASH_ATTN', 'FLASHINFER'].",
        "(APIServer pid=77) INFO:     Application startup complete.",
        *(
            f'(APIServer pid=77) INFO:     10.0.0.{at}:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
            for at in range(40)
        ),
        "(EngineCore pid=90) ERROR 09-21 15:25:02 [multiproc_executor.py:273] Worker proc VllmWorker-1 died "
        "unexpectedly (exit code: -11), shutting down executor.",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=92, name=VLLM::Worker_TP, Ch 00000008, MMU Fault",
        "(APIServer pid=77) ERROR 09-21 15:25:04 [async_llm.py:1] EngineDeadError: EngineCore encountered an issue. "
        "See stack trace (above) for the root cause.",
    ]
    ends = (ProcessEnd("VLLM::Worker_TP1", 92, -11, 4301.0), ProcessEnd("VLLM::EngineCore", 90, 1, 4304.0))
    wanted = Observations(
        0, ends=ends, phase="serving", was_ready=True, canary="answered", uptime_s=4260.5, ended_at_s=4305.9
    )
    found = material(H100, "org/dense -tp 2 --enable-prefix-caching", log, wanted, seconds=4305.9)
    files = (
        CoreFile("/srv/vllm/core.92", 59_055_800_320),
        CoreFile("/srv/vllm/core_1_host_92.nvcudmp", 3_145_728, "gpu"),
    )
    once_more = f"the same rung once more: {found.verdict.reason}"
    return replace(
        found,
        cores=Cores(files, "core files are written to /srv/vllm/core"),
        following=replace(found.following, rung=found.rung, command=found.command, decision=once_more),
    )


def hang_at_start() -> Material:
    """Return a start that made no progress while graphs were captured, at the last rung that a pin leaves."""
    log = [
        "(Worker_TP0 pid=210) INFO 09-21 14:14:41 [monitor.py:34] torch.compile takes 21.3 s in total",
        "(Worker_TP0 pid=210) Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/51 "
        "[00:00<?, ?it/s]",
    ]
    why = "no output and no data moved for {} s"
    wanted = Observations(None, ended_by_us=why.format(1800), ended_at_s=1890.0, uptime_s=1890.0)
    line = "org/moe -tp 2 --moe-backend flashinfer_trtllm"
    found = material(
        GB200, line, log, wanted, rung=1, seconds=1890.0, pins=frozenset({"moe-backend"}),
        first=f"{why.format(3600)} while kernels were being autotuned",
    )  # fmt: skip
    wait = (
        'Thread 211 (idle): "MainThread"\n    all_reduce (distributed_c10d.py:2810)\n    capture (cudagraph_utils.py:1)'
    )
    return replace(
        found,
        stacks=((210, "VLLM::Worker_TP0", wait.replace("211", "210")), (211, "VLLM::Worker_TP1", wait)),
        following=Following(f"no rung is left: {found.verdict.reason}", status=70),
    )


def stuck_in_the_kernel() -> Material:
    """Return a worker that survived SIGKILL after a fault while graphs were captured, at the second rung."""
    worker = "(Worker_TP0 pid=310)"
    log = [
        f"{worker} Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   4%|4         | 2/51 [00:01<00:24, "
        "2.0it/s]",
        f"{worker} ERROR 09-21 14:13:59 [multiproc_executor.py:962] torch.AcceleratorError: CUDA error: unspecified "
        "launch failure",
    ]
    wanted = Observations(1, ended_at_s=38.0, uptime_s=38.0)
    line, first = "org/moe -tp 2 --moe-backend flashinfer_trtllm", "no output and no data moved for 3600 s"
    found = material(GB200, line, log, wanted, rung=1, seconds=72.5, first=first)
    left = "VLLM::Worker_TP0 (310)"
    decision = f"SIGKILL did not end what is stuck in the kernel: {left}; restart the machine"
    return replace(found, following=Following(decision, status=71))


CASES = {
    "illegal-memory-access-in-autotune": autotune_fault,
    "sigsegv-in-service": segfault_in_service,
    "hang-at-start": hang_at_start,
    "stuck-in-the-kernel": stuck_in_the_kernel,
}


def tiny(rung: Rung | None = None) -> Material:
    """Return the smallest report that there can be: nothing is known of machine and output."""
    only = rung or Rung("as-asked", ("m",))
    machine = recorded.read(str(HERE / "machines/cpu-x86.json"))
    found = segfault_in_service()
    return Material(
        SALT, "1-1", 1, found.plan, only, command(only, ("vllm",), {}), found.verdict, Observations(1), machine,
        BEGAN, BEGAN, Following("none"),
    )  # fmt: skip
