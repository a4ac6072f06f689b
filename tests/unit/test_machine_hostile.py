"""Files and words that nobody careful would write end in words or in nothing known: no traceback, no waiting."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from safe_vllm.errors import Trouble
from safe_vllm.machine import cache
from safe_vllm.machine.config_file import config_of
from safe_vllm.machine.facts import ModelShape
from safe_vllm.machine.model import described
from safe_vllm.machine.model_flags import asked
from safe_vllm.machine.modules import LONGEST, MOST_SEARCHES, TooComplex, covers, few
from safe_vllm.machine.profile_files import read_profiles
from safe_vllm.plan.flags import read

DEEP = 100_000


def shape_of(directory: Path, text: str, *words: str) -> ModelShape | None:
    (directory / "config.json").write_text(text)
    return described(asked((str(directory), *words)), {})[1]


def weights_of(directory: Path, settings: dict[str, Any]) -> str | None:
    found = shape_of(directory, json.dumps({"num_experts": 8, "quantization_config": settings}))
    assert found is not None
    return found.weight_format


@pytest.mark.parametrize(
    "text",
    ['{"a":' * DEEP, "[" * DEEP, '{"num_experts": ' + "9" * 5000 + "}", "[]", "null", '{"a": NaN', "\0", ""],
    ids=["deep objects", "deep lists", "5000 digits", "list", "null", "broken", "NUL", "empty"],
)
def test_a_configuration_that_is_none_tells_nothing(tmp_path: Path, text: str) -> None:
    assert shape_of(tmp_path, text) is None


@pytest.mark.parametrize(
    "config",
    [
        {"block_configs": 3},
        {"block_configs": {"a": 1}},
        {"text_config": {"text_config": []}},
        {"num_experts": "8", "num_attention_heads": [[], None]},
        {"quantization_config": [1]},
        {"quantization_config": {"config_groups": {"a": 1, "b": {"targets": 3}}, "ignore": 5}},
    ],
    ids=str,
)
def test_a_configuration_with_other_types_is_read_as_far_as_it_goes(tmp_path: Path, config: dict[str, Any]) -> None:
    assert shape_of(tmp_path, json.dumps(config)) is not None


@pytest.mark.parametrize("factor", ["1e400", "-1", "0", "NaN", "Infinity", '"2"', "1e300"])
def test_a_factor_that_is_none_leaves_the_context_as_it_is(tmp_path: Path, factor: str) -> None:
    rope = f'"rope_scaling": {{"rope_type": "linear", "factor": {factor}}}'
    found = shape_of(tmp_path, f'{{"max_position_embeddings": 4096, {rope}}}')
    assert found is not None
    assert found.context_length == 4096


@pytest.mark.parametrize("override", ['{"a":' * DEEP, "[" * DEEP, '{"a": ' + "9" * 5000 + "}", "3", "{"])
def test_overrides_that_are_none_change_nothing(tmp_path: Path, override: str) -> None:
    found = shape_of(tmp_path, '{"num_experts": 8}', "--hf-overrides", override, "--hf-overrides.x", override)
    assert found is not None
    assert found.experts == 8


@pytest.mark.parametrize(
    "pattern",
    [
        "re:(x+x+)+y",
        "re:.*((a|a)*)b",
        "re:(?:a{1,9}){1,9}b",
        "re:" + ".*" * 20 + "@",
        "re:" + ".?" * 40 + "@",
        "*l" * 20 + "@",
        "re:" + "a" * (LONGEST + 1),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("tool", ["compressed", "quark", "ignored"])
def test_a_pattern_that_could_be_searched_for_ever_makes_the_format_unknown(
    tmp_path: Path, pattern: str, tool: str, deadline: None
) -> None:
    group = {"weights": {"type": "float", "num_bits": 8}, "targets": [pattern]}
    settings: dict[str, dict[str, Any]] = {
        "compressed": {"quant_method": "compressed-tensors", "config_groups": {"a": group}},
        "quark": {"quant_method": "quark", "layer_quant_config": {pattern: {}}},
        "ignored": {"quant_method": "fp8", "ignored_layers": [pattern]},
    }
    assert weights_of(tmp_path, settings[tool]) is None


def test_too_many_patterns_make_the_format_unknown(tmp_path: Path, deadline: None) -> None:
    many = [f"re:.*m.*l.*{number}@" for number in range(MOST_SEARCHES + 1)]
    assert weights_of(tmp_path, {"quant_method": "fp8", "ignored_layers": many}) is None
    assert weights_of(tmp_path, {"quant_method": "fp8", "ignored_layers": many[1:]}) == "fp8"
    assert few(["lm_head"] * 10_000) == ["lm_head"] * 10_000


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        (r"re:.*\.layers\.(\d+)\.(self_attn|mlp).*", True),
        (r"re:^model\.layers\.\d+\.mlp\.experts\.\d+\..*_proj$", True),
        (r"re:.*?layers.*?(experts|shared_experts)", True),
        (r"re:model[.]layers\.[*+()]+", False),
        ("model.layers.**.experts", True),
        ("model.layers.?.mlp.experts", True),
    ],
)
def test_patterns_as_tools_write_them_are_searched_for(pattern: str, covered: bool) -> None:
    assert covers(pattern, "model.layers.3.mlp.experts\nmodel.layers.3.mlp.experts.0.up_proj") is covered


def test_an_expression_that_is_too_complex_is_refused_by_name() -> None:
    with pytest.raises(TooComplex, match="x"):
        covers("re:(x+)+", "model")


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)),
        "a: " + "[" * 150 + "]" * 150,
        "a: " + "[" * 5000,
        "a: &a [*a]",
        "a: [" + "1, " * 30_000 + "1]",
    ],
    ids=["aliases of aliases", "deep", "very deep", "circle", "long"],
)
def test_a_config_file_that_is_too_much_is_left_to_vllm(tmp_path: Path, text: str, deadline: None) -> None:
    (tmp_path / "f.yaml").write_text(text)
    assert config_of(("--config", str(tmp_path / "f.yaml"))) is None


def test_fifos_are_not_waited_for(tmp_path: Path, deadline: None) -> None:
    for name in ("config.json", "p.yaml", "kept"):
        os.mkfifo(tmp_path / name)
    assert described(asked((str(tmp_path),)), {})[1] is None
    assert config_of(("--config", str(tmp_path / "p.yaml"))) is None
    assert cache.kept(tmp_path, "kept") in (None, b"")
    with pytest.raises(Trouble, match="it is a FIFO"):
        read_profiles(str(tmp_path / "p.yaml"), None, {})


def test_numbers_without_measure_and_very_many_words_are_read() -> None:
    assert read(("-tp", "9" * 5000)).number("--tensor-parallel-size") is None
    many = ("--api-key", *("key" for _ in range(100_000)), "-tp", "2", *("--unknown" for _ in range(100_000)))
    assert read(many).number("--tensor-parallel-size") == 2
