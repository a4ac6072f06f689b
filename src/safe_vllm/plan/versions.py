"""Which flags a release of vLLM knows."""

from __future__ import annotations

import re

from safe_vllm.plan.grammar import FLAGS


def release(version: str | None) -> tuple[int, int] | None:
    """Return major and minor of a version such as ``0.32.0+cpu``; ``None`` where it is unknown."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def missing(flag: str, version: str | None) -> str | None:
    """Return why this release has no such flag; ``None``: it has. An unknown release is taken for the newest."""
    since, installed = FLAGS[flag].since, release(version)
    if since is None or installed is None or installed >= since:
        return None
    return f"{flag} came with vLLM {since[0]}.{since[1]}, and {version} is installed"
