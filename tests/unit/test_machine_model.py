"""The shape of a model is read from its directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from safe_vllm.machine.facts import ModelShape
from safe_vllm.machine.model import candidates, shape


def shape_of(directory: Path, config: dict[str, Any]) -> ModelShape | None:
    (directory / "config.json").write_text(json.dumps(config))
    return shape([str(directory)])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"num_attention_heads": 4, "num_experts": 8, "moe_intermediate_size": 64, "intermediate_size": 128},
            ModelShape(4, 8, 64),
        ),
        ({"num_attention_heads": 32, "num_local_experts": 8, "intermediate_size": 14336}, ModelShape(32, 8, None)),
        ({"num_attention_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1}, ModelShape(128, 256, None)),
        ({"num_attention_heads": 32}, ModelShape(32, 0, None)),
        ({"num_attention_heads": 32, "num_experts": 0}, ModelShape(32, 0, None)),
        ({"n_heads": 48, "ffn_config": {"moe_num_experts": 16}}, ModelShape(48, None, None)),
        ({"num_attention_heads": 64, "moe_num_experts": [64, 64]}, ModelShape(64, 64, None)),
        ({"text_config": {"num_attention_heads": 16, "num_experts": 256}}, ModelShape(16, 256, None)),
        (
            {"thinker_config": {"text_config": {"num_attention_heads": 32, "num_experts": 128}}},
            ModelShape(32, 128, None),
        ),
        ({"num_attention_heads": True, "num_experts": "8"}, ModelShape(None, None, None)),
    ],
)
def test_the_shape_of_a_config_is(tmp_path: Path, config: dict[str, Any], expected: ModelShape) -> None:
    assert shape_of(tmp_path, config) == expected


def test_a_model_that_is_no_directory_or_unreadable_has_no_shape(tmp_path: Path) -> None:
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "config.json").write_text("[]")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text('{"num_experts"')
    assert shape([]) is None
    assert shape(["org/name", str(tmp_path / "list"), str(tmp_path / "broken")]) is None


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
    assert candidates(tuple(line.split())) == expected


def test_the_command_line_beats_the_config_file() -> None:
    assert candidates(("-ep",), {"model": "in-file"}) == ("in-file",)
    assert candidates(("m", "-ep"), {"model": "in-file"}) == ("m", "in-file")
