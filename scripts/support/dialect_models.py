"""Tiny models of every shape and weight format that a plan tells apart: all but weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import tiny_model

QUANTISED: Mapping[str, Mapping[str, object]] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8-block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "nvfp4": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "kv_cache_quant_algo": None,
        "exclude_modules": ["lm_head"],
    },
    "mxfp4": {"quant_method": "mxfp4"},
    "int4": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "lm_head": False},
}
"""What the ``quantization_config`` of a model says, by the name of its weight format."""
SHAPES: Mapping[str, Mapping[str, object]] = {
    "bf16": {},
    "six-heads": {"num_attention_heads": 6, "num_key_value_heads": 2},
    "narrow": {"moe_intermediate_size": 6},
    "dense": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_experts": None},
}
EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step", "norm_topk_prob")


def write_model(directory: Path, name: str) -> None:
    """Write a tiny model of this kind: eight heads, four KV heads, eight experts unless its shape says otherwise."""
    tiny_model.write_model(directory)
    config = directory / "config.json"
    shape = {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 1024,
        "intermediate_size": 2048,
    }
    told = {**json.loads(config.read_text()), **shape, **SHAPES.get(name, {})}
    if name in QUANTISED:
        told["quantization_config"] = QUANTISED[name]
    if told["num_experts"] is None:
        told = {key: value for key, value in told.items() if key not in EXPERTS}
    config.write_text(json.dumps(told))
