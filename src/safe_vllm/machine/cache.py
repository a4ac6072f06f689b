"""Small files that save work the next time. Without a place for them, or a sound one, there is just nothing kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from safe_vllm.atomic import replace
from safe_vllm.machine.rooted import below

OFF = "SAFE_VLLM_NO_CACHE"
"""Set to anything, nothing is kept and nothing that was kept is used."""
LARGEST_BYTES = 1 << 20


def directory(environment: Mapping[str, str], root: Path = Path("/")) -> Path | None:
    """Return where to keep files; ``None``: nowhere. A relative ``XDG_CACHE_HOME`` does not count, as its rules say."""
    home, cache = environment.get("HOME", ""), environment.get("XDG_CACHE_HOME", "")
    if environment.get(OFF) or not (cache.startswith("/") or home.startswith("/")):
        return None
    return below(root, cache if cache.startswith("/") else f"{home}/.cache") / "safe-vllm"


def kept(place: Path | None, name: str) -> bytes | None:
    """Return what was kept under ``name``. A file that somebody else owns is not ours to believe."""
    if place is None:
        return None
    try:
        # without waiting for a writer, where there is a FIFO in its place
        with os.fdopen(os.open(place / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            is_ours = os.fstat(file.fileno()).st_uid == os.geteuid()
            return file.read(LARGEST_BYTES) if is_ours else None
    except OSError:
        return None


def keep(place: Path | None, name: str, content: bytes) -> None:
    """Keep ``content`` under ``name``, whole or not at all, for this user alone."""
    if place is None:
        return
    with suppress(OSError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(place / name, content, place / f".{name}.{os.urandom(4).hex()}")
