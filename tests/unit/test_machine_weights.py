"""The format of the experts' weights is what the quantisation settings of published models say."""

from __future__ import annotations

from typing import Any

import pytest

from safe_vllm.machine.schemes import Weights
from safe_vllm.machine.weights import Checkpoint, weights

QWEN3_MOE = {"model_type": "qwen3_moe"}
LINEAR = {"targets": ["Linear"]}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
FLOAT4 = {"num_bits": 4, "type": "float"}
MX = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
GROUPS = "compressed-tensors"


def read(settings: Any, *, layers: int = 48, has_experts: bool = True, config: Any = None) -> Weights:
    return weights(Checkpoint(config or QWEN3_MOE, settings, None, has_experts, layers))


def grouped(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"quant_method": GROUPS, "config_groups": {f"group_{at}": each for at, each in enumerate(groups)}, **more}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/config.json
        (
            {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
            ("fp8", 128),
        ),
        ({"quant_method": "fp8", "activation_scheme": "static"}, ("fp8", None)),
        ({"quant_method": "fp8", "store_dtype": "mxfp4"}, ("mxfp4", 32)),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, ("fp8", None)),
        # https://huggingface.co/openai/gpt-oss-120b/blob/main/config.json
        (
            {
                "quant_method": "mxfp4",
                "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
            },
            ("mxfp4", 32),
        ),
        ({"quant_method": "mxfp8", "ignored_layers": ["lm_head"]}, ("mxfp8", 32)),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, ("int4", 128)),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, ("int4", None)),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, (None, None)),
        ({"quant_method": "gptq_marlin", "bits": 4, "group_size": 64}, ("int4", 64)),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"]}, ("int4", 128)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, ("int4", 128)),
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 128, "packing_format": "auto_round:auto_gptq"},
            ("int4", 128),
        ),
        ({"quant_method": "auto-round", "data_type": "mx_fp", "bits": 4, "group_size": 32}, ("mxfp4", 32)),
        ({"quant_method": "auto-round", "data_type": "fp", "bits": 8, "group_size": [128, 128]}, ("fp8", 128)),
        ({"quant_method": "auto-round", "data_type": "int", "bits": 3}, (None, None)),
        ({"quant_method": "intel/auto-round", "data_type": "int", "bits": 4}, ("int4", None)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, ("nvfp4", 16)),
        ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4", "group_size": 16}, ("nvfp4", 16)),
        ({"quant_method": "modelopt", "quant_algo": "fp8"}, ("fp8", None)),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, ("fp8", 128)),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, ("mxfp8", 32)),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, (None, None)),
        # hf_quant_config.json of https://huggingface.co/nvidia/DeepSeek-R1-FP4
        (
            {
                "producer": {"name": "modelopt", "version": "0.23.0"},
                "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]},
            },
            ("nvfp4", 16),
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, (None, None)),
        ({"quant_method": "gguf"}, (None, None)),
        ({"quant_method": "torchao"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_the_format_of_settings_for_all_layers_is(settings: dict[str, Any], expected: Weights) -> None:
    assert read(settings) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # https://huggingface.co/moonshotai/Kimi-K2-Thinking/blob/main/config.json
        (
            grouped(
                {**LINEAR, "input_activations": None, "weights": INT4},
                format="pack-quantized",
                ignore=["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|down)_proj.*"],
            ),
            ("int4", 32),
        ),
        (grouped({**LINEAR, "weights": FP8, "input_activations": {"num_bits": 8, "type": "float"}}), ("fp8", None)),
        (
            grouped({**LINEAR, "weights": {**FP8, "strategy": "block", "block_structure": [128, 128]}}),
            ("fp8", 128),
        ),
        (grouped({**LINEAR, "weights": FLOAT4}, format="nvfp4-pack-quantized"), ("nvfp4", 16)),
        (grouped({**LINEAR, "weights": FLOAT4, "format": "mxfp4-pack-quantized"}), ("mxfp4", 32)),
        (grouped({**LINEAR, "weights": {**FLOAT4, "group_size": 16}}), ("nvfp4", 16)),
        (grouped({**LINEAR, "weights": {**FLOAT4, "group_size": 32}}), ("mxfp4", 32)),
        (grouped({**LINEAR, "weights": {**FLOAT4, "group_size": 64}}), (None, None)),
        (grouped({**LINEAR, "weights": {**FP8, "group_size": 32, "scale_dtype": "torch.uint8"}}), ("mxfp8", 32)),
        (grouped({**LINEAR, "weights": {**FP8, "group_size": 128, "scale_dtype": "torch.uint8"}}), ("fp8", None)),
        (grouped({**LINEAR, "weights": {"num_bits": 8}, "input_activations": {"num_bits": 8}}), ("int8", None)),
        (grouped({**LINEAR, "weights": {"num_bits": 8, "group_size": 128}}), (None, None)),
        (grouped({**LINEAR, "weights": INT4, "input_activations": {"type": "float", "num_bits": 8}}), (None, None)),
        ({"quant_method": "compressed_tensors", "format": "nvfp4-pack-quantized"}, ("nvfp4", 16)),
        # The experts have one format, everything else another.
        (
            grouped(
                {"targets": ["Linear"], "weights": FP8},
                {"targets": ["re:.*mlp\\.experts\\..*"], "weights": {**FLOAT4, "group_size": 16}},
            ),
            ("nvfp4", 16),
        ),
        (
            grouped(
                {"targets": ["re:.*self_attn.*"], "weights": FP8},
                {"targets": ["re:.*experts.*(gate|up|down)_proj"], "weights": INT4},
            ),
            ("int4", 32),
        ),
        # Some experts have one format, some another.
        (
            grouped(
                {"targets": ["Linear"], "weights": FP8},
                {"targets": ["re:.*layers\\.(22|23|24)\\.mlp\\.experts.*"], "weights": INT4},
            ),
            (None, None),
        ),
        # The experts are left alone.
        (grouped({**LINEAR, "weights": INT4}, ignore=["re:.*mlp.experts.*"]), ("bf16", None)),
        (grouped({"targets": ["re:.*self_attn.*"], "weights": FP8}), ("bf16", None)),
    ],
)
def test_the_format_of_settings_by_groups_is(settings: dict[str, Any], expected: Weights) -> None:
    assert read(settings) == expected


