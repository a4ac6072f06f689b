"""Finding the vLLM command."""

from __future__ import annotations

from pathlib import Path

import pytest

from safe_vllm.errors import Trouble
from safe_vllm.machine.executable import find


def command(folder: Path, name: str, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_it_is_found_on_the_operators_path(tmp_path: Path) -> None:
    path = command(tmp_path / "bin", "vllm")
    assert find(("vllm", "--x"), {"PATH": f"/nowhere:{tmp_path / 'bin'}"}) == (str(path), "--x")


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = command(tmp_path, "my-vllm")
    assert find((str(path),), {}) == (str(path),)


def test_what_is_not_there_is_status_127(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="no command 'vllm' was found") as caught:
        find(("vllm",), {"PATH": str(tmp_path)})
    assert caught.value.status == 127


def test_what_is_not_executable_is_status_126(tmp_path: Path) -> None:
    path = command(tmp_path / "bin", "vllm", 0o644)
    with pytest.raises(Trouble, match=f"{path} is not executable") as caught:
        find(("vllm",), {"PATH": str(tmp_path / "bin")})
    assert caught.value.status == 126


@pytest.mark.parametrize("words", [(), ("",)])
def test_no_command_at_all_is_not_found(words: tuple[str, ...]) -> None:
    with pytest.raises(Trouble) as caught:
        find(words, {"PATH": "/bin"})
    assert caught.value.status == 127
