"""What people who met the same fault changed."""

from __future__ import annotations

_BY_FAULT: dict[str, tuple[str, ...]] = {
    "gpu-oom": (
        "lower --gpu-memory-utilization, --max-num-seqs or --max-num-batched-tokens",
        "check with nvidia-smi that no other process holds the GPU",
    ),
    "kv-cache": ("lower --max-model-len, or raise --gpu-memory-utilization",),
    "host-oom": ("give the host or the container more memory, or load fewer shards at a time",),
    "shm": ("enlarge /dev/shm: docker run --shm-size=16g or --ipc=host; in Kubernetes an emptyDir of medium Memory",),
    "backend-refused": ("leave the backend on auto, or name one that this GPU and weight format can take",),
    "port-in-use": ("stop the process that holds the port, or choose another with --port",),
    "hub": ("check the network and HF_TOKEN; with the files on this machine, HF_HUB_OFFLINE=1 avoids the call",),
    "permission": ("check HF_TOKEN and the licence of a gated model, and who may read the files",),
    "disk-full": ("free space where HF_HOME and VLLM_CACHE_ROOT lie, or point these to another disk",),
    "no-gpu": ("check that the container was started with GPUs (--gpus all) and that nvidia-smi lists them",),
    "driver": ("upgrade the NVIDIA driver, or install the vLLM build for the driver's CUDA version",),
    "toolchain": ("install the CUDA toolkit and compiler that the message names, or flashinfer-jit-cache",),
    "board": ("take the node out of service, and run dcgmi diag; a reset or another board is what helped others",),
    "nccl-init": ("run once with NCCL_DEBUG=INFO; NCCL_P2P_DISABLE=1 helped others where peer access is broken",),
    "collective-timeout": ("NCCL_P2P_DISABLE=1 helped others where peer access between GPUs is broken",),
    "gpu-coredump": ("keep the core file: cuda-gdb names the kernel",),
}
_BY_SUSPECT: dict[str, tuple[str, ...]] = {
    "all-reduce": ("--disable-custom-all-reduce helped others",),
    "all-to-all": ("--all2all-backend allgather_reducescatter avoids these kernels",),
    "speculation": ("--no-async-scheduling, or another drafter, helped others",),
    "autotune": (
        "--no-enable-flashinfer-autotune avoids the tuner (vLLM 0.16 and later)",
        "vLLM 0.27 brings FlashInfer 0.6.16, with which tuning bf16 TRT-LLM MoE kernels was not seen to crash again "
        "(https://github.com/vllm-project/vllm/issues/46861, https://github.com/vllm-project/vllm/issues/46083)",
        "FlashInfer 0.6.5 crashes while tuning any TRT-LLM MoE kernel: use another release "
        "(https://github.com/flashinfer-ai/flashinfer/issues/2701)",
    ),
    "moe": (
        "--moe-backend triton served where flashinfer_trtllm crashed "
        "(https://github.com/vllm-project/vllm/issues/46861)",
    ),
}


def advice_for(fault: str, suspect: str | None) -> tuple[str, ...]:
    """Return what an expert would try for ``fault``, where ``suspect`` did it."""
    return _BY_SUSPECT.get(suspect or "", ()) + _BY_FAULT.get(fault, ())
