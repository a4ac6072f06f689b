"""The variables that an operator keeps from Ray's workers, as vLLM reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from safe_vllm.machine.ray_file import NAME, kept_from_ray
from safe_vllm.plan.ray_notes import KEPT_BACK_FILE


def written(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True)
    (directory / NAME).write_text(text)
    return directory


@pytest.mark.parametrize(
    ("inside", "environment"),
    [
        (".config/vllm", {}),
        ("config/vllm", {"XDG_CONFIG_HOME": "{home}/config"}),
        ("mine", {"VLLM_CONFIG_ROOT": "{home}/mine"}),
        ("mine", {"VLLM_CONFIG_ROOT": "~/mine", "XDG_CONFIG_HOME": "{home}/config"}),
    ],
)
def test_the_file_is_found_where_vllm_looks_for_it(tmp_path: Path, inside: str, environment: dict[str, str]) -> None:
    written(tmp_path / inside, '["A", "B"]')
    places = {name: value.format(home=tmp_path) for name, value in environment.items()}
    assert kept_from_ray({"HOME": str(tmp_path), **places}) == {"A", "B"}


@pytest.mark.parametrize("text", ["", "[", "7", "null", '"A"', "[7, []]", "[" * 9999])
def test_what_is_no_list_of_names_excludes_nothing(tmp_path: Path, text: str) -> None:
    root = written(tmp_path / "r", text)
    assert kept_from_ray({"VLLM_CONFIG_ROOT": str(root)}) == frozenset()


def test_without_a_file_nothing_is_kept_back(tmp_path: Path) -> None:
    assert kept_from_ray({"HOME": str(tmp_path)}) == frozenset()


def test_the_plan_calls_the_file_by_its_name() -> None:
    assert KEPT_BACK_FILE == NAME
