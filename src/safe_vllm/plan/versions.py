"""Which flags a release of vLLM knows."""

from __future__ import annotations

import re

from safe_vllm.plan.grammar import FLAGS

AUTOTUNE_OFF_AT = {(0, 21): ("0", "1", "2")}
"""Releases that differ from all others, in which only level 0 has it off.

https://github.com/vllm-project/vllm/blob/v0.21.0/vllm/config/vllm.py#L214
"""


def release(version: str | None) -> tuple[int, int] | None:
    """Return major and minor of a version such as ``0.32.0+cpu``; ``None`` where it is unknown."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def levels_without_autotune(version: str | None) -> tuple[str, ...]:
    """Return the optimisation levels at which this release has FlashInfer autotune off unless told otherwise."""
    return AUTOTUNE_OFF_AT.get(release(version) or (0, 0), ("0",))


def missing(flag: str, version: str | None) -> str | None:
    """Return why this release has no such flag; ``None``: it has. An unknown release is taken for the newest."""
    since, installed = FLAGS[flag].since, release(version)
    if since is None or installed is None or installed >= since:
        return None
    return f"{flag} came with vLLM {since[0]}.{since[1]}, and {version} is installed"
