"""What a model's name tells where its ``config.json`` is not on this machine yet.

A guess, and said to be one: it picks the kernels that a rung asks for and the reports that a launch resembles. A wrong
one costs a rung that vLLM refuses, or some speed, never a launch.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from safe_vllm.machine.facts import ModelShape, WeightFormat
from safe_vllm.plan.edit import Config
from safe_vllm.plan.flags import end_of_options, is_flag_like, read, scan
from safe_vllm.plan.secrets import hide, without_secrets

FORMATS: tuple[tuple[str, WeightFormat], ...] = (
    (r"nvfp4|(?<![a-z])fp4", "nvfp4"),
    (r"mxfp4|gpt-oss(?!.*bf16)", "mxfp4"),
    (r"mxfp8", "mxfp8"),
    (r"w4a16|int4|awq|gptq|autoround|kimi-k2(?:-thinking|\.[5-9])", "int4"),
    (r"w8a8|int8", "int8"),
    (r"(?<![a-z])bf16$", "bf16"),
    (r"(?<!v4-)fp8|deepseek-(?:v3|r1)(?!.*(?:distill|qwen|llama))|kimi-k2|minimax-m2", "fp8"),
)
"""Beginnings with the rarer word. DeepSeek V4 calls itself FP8, and its experts are not. The last rows name families
whose original weights are quantised:

https://huggingface.co/openai/gpt-oss-120b/blob/main/config.json
https://huggingface.co/moonshotai/Kimi-K2-Thinking/blob/main/config.json
https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/config.json
https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/config.json
https://huggingface.co/MiniMaxAI/MiniMax-M2/blob/main/config.json
"""

UNREADABLE = r"gguf|bnb|bitsandbytes|4bit|8bit|exl2|mlx"
"""Formats of which no MoE backend is known."""

EXPERTS = (
    r"-a\d+(?:\.\d+)?[bm](?![a-z])|-\d+e(?:-|$)|mixtral|(?<![a-z])(?:ol|s)?moe(?![a-z])|gpt-oss|kimi-k2|minimax-m[12]|dbrx"
    r"|deepseek-(?:coder-)?(?:v[234](?!\d)|r1)(?!.*(?:distill|qwen|llama))|glm-(?:4\.[5-7]|5)|mistral-large-3"
)
"""``-A3B`` counts the parameters that are active for a token: only models with experts have such a number."""

DEFAULT = "Qwen/Qwen3-0.6B"
"""What vLLM serves where no model is named, in every release from 0.11 to 0.33:

https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/config/model.py#L92
https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/config/model.py#L155
"""
CONFIG = "--config"
"""Where it is there and the file names no model either, vLLM ends:

https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/utils/argparse_utils.py#L579
"""
NO_NAME = r"-?\d[\d.,]*|[\[{].*"
"""Numbers and JSON: values of flags, and no model."""


def name_in(words: Sequence[str], config: Config = None) -> str | None:
    """Return the model that the words after ``vllm serve`` name, where that can be told without knowing every flag."""
    if words and not words[0].startswith("-"):
        return words[0]
    named = read(words, config).setting("--model").value
    return str(named) if named else None


def nameless(words: Sequence[str], config: Config = None) -> str | None:
    """Return what vLLM does where no model is named; ``None``: one is, or that cannot be told."""
    has_file = CONFIG in words
    if name_in(words, config) or (has_file and config is None) or not _is_all_flags(words):
        return None
    if has_file:
        return "none is named, neither in the command nor in the --config file, and vLLM ends; name it behind `serve`"
    return f"none is named, vLLM takes its own default ({DEFAULT})"


def _is_all_flags(words: Sequence[str]) -> bool:
    """Whether every word is a flag or its value. What follows a flag that we do not know may be the model."""
    end = end_of_options(words)
    known = {at for found in scan(words) for at in range(found.at, found.at + found.size)}
    rest = (at for at in range(end) if at not in known and not is_flag_like(words[at]))
    return not words[end + 1 :] and all(_is_value(words, at, known) for at in rest)


def _is_value(words: Sequence[str], at: int, known: Container[int]) -> bool:
    """Whether a word is the value of the flag that stands before it and that we do not know."""
    flag = words[at - 1] if at else ""
    follows = at - 1 not in known and is_flag_like(flag) and "=" not in flag
    return follows and ("." in flag or re.fullmatch(NO_NAME, words[at], re.DOTALL) is not None)


def shown_name(name: str | None) -> str | None:
    """Return a model's name as it may be shown: it may be a URL with a password in it."""
    return without_secrets(" ".join(hide([name]))) if name else name


def guessed(name: str, quantization: str | None = None) -> ModelShape:
    """Return what the name of a model tells, and the value of ``--quantization``, which counts for more.

    The number of experts is not known, so 1 stands for some. Of a path only the last part is the model's name.
    """
    text = _plain(name.rstrip("/").rpartition("/")[2])
    has_experts = re.search(EXPERTS, text) is not None
    return ModelShape(experts=1 if has_experts else None, weight_format=_format(text, quantization), is_guess=True)


def _plain(text: str) -> str:
    return text.lower().replace("_", "-")


def _format(text: str, quantization: str | None) -> WeightFormat | None:
    for said in (_plain(quantization or ""), text):
        if re.search(UNREADABLE, said):
            return None
        if found := next((name for pattern, name in FORMATS if re.search(pattern, said)), None):
            return found
    return None if quantization else "bf16"  # quantised, but the method alone does not tell how
