"""Lowers data and expert parallelism without needing more memory per GPU, or says why that cannot be done.

vLLM shards the experts over all TP x DP ranks, with and without expert parallelism, so fewer ranks would multiply the
expert weights of each GPU. Data parallelism is therefore turned into tensor parallelism on the same GPUs.
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/model_executor/layers/fused_moe/config.py
"""

from __future__ import annotations

from collections.abc import Mapping

from safe_vllm.machine.facts import ModelShape
from safe_vllm.plan.edit import Config, Words, with_switch, with_value
from safe_vllm.plan.flags import Reading, read
from safe_vllm.plan.grammar import (
    DATA_PARALLEL,
    DATA_PARALLEL_BACKEND,
    ELASTIC_EXPERTS,
    EXECUTOR,
    EXPERT_BALANCING,
    EXPERT_PARALLEL,
    HEADLESS,
    PREFILL_CONTEXT_PARALLEL,
    TENSOR_PARALLEL,
)
from safe_vllm.plan.ladder import LESS_PARALLEL, NO_EXPERT_PARALLEL, LeftOut

GROUP_FLAGS = (
    "--nnodes",
    HEADLESS,
    "--data-parallel-size-local",
    "--data-parallel-start-rank",
    "--data-parallel-rank",
    "--data-parallel-hybrid-lb",
    "--data-parallel-external-lb",
    "--data-parallel-multi-port-external-lb",
)
"""Flags of a server that shares its parallelism with others: a change here alone would break the group."""

RAY_VALUES = ((EXECUTOR, "ray"), (DATA_PARALLEL_BACKEND, "ray"))
GROUP_VALUES = ((EXECUTOR, "external_launcher"),)


def less_parallel(
    words: Words, config: Config, environment: Mapping[str, str], model: ModelShape | None
) -> Words | LeftOut:
    """Return ``words`` with the least data parallelism that fits the same GPUs, or why there is none."""
    reading = read(words, config)
    because = _no_less_parallel(reading, environment)
    if because:
        return LeftOut(LESS_PARALLEL, because)
    data, tensor = reading.number(DATA_PARALLEL) or 1, reading.number(TENSOR_PARALLEL) or 1
    heads = model.attention_heads if model else None
    lowered = _smallest(data, tensor, heads)
    if lowered == data:
        return LeftOut(LESS_PARALLEL, f"{heads} attention heads cannot be split over {data * tensor} GPUs any further")
    fewer = with_value(words, DATA_PARALLEL, str(lowered), config)
    return with_value(fewer, TENSOR_PARALLEL, str(data * tensor // lowered), config)


def no_expert_parallel(
    words: Words, config: Config, environment: Mapping[str, str], model: ModelShape | None
) -> Words | LeftOut:
    """Return ``words`` with expert parallelism off, or why it stays."""
    reading = read(words, config)
    because = _no_expert_change(reading, environment, model)
    if because:
        return LeftOut(NO_EXPERT_PARALLEL, because)
    return with_switch(words, EXPERT_PARALLEL, False, config)


def _smallest(data: int, tensor: int, heads: int | None) -> int:
    """Return the smallest data-parallel size that divides the GPUs so that the heads divide too."""
    gpus = data * tensor
    fits = (size for size in range(1, data) if gpus % size == 0 and (not heads or heads % (gpus // size) == 0))
    return next(fits, data)


def _no_less_parallel(reading: Reading, environment: Mapping[str, str]) -> str | None:
    if group := _group(reading, environment):
        return group
    for name, value in RAY_VALUES:
        if reading.setting(name).value == value:
            return f"Ray places the engines ({name} ray), so data parallelism cannot be changed from here"
    data, tensor = reading.number(DATA_PARALLEL), reading.number(TENSOR_PARALLEL)
    if data is None or tensor is None:
        return "the parallel sizes are not plain numbers"
    if data <= 1:
        return "data parallelism is not in use"
    if reading.setting(ELASTIC_EXPERTS).value is True:
        return f"{ELASTIC_EXPERTS} needs data parallelism"
    return None


def _no_expert_change(reading: Reading, environment: Mapping[str, str], model: ModelShape | None) -> str | None:
    if reading.setting(EXPERT_PARALLEL).value is not True:
        return "expert parallelism is not in use"
    if group := _group(reading, environment):
        return group
    for name in (EXPERT_BALANCING, ELASTIC_EXPERTS):
        if reading.setting(name).value is True:
            return f"{name} needs expert parallelism"
    sizes = [reading.number(name) or 1 for name in (DATA_PARALLEL, TENSOR_PARALLEL, PREFILL_CONTEXT_PARALLEL)]
    ranks = sizes[0] * sizes[1] * sizes[2]
    if ranks == 1:
        return "expert parallelism does nothing on a single GPU"
    width = model.moe_intermediate_size if model else None
    if width and width % ranks:
        return f"experts of width {width} cannot be split over {ranks} GPUs"
    return None


def _group(reading: Reading, environment: Mapping[str, str]) -> str | None:
    """Return why this server may not change its parallelism alone; ``None``: it may."""
    for name in GROUP_FLAGS:
        if reading.setting(name).value not in (None, False) and reading.all(name):
            return f"{name} makes this server one of a group, which it must not change alone"
    for name, value in GROUP_VALUES:
        if reading.setting(name).value == value:
            return f"{name} {value} makes this server one of a group, which it must not change alone"
    variable = next((name for name in sorted(environment) if name.startswith("VLLM_DP_")), None)
    return f"{variable} in the environment sets data parallelism from outside" if variable else None
