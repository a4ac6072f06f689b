"""The shape of a model is read from its directory or from the local cache of downloaded models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from safe_vllm.machine.facts import ModelShape
from safe_vllm.machine.hub import caches
from safe_vllm.machine.model import described
from safe_vllm.machine.model_flags import Asked, asked

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write(directory: Path, config: object, name: str = "config.json") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(config if isinstance(config, str) else json.dumps(config))
    return directory


def shape_of(directory: Path, config: dict[str, Any], line: str = "") -> ModelShape | None:
    write(directory, config)
    return described(asked((str(directory), *line.split())), {})[1]


def downloaded(cache: Path, name: str, heads: int, commit: str = COMMIT, ref: str = "main") -> None:
    folder = cache / f"models--{name.replace('/', '--')}"
    write(folder / "snapshots" / commit, {"num_attention_heads": heads})
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / ref).write_text(commit)


def heads_of(words: str, environment: dict[str, str]) -> int | None:
    found = described(asked(tuple(words.split())), environment)[1]
    return found.attention_heads if found else None


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"num_attention_heads": 4, "num_experts": 8, "moe_intermediate_size": 64, "intermediate_size": 128},
            (4, 8, 64),
        ),
        ({"num_attention_heads": 32, "num_local_experts": 8, "intermediate_size": 14336}, (32, 8, None)),
        ({"num_attention_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1}, (128, 256, None)),
        ({"num_attention_heads": 32}, (32, 0, None)),
        ({"num_attention_heads": 32, "num_experts": 0}, (32, 0, None)),
        ({"num_attention_heads": 32, "quantization_config": {"ignore": ["re:.*moe.*"]}}, (32, 0, None)),
        ({"n_heads": 48, "ffn_config": {"moe_num_experts": 16}}, (48, 16, None)),
        ({"n_heads": 48, "router": {"expert_count": 16}}, (48, None, None)),
        ({"num_attention_heads": 64, "block_configs": [{}, {"n_routed_experts": 64}, None]}, (64, 64, None)),
        ({"num_attention_heads": 64, "moe_num_experts": [64, 64]}, (64, 64, None)),
        ({"text_config": {"num_attention_heads": 16, "num_experts": 256}}, (16, 256, None)),
        ({"thinker_config": {"text_config": {"num_attention_heads": 32, "num_experts": 128}}}, (32, 128, None)),
        ({"num_attention_heads": True, "num_experts": "8"}, (None, None, None)),
    ],
)
def test_heads_and_experts_of_a_config_are(
    tmp_path: Path, config: dict[str, Any], expected: tuple[int | None, int | None, int | None]
) -> None:
    found = shape_of(tmp_path, config)
    assert found is not None
    assert (found.attention_heads, found.experts, found.moe_intermediate_size) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_attention_heads": 64, "num_key_value_heads": 8}, 8),
        ({"num_attention_heads": 71, "n_head_kv": 1}, 1),
        ({"num_attention_heads": 64, "num_attention_groups": 8}, 8),
        ({"n_heads": 48, "attn_config": {"kv_n_heads": 8}}, 8),
        ({"num_attention_heads": 64}, 64),
        ({}, None),
    ],
)
def test_without_groups_every_head_has_its_own_kv_head(
    tmp_path: Path, config: dict[str, Any], expected: int | None
) -> None:
    found = shape_of(tmp_path, config)
    assert found is not None
    assert found.kv_heads == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 40960}, 40960),
        ({"max_position_embeddings": 8192, "seq_length": 4096}, 4096),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic", "factor": 2}}, 8192),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 131072),
        ({"max_position_embeddings": 4096, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "linear", "factor": None}}, 4096),
        ({"text_config": {"max_position_embeddings": 262144}}, 262144),
        ({}, None),
    ],
)
def test_the_context_length_is(tmp_path: Path, config: dict[str, Any], expected: int | None) -> None:
    found = shape_of(tmp_path, config)
    assert found is not None
    assert found.context_length == expected


def test_a_model_that_is_nowhere_or_unreadable_has_no_shape(tmp_path: Path) -> None:
    write(tmp_path / "list", "[]")
    write(tmp_path / "broken", '{"num_experts"')
    assert described(Asked(), {})[1] is None
    assert described(Asked(("org/name", "/", str(tmp_path / "list"), str(tmp_path / "broken"))), {})[1] is None


def test_settings_beside_the_config_count(tmp_path: Path) -> None:
    settings = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    write(tmp_path, settings, "hf_quant_config.json")
    found = shape_of(tmp_path, {"num_experts": 128})
    assert found is not None
    assert (found.weight_format, found.block_size) == ("nvfp4", 16)


def test_settings_of_the_language_model_count(tmp_path: Path) -> None:
    settings = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    found = shape_of(tmp_path, {"text_config": {"num_experts": 8, "quantization_config": settings}})
    assert found is not None
    assert (found.weight_format, found.block_size) == ("fp8", 128)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('--hf-overrides {"num_experts":4,"text_config":{"num_attention_heads":2}}', (2, 4)),
        ("--hf-overrides.num_experts=4 --hf_overrides.text_config.num_attention_heads 2", (2, 4)),
        ('--hf-overrides {"num_experts":4} --hf-overrides.text_config.num_attention_heads 2', (2, 8)),
        ("--hf-overrides nonsense", (16, 8)),
    ],
)
def test_parts_of_the_config_may_be_replaced(tmp_path: Path, line: str, expected: tuple[int, int]) -> None:
    found = shape_of(tmp_path, {"num_experts": 8, "text_config": {"num_attention_heads": 16}}, line)
    assert found is not None
    assert (found.attention_heads, found.experts) == expected


def test_the_config_may_be_another_models(tmp_path: Path) -> None:
    write(tmp_path / "a", {"num_attention_heads": 1})
    write(tmp_path / "b", {"num_attention_heads": 2})
    assert heads_of(f"{tmp_path / 'a'} --hf-config-path {tmp_path / 'b'}", {}) == 2
    assert heads_of(f"{tmp_path / 'a'} --hf-config-path {tmp_path / 'c'}", {}) is None


@pytest.mark.parametrize(
    ("place", "environment"),
    [
        ("x", {"HF_HUB_CACHE": "{root}/x", "HF_HOME": "{root}/y", "HOME": "{root}"}),
        ("x", {"HUGGINGFACE_HUB_CACHE": "{root}/x"}),
        ("y/hub", {"HF_HOME": "{root}/y", "XDG_CACHE_HOME": "{root}/z"}),
        ("z/huggingface/hub", {"XDG_CACHE_HOME": "{root}/z", "HOME": "{root}"}),
        (".cache/huggingface/hub", {"HOME": "{root}"}),
        ("big/hub", {"HOME": "{root}", "HF_HOME": "~/big"}),
        ("big/hub", {"DISK": "{root}/big", "HF_HUB_CACHE": "$DISK/hub"}),
    ],
)
def test_a_downloaded_model_is_found_where_the_hub_keeps_it(
    tmp_path: Path, place: str, environment: dict[str, str]
) -> None:
    downloaded(tmp_path / place, "org/name-1.5", 7)
    assert heads_of("org/name-1.5", {name: text.format(root=tmp_path) for name, text in environment.items()}) == 7


def test_a_revision_is_a_branch_or_a_commit(tmp_path: Path) -> None:
    environment = {"HF_HUB_CACHE": str(tmp_path)}
    downloaded(tmp_path, "org/m", 1)
    downloaded(tmp_path, "org/m", 2, "f" * 40, "v2")
    assert heads_of("org/m", environment) == 1
    assert heads_of("org/m --revision v2", environment) == 2
    assert heads_of(f"org/m --rev={'f' * 40}", environment) == 2
    assert heads_of("org/m --revision v3", environment) is None


def test_a_download_directory_is_looked_at_too(tmp_path: Path) -> None:
    downloaded(tmp_path, "m", 5)
    assert heads_of(f"m --download-dir {tmp_path}", {}) == 5


def test_what_was_downloaded_without_its_config_is_not_found(tmp_path: Path) -> None:
    downloaded(tmp_path, "m", 5)
    (tmp_path / "models--m/snapshots" / COMMIT / "config.json").unlink()
    assert heads_of("m", {"HF_HUB_CACHE": str(tmp_path)}) is None
    downloaded(tmp_path / "other", "m", 6)
    assert heads_of(f"m --download-dir {tmp_path / 'other'}", {"HF_HUB_CACHE": str(tmp_path)}) == 6


def test_models_of_another_hub_are_not_looked_for(tmp_path: Path) -> None:
    downloaded(tmp_path, "m", 5)
    environment = {"HF_HUB_CACHE": str(tmp_path), "VLLM_USE_MODELSCOPE": "True"}
    assert heads_of("m", environment) is None
    assert heads_of("m", {**environment, "VLLM_USE_MODELSCOPE": "0"}) == 5


def test_a_name_cannot_lead_out_of_the_cache(tmp_path: Path) -> None:
    downloaded(tmp_path / "hub", "a/../../m", 5)
    assert heads_of("a/../../m", {"HF_HUB_CACHE": str(tmp_path / "hub")}) is None


def test_without_a_home_there_is_no_cache() -> None:
    assert caches({}) == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("m -tp 2", ("m", "2")),
        ("-tp 2 m", ("m",)),
        ("--model m --port 1", ("m", "1")),
        ("--model=m -ep", ("m",)),
        ("-ep", ()),
        ("", ()),
    ],
)
def test_what_may_be_the_model_is_told_in_order(line: str, expected: tuple[str, ...]) -> None:
    assert asked(tuple(line.split())).names == expected


def test_the_command_line_beats_the_config_file() -> None:
    assert asked(("-ep",), {"model": "in-file"}).names == ("in-file",)
    assert asked(("m", "-ep"), {"model": "in-file"}).names == ("m", "in-file")
    in_file = {"revision": "r", "hf_overrides": {"a": 1}, "quantization": "fp8"}
    assert asked(("m", "-q", "awq"), in_file) == Asked(
        ("m", "awq"), "m", revision="r", quantization="awq", overrides={"a": 1}
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-q fp8", "fp8"),
        ("-q=fp8", "fp8"),
        ("--quantization=fp8 --quantization awq", "awq"),
        ("--quantization-config {}", None),
        ("-- --quantization fp8", None),
        ("--quantization", ""),
    ],
)
def test_the_asked_quantization_is(line: str, expected: str | None) -> None:
    assert asked(tuple(line.split())).quantization == expected


def test_the_load_format_is_read() -> None:
    assert asked(("m", "--load_format", "gguf")).load_format == "gguf"
