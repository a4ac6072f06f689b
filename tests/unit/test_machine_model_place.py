"""Where a model that is on this machine really is."""

from __future__ import annotations

from pathlib import Path

import pytest

from safe_vllm.machine.model_place import model_place


def test_a_directory_or_a_file_is_named_by_its_real_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.gguf").touch()
    (tmp_path / "current").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    real = str(tmp_path.resolve() / "a")
    assert {model_place(name) for name in ("a", "./a", "a/", "./current", f"{tmp_path}/current/", "a/../a")} == {real}
    assert model_place("current/model.gguf") == f"{real}/model.gguf"


@pytest.mark.parametrize(
    "name", [None, "", "Qwen/Qwen3-30B-A3B", "s3://bucket/model", "/not/there", "a\0b", "x" * 5000]
)
def test_what_is_not_on_this_machine_has_no_place(name: str | None) -> None:
    assert model_place(name) is None
