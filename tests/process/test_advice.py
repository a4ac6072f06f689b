"""What to do about a fault: the lines of ``serve``, the report and ``diagnose`` say the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from launch import SAFE_VLLM, Launch, Stage
from scenes import fail, serve_ok

from waiting import free_port

LOG = (
    "(APIServer pid=77) INFO 09-21 14:13:24 [api_server.py:1] vLLM API server version 0.32.0",
    "(APIServer pid=77) INFO 09-21 14:13:24 [utils.py:233] non-default args: {'model_tag': 'tiny', "
    "'host': '127.0.0.1', 'port': %d, 'moe_backend': 'triton'}",
    "(Worker pid=91) INFO 09-21 14:13:55 [unquantized.py:98] Using FLASHINFER_TRTLLM Unquantized MoE backend out of "
    "potential backends: ['FLASHINFER_TRTLLM'].",
    "(Worker pid=91) 2026-09-21 14:13:56,437 - INFO - autotuner.py:622 - flashinfer.jit: [Autotuner]: Autotuning "
    "process starts ...",
    "(Worker pid=91) ERROR 09-21 14:13:59 [multiproc_executor.py:962] torch.AcceleratorError: CUDA error: an illegal "
    "memory access was encountered",
    "(APIServer pid=77) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
    "{'EngineCore_DP0': 1}",
)
IN_EFFECT = "--moe-backend triton served"
NOT_IN_EFFECT = "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS=flashinfer::trtllm_bf16_moe leaves"
HELPS = "  what may help: "
TRIED = " (attempt 2 tries it)"


def said_by_serve(run: Launch) -> list[str]:
    """Return the advice below the first line about the end of the attempt."""
    lines = [line.removeprefix("safe-vllm: ") for line in run.ours().splitlines()]
    start = next(at for at, line in enumerate(lines) if line.startswith("attempt 1 at as-asked ended"))
    end = next(at for at, line in enumerate(lines) if line.startswith("attempt 2 starts"))
    return [line.removeprefix(HELPS) for line in lines[start:end] if line.startswith(HELPS)]


def said_by_diagnose(log: str, place: Path) -> list[str]:
    place.write_text(log)
    done = subprocess.run([SAFE_VLLM, "--output", "json", "diagnose", place], capture_output=True, timeout=60)
    return list(json.loads(done.stdout)["advice"])


def test_p20_advice_is_the_same_wherever_it_is_given_and_none_is_in_effect_already(stage: Stage) -> None:
    port = free_port()
    log = [line.replace("%d", str(port)) for line in LOG]
    words = ["tiny", "--host", "127.0.0.1", "--port", str(port), "--moe-backend", "triton"]
    run = stage.start(fail(*log), serve_ok(), words=words)
    run.wait_until_ready("no-autotune")
    report = json.loads(Path(run.wait_for_event("incident")["path"], "incident.json").read_text())
    assert run.stop() == 0
    in_report = [text.removesuffix(TRIED) for text in report["death"]["advice"]]
    assert said_by_serve(run) == in_report
    assert said_by_diagnose("\n".join(log) + "\n", stage.root / "vllm.log") == in_report
    assert any(text.startswith(NOT_IN_EFFECT) for text in in_report)
    assert not any(text.startswith(IN_EFFECT) for text in in_report)