@pytest.mark.parametrize(
    ("weight", "inputs", "expected"),
    [
        (MX, MX, ("mxfp4", 32)),
        ({"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, {"dtype": "fp8_e4m3"}, ("fp8", None)),
        ({"dtype": "fp8_e4m3", "qscheme": "per_block", "block_size": [128, 128]}, {"dtype": "fp8_e4m3"}, ("fp8", 128)),
        ({"dtype": "fp8_e4m3", "qscheme": "per_group", "group_size": 32}, None, ("mxfp8", 32)),
        ([{"dtype": "fp4", "group_size": 16}, {"dtype": "fp8_e4m3"}], None, ("nvfp4", 16)),
        ([{"dtype": "fp8_e4m3"}, {"dtype": "int4"}], {"dtype": "fp8_e4m3"}, (None, None)),
        ({"dtype": "uint4", "group_size": 128}, None, ("int4", 128)),
        ({"dtype": "int8"}, {"dtype": "int8"}, ("int8", None)),
        ({"dtype": "fp6_e2m3", "group_size": 32}, None, (None, None)),
        (None, None, (None, None)),
    ],
)
def test_the_format_of_quarks_settings_is(weight: Any, inputs: Any, expected: Weights) -> None:
    scheme = {"weight": weight, "input_tensors": inputs}
    assert read({"quant_method": "quark", "global_quant_config": scheme, "exclude": ["lm_head"]}) == expected


def test_quark_may_name_the_experts() -> None:
    fp8 = {"weight": {"dtype": "fp8_e4m3"}}
    named = {"*self_attn*": fp8, "*block_sparse_moe.experts": {"weight": MX}}
    settings = {"quant_method": "quark", "global_quant_config": fp8, "layer_quant_config": named}
    assert read(settings) == ("mxfp4", 32)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ({"mlp.experts": "NVFP4", "self_attn.q_proj": "FP8", "mlp.shared_experts.up_proj": "FP8"}, ("nvfp4", 16)),
        ({"mlp.experts.0.up_proj": "NVFP4", "mlp.experts.1.up_proj": "FP8"}, (None, None)),
        ({"self_attn.q_proj": "FP8"}, ("bf16", None)),
        ({}, (None, None)),
    ],
)
def test_mixed_precision_is_told_by_the_experts(layers: dict[str, str], expected: Weights) -> None:
    named = {f"model.layers.3.{name}": {"quant_algo": kind, "group_size": 16} for name, kind in layers.items()}
    settings = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    assert read({**settings, "quantized_layers": named}) == expected
    beside = {"quantization": {"quantized_layers": named}}
    assert weights(Checkpoint(QWEN3_MOE, settings, beside)) == expected


