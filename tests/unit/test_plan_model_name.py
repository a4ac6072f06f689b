"""What is told by the name of a model whose files are not here, and by ``--quantization``."""

from __future__ import annotations

import pytest

from safe_vllm.plan.model_name import DEFAULT, guessed, name_in, nameless


@pytest.mark.parametrize(
    ("name", "has_experts", "weight_format"),
    [
        ("Qwen/Qwen3-30B-A3B", True, "bf16"),
        ("Qwen/Qwen3-30B-A3B-FP8", True, "fp8"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct-NVFP4", True, "nvfp4"),
        ("ibm-granite/granite-4.0-tiny-7B-A1B", True, "bf16"),
        ("org/small-1B-A400M", True, "bf16"),
        ("openai/gpt-oss-120b", True, "mxfp4"),
        ("unsloth/gpt-oss-20b-BF16", True, "bf16"),
        ("deepseek-ai/DeepSeek-V3.1", True, "fp8"),
        ("unsloth/DeepSeek-V3-bf16", True, "bf16"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", False, "bf16"),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", False, "bf16"),
        ("deepseek-ai/deepseek-coder-v2-lite-instruct", True, "bf16"),
        ("moonshotai/Kimi-K2-Instruct", True, "fp8"),
        ("moonshotai/Kimi-K2-Thinking", True, "int4"),
        ("moonshotai/Kimi-K2.5", True, "int4"),
        ("zai-org/GLM-4.6-FP8", True, "fp8"),
        ("MiniMaxAI/MiniMax-M2", True, "fp8"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", True, "bf16"),
        ("mistralai/Mixtral-8x7B-v0.1", True, "bf16"),
        ("allenai/OLMoE-1B-7B", True, "bf16"),
        ("org/smoe_big", True, "bf16"),
        ("org/smoelike", False, "bf16"),
        ("databricks/dbrx-instruct", True, "bf16"),
        ("Qwen/Qwen3-8B-AWQ", False, "int4"),
        ("org/model-W8A8", False, "int8"),
        ("org/model-GGUF", False, None),
        ("/models/moe-fp8/llama-8b", False, "bf16"),
        ("/models/Qwen3-30B-A3B/", True, "bf16"),
    ],
)
def test_a_name_tells_whether_there_are_experts_and_what_the_weights_are(
    name: str, has_experts: bool, weight_format: str | None
) -> None:
    found = guessed(name)
    assert (bool(found.experts), found.weight_format, found.is_guess) == (has_experts, weight_format, True)


@pytest.mark.parametrize(
    ("name", "quantization", "weight_format"),
    [
        ("Qwen/Qwen3-30B-A3B", "fp8", "fp8"),
        ("Qwen/Qwen3-30B-A3B-NVFP4", "fp8", "fp8"),
        ("Qwen/Qwen3-30B-A3B", "modelopt_fp4", "nvfp4"),
        ("Qwen/Qwen3-30B-A3B", "awq_marlin", "int4"),
        ("Qwen/Qwen3-30B-A3B", "experts_int8", "int8"),
        ("Qwen/Qwen3-30B-A3B", "bitsandbytes", None),
        ("Qwen/Qwen3-30B-A3B", "compressed-tensors", None),
        ("Qwen/Qwen3-30B-A3B-FP8", "compressed-tensors", "fp8"),
        ("deepseek-ai/DeepSeek-V4", "deepseek_v4_fp8", None),
    ],
)
def test_the_flag_counts_for_more_than_the_name(name: str, quantization: str, weight_format: str | None) -> None:
    assert guessed(name, quantization).weight_format == weight_format


def test_the_name_is_the_first_word_or_that_of_the_flag() -> None:
    assert name_in(("a", "--model", "b")) == "a"
    assert name_in(("--model=b", "-tp", "2")) == "b"
    assert name_in(("-tp", "2"), {"model": "c"}) == "c"
    assert name_in(("-tp", "2")) is None


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--port 8000",
        "-tp 2 --enforce-eager",
        "--gpu-memory-utilization 0.9",
        "--seed -1",
        "--seed=1",
        '--hf-overrides {"a":1}',
        "--hf-overrides.rope_scaling.rope_type yarn",
        "--config=f.yaml",
        "--api-key a b c",
    ],
)
def test_where_no_model_is_named_what_vllm_takes_is_told(words: str) -> None:
    assert nameless(words.split()) == f"none is named, vLLM takes its own default ({DEFAULT})"


@pytest.mark.parametrize(
    "words",
    [
        "m",
        "--model m",
        "--model=m --port 1",
        "--port 8000 org/m",
        "--enable-expert-parallel org/m",
        "--trust-remote-code org/m",
        "--seed=1 m",
        "--hf-overrides.a=b m",
        "--port 1 -- m",
    ],
)
def test_where_a_model_is_named_or_may_be_nothing_is_told_of_a_default(words: str) -> None:
    assert nameless(words.split()) is None


def test_the_config_file_may_name_the_model_and_without_one_vllm_ends() -> None:
    words = ["--port", "1", "--config", "f.yaml"]
    assert nameless(words, {"model": "m"}) is None
    assert nameless(words, None) is None  # what it says is not known
    told = nameless(words, {"port": 1})
    assert told is not None and "--config file, and vLLM ends" in told and DEFAULT not in told
