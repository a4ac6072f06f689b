"""The file in which an operator lists the variables that workers of Ray are not to get."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safe_vllm.machine.rooted import text_of

NAME = "ray_non_carry_over_env_vars.json"


def kept_from_ray(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the names in the file, as vLLM reads it; what it cannot read excludes nothing.

    https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/ray/ray_env.py#L13
    """
    home = environment.get("HOME", "")
    config = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    root = environment.get("VLLM_CONFIG_ROOT") or f"{config}/vllm"
    path = Path(f"{home}/{root[2:]}" if root.startswith("~/") else root, NAME)
    try:
        found = json.loads(text_of(path) or "[]")
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(name for name in found if isinstance(name, str)) if isinstance(found, list | dict) else frozenset()