@pytest.mark.parametrize(
    "ignored",
    [
        {"ignored_layers": [f"model.layers.{layer}.mlp.experts" for layer in range(3, 48)]},
        {"modules_to_not_convert": ["mlp.experts"]},
        {"quant_algo": "FP8", "quant_method": "modelopt", "exclude_modules": ["*.mlp.experts*"]},
        {"ignore": ["re:.*experts.*"]},
        {"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*\\.mlp\\.experts\\..*": {}}},
        {"quant_method": "auto-round", "bits": 4, "extra_config": {"mlp\\.experts\\.": {"bits": 16}}},
    ],
)
def test_experts_that_are_left_alone_are_not_quantised(ignored: dict[str, Any]) -> None:
    assert read({"quant_method": "fp8", **ignored}) == ("bf16", None)


@pytest.mark.parametrize(
    "ignored",
    [
        ["lm_head", "model.layers.0", "model.layers.47.mlp", "re:.*mlp.gate$", "*.mlp.gate", "*shared_experts*"],
        ["re:(", "", "[", "model.layers.1*.self_attn*"],
        # A hybrid model leaves some of its layers alone, and their names begin like those of experts.
        [f"backbone.layers.{layer}.mixer" for layer in (4, 11, 18, 20, 25, 32)],
    ],
)
def test_other_layers_that_are_left_alone_change_nothing(ignored: list[str]) -> None:
    assert read({"quant_method": "fp8", "ignore": ignored}) == ("fp8", None)


def test_a_dense_model_is_told_by_its_layers() -> None:
    settings = grouped({**LINEAR, "weights": INT4}, ignore=["re:.*experts.*"])
    assert read(settings, has_experts=False) == ("int4", 32)
    assert read({"quant_method": "fp8", "ignored_layers": ["mlp"]}, has_experts=False) == ("bf16", None)


@pytest.mark.parametrize(
    ("config", "more", "expected"),
    [
        ({"model_type": "deepseek_v4"}, {}, ("mxfp4", 32)),
        ({"model_type": "deepseek_v4", "expert_dtype": "fp4"}, {"moe_quant_algo": "NVFP4"}, ("nvfp4", 16)),
        ({"model_type": "deepseek_v4", "expert_dtype": "fp8"}, {}, ("fp8", 128)),
        ({"model_type": "deepseek_v3"}, {}, ("fp8", 128)),
    ],
)
def test_deepseek_tells_its_experts_apart(config: dict[str, Any], more: dict[str, Any], expected: Weights) -> None:
    settings = {"quant_method": "fp8", "weight_block_size": [128, 128], **more}
    assert read(settings, config=config) == expected


@pytest.mark.parametrize(
    ("asked", "load_format", "expected"),
    [
        (None, None, ("bf16", None)),
        ("fp8", None, ("fp8", None)),
        ("fp8_per_block", None, ("fp8", 128)),
        ("mxfp4", "auto", ("mxfp4", 32)),
        ("experts_int8", None, ("int8", None)),
        ("bitsandbytes", None, (None, None)),
        (None, "bitsandbytes", (None, None)),
        (None, "gguf", (None, None)),
    ],
)
def test_plain_weights_become_what_is_asked_for(asked: str | None, load_format: str | None, expected: Weights) -> None:
    assert weights(Checkpoint(QWEN3_MOE), asked, load_format) == expected


def test_quantised_weights_stay_what_they_are() -> None:
    assert weights(Checkpoint(QWEN3_MOE, {"quant_method": "awq", "bits": 4}), "awq_marlin") == ("int4", None)


@pytest.mark.parametrize("odd", [None, 3, "text", [], [3], {}, {"a": 3}, True])
@pytest.mark.parametrize(
    "key",
    "ignore config_groups quantization dynamic extra_config weight_block_size producer quantized_layers bits "
    "group_size data_type global_quant_config layer_quant_config quant_algo format moe_quant_algo".split(),
)
def test_settings_of_any_kind_end_in_an_answer(key: str, odd: object) -> None:
    for method in ("fp8", "gptq", "auto-round", "modelopt", GROUPS, "quark"):
        for more in ({}, {"quant_algo": "MIXED_PRECISION"}, {"config_groups": {"a": {"weights": odd, "targets": odd}}}):
            format_, size = read({"quant_method": method, **more, key: odd})
            assert format_ is not None or size is None
