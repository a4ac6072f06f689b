"""The shape of a model, read from the ``config.json`` of a directory on this machine or of a downloaded model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safe_vllm.machine import hub
from safe_vllm.machine.facts import ModelShape
from safe_vllm.machine.model_flags import Asked
from safe_vllm.machine.rooted import exists, is_directory, text_of
from safe_vllm.machine.weights import Checkpoint, weights

TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal models keep the configuration of their language model."""
PARTS = ("ffn_config", "attn_config")
"""Where DBRX keeps parts of it."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")
"""https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/transformers_utils/model_arch_config_convertor.py"""
EXPERT_WIDTHS = ("moe_intermediate_size", "expert_hidden_size", "moe_ffn_hidden_size")
HEADS = ("num_attention_heads", "n_heads", "n_head")
KV_HEADS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
    "kv_n_heads",
)
LAYERS = ("num_hidden_layers", "n_layers", "n_layer")
CONTEXTS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""The smallest counts, unless there is the first of all: ``model_max_length``."""
UNSCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "mrope", "default")
"""Kinds of rotary embedding whose factor is in the context length already:
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/config/model.py
"""
LARGEST_FACTOR = 10_000
"""Whatever is larger, or no number (NaN, infinity), is none."""
LIMIT_BYTES = 1 << 25
"""A configuration may name every quantised layer."""


def described(asked: Asked, environment: Mapping[str, str]) -> tuple[str | None, ModelShape | None]:
    """Return the name of the model that is meant, as far as it can be told, and its shape."""
    for name, directory in _directories(asked, environment):
        config = _object(directory / "config.json")
        if config is not None:
            separate = _object(directory / "hf_quant_config.json")
            return asked.name or name, _shape(_merged(config, asked.overrides), separate, asked)
    return asked.name, None


def lost(asked: Asked) -> str | None:
    """Return the path that is named as the model, where there is nothing at it."""
    name = asked.name or ""
    return name if name.startswith(("/", "./", "../")) and not exists(Path(name)) else None


def _directories(asked: Asked, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    places = hub.caches(environment, asked.download_dir)
    for name in (asked.config_path,) if asked.config_path else asked.names:
        if is_directory(Path(name)):
            yield name, Path(name)
        elif found := hub.snapshot(name, asked.revision, places):
            yield name, found


def _shape(whole: Mapping[str, Any], separate: Mapping[str, Any] | None, asked: Asked) -> ModelShape:
    config = _language_model(whole)
    experts = _experts(config)
    heads = _number(config, HEADS)
    settings = _quantization(whole) or _quantization(config) or separate
    checkpoint = Checkpoint(config, settings, separate, experts != 0, _number(config, LAYERS) or 1)
    weight_format, block_size = weights(checkpoint, asked.quantization, asked.load_format)
    return ModelShape(
        attention_heads=heads,
        kv_heads=_number(config, KV_HEADS) or heads,
        experts=experts,
        moe_intermediate_size=_number(config, EXPERT_WIDTHS),
        weight_format=weight_format,
        block_size=block_size,
        context_length=_context(config),
    )


def _experts(config: Mapping[str, Any]) -> int | None:
    found = _number(config, EXPERTS)
    blocks = config.get("block_configs")  # every layer of a Nemotron may be another
    listed = blocks if isinstance(blocks, list) else []
    counts = [_number(block, EXPERTS) or 0 for block in listed if isinstance(block, dict)]
    if found is None and any(counts):
        return max(counts)
    return 0 if found is None and not _mentions_experts(config) else found


def _context(config: Mapping[str, Any]) -> int | None:
    found = [number for key in CONTEXTS if (number := _number(config, (key,)))]
    longest = _number(config, ("model_max_length",)) or min(found, default=None)
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    if longest is None or not isinstance(rope, dict):
        return longest
    kind, factor = rope.get("rope_type", rope.get("type", "default")), rope.get("factor")
    if kind in UNSCALED or not isinstance(factor, (int, float)) or not 0 < factor < LARGEST_FACTOR:
        return longest
    return int(longest * factor)


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = config.get("quantization_config") or config.get("compression_config")
    return found if isinstance(found, dict) else None


def _object(path: Path) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text_of(path, LIMIT_BYTES) or "")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _merged(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with parts replaced; a mapping replaces only the keys that it has."""
    both = {key: (config.get(key), value) for key, value in changes.items()}
    inner = {
        k: _merged(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        for k, (old, new) in both.items()
    }
    return {**config, **inner}


def _language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in TEXT_CONFIGS:
        nested = config.get(key)
        if isinstance(nested, dict):
            return _language_model({**config, key: None, **nested})
    parts = [config[part] for part in PARTS if isinstance(config.get(part), dict)]
    return {**config, **{key: value for part in parts for key, value in part.items() if key not in config}}


def _number(config: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    """Return the first of ``keys`` that is a number, or a list of numbers (per layer) whose largest counts."""
    for key in keys:
        value = config.get(key)
        numbers = [item for item in (value if isinstance(value, list) else [value]) if type(item) is int]
        if numbers:
            return max(numbers)
    return None


def _mentions_experts(config: Mapping[str, Any]) -> bool:
    """Return whether anything in the configuration speaks of experts in words that we do not know."""
    rest = {key: value for key, value in config.items() if key not in ("quantization_config", "compression_config")}
    text = json.dumps(rest).lower()
    return "expert" in text or "moe" in text
