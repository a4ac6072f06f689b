"""Lets a worker of a real vLLM die in a chosen way, at a chosen place, while a chosen setting is on or a file is there.

Put this directory on ``PYTHONPATH`` and describe the fault in ``SAFE_VLLM_FAULT``, a JSON object with the keys of
``Fault``, for example ``{"at": "startup", "how": "segv", "when": "autotune"}``.
vLLM loads the plugin in every process; it acts in worker processes only, where it wraps the CPU worker's methods.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

PLACES = {"load": "load_model", "startup": "compile_or_warm_up_model", "inference": "execute_model"}
SIGNALS = {"segv": signal.SIGSEGV, "kill": signal.SIGKILL}

# What torch's CUDA build says (c10/cuda/CUDAException.cpp), line by line.
ILLEGAL_ACCESS = """\
CUDA error: an illegal memory access was encountered
Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""  # noqa: E501

# What torch says when an allocation fails (c10/cuda/CUDACachingAllocator.cpp).
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 178.35 GiB of which 1.21 GiB is free."
)

# What FlashInfer writes when its tuning begins: one log line, then a progress bar that ends in no newline.
TUNING_BEGINS = """\
{time},000 - INFO - autotuner.py:622 - flashinfer.jit: [Autotuner]: Autotuning process starts ...
\r[AutoTuner]: Tuning flashinfer::trtllm_bf16_moe:   0%|          | 0/21 [00:00<?, ?profile/s]"""

# What FlashInfer writes when it has read what it tuned at an earlier start.
TACTICS_LOADED = "{time},000 - INFO - autotuner.py:2789 - flashinfer.jit: [Autotuner]: Loaded 44 configs from {path}\n"
POISON = "poison"
"""The name of the file in a cache that makes it one which every start fails with."""


@dataclass(frozen=True)
class Fault:
    """One fault to inject."""

    at: str
    """``load``, ``startup`` (where kernels are tuned and graphs captured) or ``inference``."""
    how: str
    """``exception``, ``out-of-memory``, ``segv``, ``abort``, ``kill`` or ``hang``."""
    when: str = "always"
    """``always``, or only while a setting is on: ``autotune`` or ``expert-parallel``; or only while a cache that vLLM
    uses is poisoned: ``tactics``, of which it is said that they are loaded, or ``graphs``, of which nothing is said."""
    after: int = 0
    """So many calls are let through first."""
    once_file: str | None = None
    """The fault happens only while this file does not exist; it is made when it happens."""
    rank: int = 0
    """The worker it happens in."""


def applies(fault: Fault, worker: Any) -> bool:
    """Say whether the worker runs with the setting, or the cache, that the fault is bound to."""
    if worker.rank != fault.rank:
        return False
    if fault.when in CACHES:
        return (CACHES[fault.when]() / POISON).exists()
    config = worker.vllm_config
    if fault.when == "autotune":
        return config.kernel_config.enable_flashinfer_autotune is not False
    if fault.when == "expert-parallel":
        return bool(config.parallel_config.enable_expert_parallel)
    return True


def tactics() -> Path:
    """Return where this vLLM would keep what FlashInfer's autotuner chose."""
    from vllm import envs

    chosen = envs.VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR
    return Path(chosen) if chosen else Path(envs.VLLM_CACHE_ROOT) / "flashinfer_autotune_cache"


def graphs() -> Path:
    """Return where this vLLM would keep what it compiled."""
    from vllm import envs

    return Path(envs.VLLM_CACHE_ROOT) / "torch_compile_cache"


CACHES = {"tactics": tactics, "graphs": graphs}


def is_first_time(fault: Fault) -> bool:
    """Claim the fault: true always without a file, else for the one who makes the file."""
    if fault.once_file is None:
        return True
    try:
        os.close(os.open(fault.once_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def raise_illegal_access() -> NoReturn:
    """Raise what torch raises when a kernel has touched memory that is not its own."""
    import torch

    raise torch.AcceleratorError(ILLEGAL_ACCESS)


def raise_out_of_memory() -> NoReturn:
    """Raise what torch raises when the GPU is full."""
    import torch

    raise torch.OutOfMemoryError(OUT_OF_MEMORY)


def strike(fault: Fault) -> None:
    """Let the fault happen."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    if fault.when == "autotune":
        sys.stderr.write(TUNING_BEGINS.format(time=now))
    if fault.when == "tactics":
        sys.stderr.write(TACTICS_LOADED.format(time=now, path=tactics() / POISON))
    sys.stderr.flush()
    sys.stdout.flush()
    if fault.how == "exception":
        raise_illegal_access()
    if fault.how == "out-of-memory":
        raise_out_of_memory()
    if fault.how == "abort":
        os.abort()
    if fault.how in SIGNALS:
        os.kill(os.getpid(), SIGNALS[fault.how])
    while True:
        signal.pause()


def wrapped(original: Callable[..., Any], fault: Fault) -> Callable[..., Any]:
    """Return the method with the fault in front of it."""
    calls = 0

    @wraps(original)
    def method(worker: Any, *words: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > fault.after and applies(fault, worker) and is_first_time(fault):
            strike(fault)
        return original(worker, *words, **options)

    return method


def register() -> None:
    """Arm the fault, in a worker process; called by vLLM."""
    description = os.environ.get("SAFE_VLLM_FAULT")
    if not description or not multiprocessing.current_process().name.startswith("VllmWorker"):
        return
    from vllm.v1.worker.cpu_worker import CPUWorker

    fault = Fault(**json.loads(description))
    name = PLACES[fault.at]
    setattr(CPUWorker, name, wrapped(getattr(CPUWorker, name), fault))
