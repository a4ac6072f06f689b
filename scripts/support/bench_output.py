"""What a served vLLM prints: ordinary output, and floods of one kind of line."""

from __future__ import annotations

from pathlib import Path

LAST_LINE = b"this is the last line of the bench\n"
LINES = (
    '(APIServer pid=4711) INFO:     10.0.0.{n}:53{n:03} - "POST /v1/completions HTTP/1.1" 200 OK',
    "(APIServer pid=4711) INFO 11-30 08:40:{s:02} [loggers.py:271] Engine 000: Avg prompt throughput: {n}.4 tokens/s, "
    "Avg generation throughput: {n}.1 tokens/s, Running: {s} reqs, Waiting: 0 reqs, GPU KV cache usage: {s}.1%",
    "(EngineCore_DP0 pid=4712) INFO 11-30 08:40:{s:02} [kv_cache_utils.py:1316] GPU KV cache size: {n}1,008 tokens",
    "(Worker_TP0 pid=4713) WARNING 11-30 08:40:{s:02} [fused_moe.py:1090] Using default MoE config. Performance might "
    "be sub-optimal! Config file not found at E=128,N={n},device_name=NVIDIA_B200.json",
)
FLOODS = {
    "empty lines": "\n",
    "one fault, again and again": "(Worker_TP1 pid=7) ERROR 11-30 08:40:{s:02} [m.py:1007] torch.AcceleratorError: "
    "CUDA error: misaligned address\n",
    "a bare exception with a figure": "ValueError: request {at} is no good\n",
    "graph capture, redrawn": "\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):  {n:2}%|████      | {n}/251 "
    "[00:{s:02}<00:02, 13.1it/s]",
    "autotuner, redrawn": "\r[AutoTuner]: Tuning fp4_gemm:  {n:2}%|████      | {n}/251 [00:{s:02}<00:02, 3.{n}it/s]",
    "warnings": "(Worker_TP0 pid=7) WARNING 11-30 08:40:{s:02} [x.py:1] sampling is slow at step {at}, and says so\n",
    "frames of a traceback": '  File "/usr/lib/python3.12/dist-packages/vllm/v1/gpu_worker.py", line {n}, in forward\n'
    "    return self.model(**kwargs)\n",
}


def sample(path: Path, megabytes: int) -> int:
    """Write ordinary vLLM output and return its size in bytes."""
    # Mostly access lines, statistics every so often, and a warning now and then.
    kinds = [LINES[0 if at % 20 else 1 + (at // 20) % (3 if at % 1000 == 0 else 2)] for at in range(8000)]
    return _written(path, megabytes, "".join(_filled(kind, at) + "\n" for at, kind in enumerate(kinds)))


def flood(path: Path, megabytes: int, kind: str) -> int:
    """Write nothing but lines of one kind and return their size in bytes."""
    return _written(path, megabytes, "".join(_filled(kind, at) for at in range(20_000)))


def _filled(kind: str, at: int) -> str:
    return kind.format(n=at % 251, s=at % 60, at=at)


def _written(path: Path, megabytes: int, text: str) -> int:
    """Write a text over and over, and the last line."""
    block = text.encode()
    with path.open("wb") as file:
        for _ in range(megabytes * 1_000_000 // len(block) + 1):
            file.write(block)
        file.write(b"\n" + LAST_LINE)
    return path.stat().st_size
