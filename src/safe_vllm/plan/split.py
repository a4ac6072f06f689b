"""How a model is split over GPUs, and which other splits of the same GPUs vLLM would take."""

from __future__ import annotations

from dataclasses import dataclass

from safe_vllm.machine.facts import ModelShape
from safe_vllm.plan.flags import Reading
from safe_vllm.plan.grammar import (
    DATA_PARALLEL,
    DECODE_CONTEXT_PARALLEL,
    PIPELINE_PARALLEL,
    PREFILL_CONTEXT_PARALLEL,
    TENSOR_PARALLEL,
)

PADDED_FORMATS = ("mxfp4",)
"""Weights whose loader gives each GPU whole blocks, so that their blocks need not divide.

https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/model_executor/models/gpt_oss.py
"""


@dataclass(frozen=True)
class Sizes:
    """How a server is spread over GPUs. ``decode_context`` reuses the GPUs of the others."""

    data: int
    tensor: int
    pipeline: int
    prefill_context: int
    decode_context: int

    @property
    def expert_ranks(self) -> int:
        """Return over how many GPUs each layer's experts are spread."""
        return self.data * self.tensor * self.prefill_context

    @property
    def gpus(self) -> int:
        """Return how many GPUs it takes."""
        return self.expert_ranks * self.pipeline


def sizes_of(reading: Reading) -> Sizes | None:
    """Return the sizes that vLLM will use; ``None``: one of them is no number above zero."""
    names = (DATA_PARALLEL, TENSOR_PARALLEL, PIPELINE_PARALLEL, PREFILL_CONTEXT_PARALLEL, DECODE_CONTEXT_PARALLEL)
    numbers = [number for name in names if (number := reading.number(name))]
    return Sizes(*numbers) if len(numbers) == len(names) else None


def smallest(sizes: Sizes, model: ModelShape | None) -> int | None:
    """Return the smallest data-parallel size that leaves no GPU out and splits the model evenly."""
    gpus = sizes.data * sizes.tensor
    fits = (size for size in range(1, sizes.data) if gpus % size == 0 and _divides(gpus // size, sizes, model))
    return next(fits, None)


def _divides(tensor: int, sizes: Sizes, model: ModelShape | None) -> bool:
    """Return whether vLLM takes this tensor-parallel size, as far as the model is known.

    https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/config/parallel.py#L594
    https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/model_executor/layers/linear.py#L1065
    """
    heads = model.attention_heads if model else None
    kv_heads = model.kv_heads if model else None
    if heads and heads % tensor:
        return False
    if kv_heads and kv_heads % tensor and tensor % kv_heads:
        return False
    if sizes.prefill_context > 1:
        return sizes.decode_context in (1, sizes.prefill_context, tensor * sizes.prefill_context)
    return tensor % sizes.decode_context == 0


def no_division(sizes: Sizes, model: ModelShape | None) -> str:
    """Return why there is no smaller data-parallel size."""
    known = model or ModelShape()
    heads = f"{known.attention_heads} attention heads" if known.attention_heads else "the model"
    over = f"{sizes.data * sizes.tensor} GPUs"
    also = f" with {known.kv_heads} KV heads" if known.kv_heads not in (None, known.attention_heads) else ""
    context = f" and {DECODE_CONTEXT_PARALLEL} {sizes.decode_context}" if sizes.decode_context > 1 else ""
    return f"{heads}{also}{context} cannot be split over {over} any further"


def no_split(ranks: int, model: ModelShape) -> str | None:
    """Return why each expert cannot be split over so many GPUs; ``None``: it can, or is not known."""
    width, block = model.moe_intermediate_size, model.block_size
    if width and width % ranks:
        return f"experts of width {width} cannot be split over {ranks} GPUs"
    if width and block and model.weight_format not in PADDED_FORMATS and width // ranks % block:
        return f"{ranks} shares of experts of width {width} are no multiples of {block}, the block that shares a scale"
    return None
