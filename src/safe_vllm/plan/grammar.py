"""The flags of ``vllm serve`` that a plan reads or changes, as data.

Names, short forms and defaults are those of vLLM's ``EngineArgs`` and of its front end:
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/engine/arg_utils.py
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/entrypoints/launchers/cli_args.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["value", "values", "switch"]
"""Takes one value; takes one or more; takes none and (mostly) has a ``--no-`` twin."""


@dataclass(frozen=True)
class Flag:
    """One flag and every way to spell it."""

    name: str
    """The long form, with dashes."""
    shortest: str
    """The shortest beginning that argparse takes for this flag and no other."""
    kind: Kind = "value"
    short: str | None = None
    default: str | bool | None = None
    has_negative: bool = True
    """For switches: whether ``--no-…`` exists."""

    @property
    def negative(self) -> str:
        """Return the form that switches it off."""
        return f"--no-{self.name[2:]}"


MOE_BACKEND = "--moe-backend"
AUTOTUNE = "--enable-flashinfer-autotune"
KERNEL_CONFIG = "--kernel-config"
COMPILATION_CONFIG = "--compilation-config"
EXPERT_PARALLEL = "--enable-expert-parallel"
EXPERT_BALANCING = "--enable-eplb"
ELASTIC_EXPERTS = "--enable-elastic-ep"
TENSOR_PARALLEL = "--tensor-parallel-size"
DATA_PARALLEL = "--data-parallel-size"
PREFILL_CONTEXT_PARALLEL = "--prefill-context-parallel-size"
EXECUTOR = "--distributed-executor-backend"
DATA_PARALLEL_BACKEND = "--data-parallel-backend"
DATA_PARALLEL_LOCAL = "--data-parallel-size-local"
DATA_PARALLEL_START_RANK = "--data-parallel-start-rank"
DATA_PARALLEL_RANK = "--data-parallel-rank"
HYBRID_BALANCER = "--data-parallel-hybrid-lb"
EXTERNAL_BALANCER = "--data-parallel-external-lb"
PORTS_BALANCER = "--data-parallel-multi-port-external-lb"
NODES = "--nnodes"
NODE_RANK = "--node-rank"
OPTIMIZATION = "--optimization-level"
HEADLESS = "--headless"
API_SERVERS = "--api-server-count"
GRPC = "--grpc"
SPECULATIVE_CONFIG = "--speculative-config"
SPECULATIVE_METHOD = "--spec-method"
PIPELINE_PARALLEL = "--pipeline-parallel-size"
DECODE_CONTEXT_PARALLEL = "--decode-context-parallel-size"
ALL2ALL = "--all2all-backend"
DUAL_BATCHES = "--enable-dbo"
BATCHED_TOKENS = "--max-num-batched-tokens"
SEQUENCES = "--max-num-seqs"
MODEL_LENGTH = "--max-model-len"
CHUNKED_PREFILL = "--enable-chunked-prefill"
LORA = "--enable-lora"
QUANTIZATION = "--quantization"

FLAGS = {
    flag.name: flag
    for flag in (
        Flag(MOE_BACKEND, "--moe", default="auto"),
        Flag(AUTOTUNE, "--enable-flashi", "switch"),
        Flag(KERNEL_CONFIG, "--ke"),
        Flag(COMPILATION_CONFIG, "--com", short="-cc"),
        Flag(OPTIMIZATION, "--op", default="2"),
        Flag(EXPERT_PARALLEL, "--enable-ex", "switch", short="-ep", default=False),
        Flag(EXPERT_BALANCING, "--enable-epl", "switch", default=False),
        Flag(ELASTIC_EXPERTS, "--enable-el", "switch", default=False),
        Flag(TENSOR_PARALLEL, "--te", short="-tp", default="1"),
        Flag(DATA_PARALLEL, DATA_PARALLEL, short="-dp", default="1"),
        Flag(PREFILL_CONTEXT_PARALLEL, "--prefill-c", short="-pcp", default="1"),
        Flag(PIPELINE_PARALLEL, "--pi", short="-pp", default="1"),
        Flag(DECODE_CONTEXT_PARALLEL, "--dec", short="-dcp", default="1"),
        Flag(ALL2ALL, "--all2"),
        Flag(DUAL_BATCHES, "--enable-d", "switch", default=False),
        Flag(SPECULATIVE_CONFIG, "--specu", short="-sc"),
        Flag(SPECULATIVE_METHOD, "--spec-me"),
        Flag(BATCHED_TOKENS, "--max-num-b"),
        Flag(SEQUENCES, "--max-num-se"),
        Flag(MODEL_LENGTH, "--max-m"),
        Flag(CHUNKED_PREFILL, "--enable-ch", "switch"),
        Flag(LORA, "--enable-lor", "switch", default=False),
        Flag(QUANTIZATION, QUANTIZATION, short="-q"),
        Flag(DATA_PARALLEL_LOCAL, "--data-parallel-size-", short="-dpl"),
        Flag(DATA_PARALLEL_RANK, "--data-parallel-ra", short="-dpn"),
        Flag(DATA_PARALLEL_START_RANK, "--data-parallel-st", short="-dpr"),
        Flag(DATA_PARALLEL_BACKEND, "--data-parallel-b", short="-dpb", default="mp"),
        Flag(HYBRID_BALANCER, "--data-parallel-h", "switch", short="-dph", default=False),
        Flag(EXTERNAL_BALANCER, "--data-parallel-e", "switch", short="-dpe", default=False),
        Flag(PORTS_BALANCER, "--data-parallel-m", "switch", short="-dpm", default=False, has_negative=False),
        Flag(NODES, "--nn", short="-n", default="1"),
        Flag(NODE_RANK, "--nod", short="-r", default="0"),
        Flag(EXECUTOR, "--distributed-e"),
        Flag(HEADLESS, "--hea", "switch", default=False, has_negative=False),
        Flag(API_SERVERS, "--api-s", short="-asc"),
        Flag(GRPC, GRPC, "switch", default=False, has_negative=False),
        Flag("--host", "--ho"),
        Flag("--port", "--por", default="8000"),
        Flag("--uds", "--ud"),
        Flag("--api-key", "--api-k", "values"),
        Flag("--ssl-keyfile", "--ssl-k"),
        Flag("--ssl-certfile", "--ssl-certf"),
        Flag("--ssl-cert-reqs", "--ssl-cert-"),
        Flag("--root-path", "--roo"),
        Flag("--shutdown-timeout", "--shu", default="0"),
        Flag("--model", "--model"),
        Flag("--config", "--config"),
    )
}

SAFETY_FLAGS = (
    MOE_BACKEND,
    AUTOTUNE,
    KERNEL_CONFIG,
    COMPILATION_CONFIG,
    DATA_PARALLEL,
    DATA_PARALLEL_LOCAL,
    DATA_PARALLEL_START_RANK,
    TENSOR_PARALLEL,
    EXPERT_PARALLEL,
    SPECULATIVE_CONFIG,
    BATCHED_TOKENS,
)
"""The only flags that a rung may change, and so the only ones whose values are ever shown."""
