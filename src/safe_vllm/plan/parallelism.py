"""Lowers data and expert parallelism without needing more memory per GPU, or says why that cannot be done.

vLLM shards the experts over all TP x DP x PCP ranks, with and without expert parallelism, so fewer ranks would multiply
the expert weights of each GPU. Data parallelism is therefore turned into tensor parallelism on the same GPUs.
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/model_executor/layers/fused_moe/config.py#L1114
"""

from __future__ import annotations

from collections.abc import Mapping

from safe_vllm.machine.facts import Machine, ModelShape
from safe_vllm.plan.edit import Config, Words, with_switch, with_value, without_flag
from safe_vllm.plan.flags import Reading, read
from safe_vllm.plan.grammar import (
    ALL2ALL,
    DATA_PARALLEL,
    DATA_PARALLEL_LOCAL,
    DATA_PARALLEL_START_RANK,
    ELASTIC_EXPERTS,
    EXPERT_BALANCING,
    EXPERT_PARALLEL,
    TENSOR_PARALLEL,
)
from safe_vllm.plan.groups import addressed, group, placed_by_ray
from safe_vllm.plan.ladder import LESS_PARALLEL, NO_EXPERT_PARALLEL, LeftOut
from safe_vllm.plan.settings import moe_backend
from safe_vllm.plan.split import Sizes, no_division, no_split, sizes_of, smallest

PLAIN_ALL2ALL = ("None", "allgather_reducescatter", "naive", "pplx")
"""What moves tokens between data-parallel ranks without expert parallelism; the others raise NotImplementedError.

https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/distributed/device_communicators/all2all.py#L219
"""

EXPERT_PARALLEL_BACKENDS = (
    "aiter_mega_moe",
    "deep_gemm_mega_moe",
    "flashinfer_moe_ep_cutedsl",
    "flashinfer_moe_ep_mega_deep_gemm",
)
"""MoE backends that bring their own communication between experts.

https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/config/kernel.py#L149
"""

DATA_PARALLEL_BACKENDS = ("aiter_mega_moe",)
"""MoE backends that take no tensor parallelism.

https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/models/deepseek_v4/amd/model.py#L560
"""


def less_parallel(words: Words, config: Config, environment: Mapping[str, str], machine: Machine) -> Words | LeftOut:
    """Return ``words`` with the least data parallelism that fits the same GPUs, or why there is none."""
    reading = read(words, config)
    sizes = sizes_of(reading)
    if sizes is None:
        return LeftOut(LESS_PARALLEL, "the parallel sizes are not plain numbers")
    because = _no_less_parallel(reading, sizes, environment, machine)
    if because := because or _needs_data_parallelism(words, config, reading):
        return LeftOut(LESS_PARALLEL, because)
    lowered = smallest(sizes, machine.model)
    if lowered is None:
        return LeftOut(LESS_PARALLEL, no_division(sizes, machine.model))
    changed = with_value(words, DATA_PARALLEL, str(lowered), config)
    changed = with_value(changed, TENSOR_PARALLEL, str(sizes.data * sizes.tensor // lowered), config)
    return _with_local_ranks(changed, lowered, config)


def no_expert_parallel(
    words: Words, config: Config, environment: Mapping[str, str], machine: Machine
) -> Words | LeftOut:
    """Return ``words`` with expert parallelism off, or why it stays."""
    reading = read(words, config)
    sizes = sizes_of(reading)
    if reading.setting(EXPERT_PARALLEL).value is not True:
        return LeftOut(NO_EXPERT_PARALLEL, "expert parallelism is not in use")
    if sizes is None:
        return LeftOut(NO_EXPERT_PARALLEL, "the parallel sizes are not plain numbers")
    because = group(reading, environment) or _needs_expert_parallelism(words, config, reading, sizes)
    if because := because or no_split(sizes.expert_ranks, machine.model or ModelShape()):
        return LeftOut(NO_EXPERT_PARALLEL, because)
    return with_switch(words, EXPERT_PARALLEL, False, config)


def _no_less_parallel(reading: Reading, sizes: Sizes, environment: Mapping[str, str], machine: Machine) -> str | None:
    """Return what rules out any other split; ``None``: nothing that does not depend on the split."""
    if because := group(reading, environment) or addressed(reading):
        return because
    if ray := placed_by_ray(reading):
        return f"Ray places the engines ({ray} ray), so data parallelism cannot be changed from here"
    if sizes.data == 1:
        return "data parallelism is not in use"
    if machine.gpus and sizes.gpus > len(machine.gpus):
        return f"{sizes.gpus} GPUs are asked for, and this machine shows {len(machine.gpus)}"
    if any(gpu.is_slice for gpu in machine.gpus):
        return "tensor parallelism does not reach over MIG slices"
    return None


def _needs_data_parallelism(words: Words, config: Config, reading: Reading) -> str | None:
    """Return what else of the command would not work without data parallelism."""
    if reading.setting(ELASTIC_EXPERTS).value is True:
        return f"{ELASTIC_EXPERTS} needs data parallelism"
    backend = moe_backend(words, config).value
    return f"the MoE backend {backend} needs data parallelism" if backend in DATA_PARALLEL_BACKENDS else None


def _with_local_ranks(words: Words, data: int, config: Config) -> Words | LeftOut:
    """Return ``words`` with the flags that say which ranks run here, all of them, in step with the number of ranks.

    Of one engine they may not both speak: vLLM would wait for a balancer.
    https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/engine/arg_utils.py#L2489
    """
    if data == 1:
        words = without_flag(words, DATA_PARALLEL_START_RANK)
        if _is_set(words, DATA_PARALLEL_START_RANK, config):
            words = without_flag(words, DATA_PARALLEL_LOCAL)
    if not _is_set(words, DATA_PARALLEL_LOCAL, config):
        return words
    if data == 1 and _is_set(words, DATA_PARALLEL_START_RANK, config):
        both = f"{DATA_PARALLEL_START_RANK} and {DATA_PARALLEL_LOCAL}"
        return LeftOut(LESS_PARALLEL, f"{both} cannot be taken out of the command")
    return with_value(words, DATA_PARALLEL_LOCAL, str(data), config)


def _is_set(words: Words, name: str, config: Config) -> bool:
    return read(words, config).setting(name).value is not None


def _needs_expert_parallelism(words: Words, config: Config, reading: Reading, sizes: Sizes) -> str | None:
    """Return what else of the command would not work without expert parallelism."""
    if sizes.expert_ranks == 1:
        return "expert parallelism does nothing on a single GPU"
    for name in (EXPERT_BALANCING, ELASTIC_EXPERTS):
        if reading.setting(name).value is True:
            return f"{name} needs expert parallelism"
    backend = moe_backend(words, config).value
    if backend in EXPERT_PARALLEL_BACKENDS:
        return f"the MoE backend {backend} needs expert parallelism"
    exchange = str(reading.setting(ALL2ALL).value)
    if sizes.data > 1 and exchange not in PLAIN_ALL2ALL:
        return f"{ALL2ALL} {exchange} needs expert parallelism as long as there is data parallelism"
    return None
