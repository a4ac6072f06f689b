"""The local cache of the Hugging Face hub. The network is never asked.

https://huggingface.co/docs/huggingface_hub/guides/manage-cache
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from string import Template

from safe_vllm.machine.rooted import is_file, text_of

NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
DEFAULT_REVISION = "main"
OTHER_HUB = "VLLM_USE_MODELSCOPE"


def caches(environment: Mapping[str, str], download_dir: str | None = None) -> tuple[Path, ...]:
    """Return the directories that may hold downloaded models; vLLM keeps weights in a download directory of its own."""
    if environment.get(OTHER_HUB, "").lower() in ("1", "true"):
        return ()
    found = (_expanded(place, environment) for place in (cache(environment), download_dir) if place)
    return tuple(Path(place) for place in found)


def snapshot(name: str, revision: str | None, places: Iterable[Path]) -> Path | None:
    """Return the directory of a downloaded model's files; ``revision`` is a branch, a tag or a commit."""
    if not NAME.fullmatch(name):
        return None
    folders = (place / f"models--{name.replace('/', '--')}" for place in places)
    found = (path for folder in folders for path in _snapshots(folder, revision or DEFAULT_REVISION))
    return next((path for path in found if is_file(path / "config.json")), None)


def _snapshots(folder: Path, revision: str) -> Iterator[Path]:
    commit = (text_of(folder / "refs" / revision, 256) or "").strip()
    if commit:
        yield folder / "snapshots" / commit
    yield folder / "snapshots" / revision


def cache(environment: Mapping[str, str]) -> str | None:
    """Return the directory of downloaded models as the variables name it; ``None``: there is no home either."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if place := environment.get(name):
            return place
    if home := environment.get("HF_HOME"):
        return f"{home}/hub"
    base = environment.get("XDG_CACHE_HOME") or (f"{environment['HOME']}/.cache" if "HOME" in environment else None)
    return f"{base}/huggingface/hub" if base else None


def _expanded(place: str, environment: Mapping[str, str]) -> str:
    home = environment.get("HOME", "~")
    place = home + place[1:] if place == "~" or place.startswith("~/") else place
    return Template(place).safe_substitute(environment)
