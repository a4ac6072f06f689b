"""The shape of a model, read from the ``config.json`` of a directory on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from safe_vllm.machine.facts import ModelShape
from safe_vllm.machine.rooted import text_of

TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal models keep the configuration of their language model."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")
"""https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/transformers_utils/model_arch_config_convertor.py"""
EXPERT_WIDTHS = ("moe_intermediate_size", "expert_hidden_size", "moe_ffn_hidden_size")
HEADS = ("num_attention_heads", "n_heads", "n_head")


def shape(candidates: Iterable[str]) -> ModelShape | None:
    """Return the shape of the first candidate that is a directory with a readable ``config.json``."""
    for candidate in candidates:
        text = text_of(Path(candidate) / "config.json")
        if text is not None and (config := _object(text)) is not None:
            return _shape(_language_model(config))
    return None


def candidates(words: Sequence[str], config: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Return what may be the model among the words after ``vllm serve``, in vLLM's order of precedence.

    A model behind flags that we do not know cannot be told from their values, so the last word is only a guess.
    """
    first = words[:1] if words and not words[0].startswith("-") else ()
    named = [after for word, after in pairwise(words) if word == "--model"]
    named += [word.removeprefix("--model=") for word in words if word.startswith("--model=")]
    in_file = [str(config["model"])] if config and "model" in config else []
    last = words[-1:] if words and not words[-1].startswith("-") else ()
    return tuple(dict.fromkeys((*named, *first, *in_file, *last)))


def _shape(config: Mapping[str, object]) -> ModelShape:
    experts = _number(config, EXPERTS)
    if experts is None and not _mentions_experts(config):
        experts = 0
    return ModelShape(_number(config, HEADS), experts, _number(config, EXPERT_WIDTHS))


def _object(text: str) -> Mapping[str, object] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _language_model(config: Mapping[str, object]) -> Mapping[str, object]:
    for key in TEXT_CONFIGS:
        nested = config.get(key)
        if isinstance(nested, dict):
            return _language_model({**config, key: None, **nested})
    return config


def _number(config: Mapping[str, object], keys: Iterable[str]) -> int | None:
    """Return the first of ``keys`` that is a number, or a list of numbers (per layer) whose largest counts."""
    for key in keys:
        value = config.get(key)
        numbers = [item for item in (value if isinstance(value, list) else [value]) if type(item) is int]
        if numbers:
            return max(numbers)
    return None


def _mentions_experts(config: Mapping[str, object]) -> bool:
    """Return whether anything in the configuration speaks of experts in words that we do not know."""
    text = json.dumps(config).lower()
    return "expert" in text or "moe" in text
