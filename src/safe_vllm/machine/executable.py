"""Finding the vLLM command that will be started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from safe_vllm.errors import Status, Trouble
from safe_vllm.machine.rooted import is_file


def find(words: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with the first one as an absolute path. Raises Trouble (127 not found, 126 not executable)."""
    name, *rest = words or ("",)
    search = environment.get("PATH", os.defpath)
    if found := shutil.which(name, path=search):
        return (str(Path(found).absolute()), *rest)
    if there := _not_executable(name, search):
        hint = f"make it executable (chmod +x {there}) or name another with --vllm"
        raise Trouble(f"{there} is not executable", hint=hint, status=Status.NOT_EXECUTABLE)
    hint = "install vLLM, put it on PATH, or name it with --vllm"
    raise Trouble(f"no command {name!r} was found", hint=hint, status=Status.NOT_FOUND)


def _not_executable(name: str, search: str) -> Path | None:
    places = [Path(name)] if "/" in name else [Path(folder) / name for folder in search.split(os.pathsep) if folder]
    return next((place for place in places if is_file(place)), None)
