"""The safety settings that have more than one home: the MoE backend, that of a drafter, and FlashInfer autotune."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from safe_vllm.plan.edit import Config, Words, with_switch, with_value
from safe_vllm.plan.flags import Setting, read
from safe_vllm.plan.grammar import (
    AUTOTUNE,
    KERNEL_CONFIG,
    MOE_BACKEND,
    OPTIMIZATION,
    SPECULATIVE_CONFIG,
    SPECULATIVE_METHOD,
)
from safe_vllm.plan.json_flag import json_setting, with_json_key, with_json_setting

BACKEND_KEY = "moe_backend"
AUTOTUNE_KEY = "enable_flashinfer_autotune"


def moe_backend(words: Sequence[str], config: Config = None) -> Setting:
    """Return the MoE backend in effect: the flag, unless it says ``auto`` and ``--kernel-config`` says more."""
    reading = read(words, config)
    by_flag = reading.setting(MOE_BACKEND)
    setting = (
        by_flag if normal(by_flag.value) != "auto" else json_setting(reading, KERNEL_CONFIG, BACKEND_KEY) or by_flag
    )
    return Setting(normal(setting.value), setting.source)


def with_moe_backend(words: Sequence[str], backend: str, config: Config = None) -> Words:
    """Return ``words`` with this MoE backend in effect, changed wherever the operator named one."""
    if moe_backend(words, config).value == normal(backend):
        return tuple(words)
    changed = with_json_setting(words, KERNEL_CONFIG, BACKEND_KEY, backend, config)
    by_flag = read(changed, config).setting(MOE_BACKEND)
    if by_flag.source == "default" and moe_backend(changed, config).value == normal(backend):
        return changed
    return with_value(changed, MOE_BACKEND, backend, config)


def drafter_method(words: Sequence[str], config: Config = None) -> str | None:
    """Return how a server speculates, such as ``mtp``; empty where it does not say how, ``None`` where it does not."""
    reading = read(words, config)
    by_flag = reading.setting(SPECULATIVE_METHOD)
    if by_flag.value is None and not reading.all(SPECULATIVE_CONFIG):
        return None
    setting = by_flag if by_flag.value is not None else json_setting(reading, SPECULATIVE_CONFIG, "method")
    return str(setting.value).lower() if setting else ""


def drafter_backend(words: Sequence[str], config: Config = None) -> str | None:
    """Return the MoE backend that the drafter has of its own; ``None``: that of the model."""
    setting = json_setting(read(words, config), SPECULATIVE_CONFIG, BACKEND_KEY)
    return normal(setting.value) if setting else None


def with_drafter_backend(words: Sequence[str], backend: str, config: Config = None) -> Words:
    """Return ``words`` with this MoE backend for the drafter, in the operator's own spelling of its configuration."""
    return with_json_key(words, SPECULATIVE_CONFIG, BACKEND_KEY, backend, config)


def autotune(words: Sequence[str], config: Config = None, off_at: Collection[str] = ("0",)) -> Setting:
    """Return whether FlashInfer autotune is on; ``None``: left to vLLM, at a level that is none of ``off_at``."""
    reading = read(words, config)
    by_flag = reading.setting(AUTOTUNE)
    setting = by_flag if by_flag.source != "default" else json_setting(reading, KERNEL_CONFIG, AUTOTUNE_KEY) or by_flag
    level = reading.setting(OPTIMIZATION)
    if setting.value is None and level.value in off_at:
        return Setting(False, level.source)
    return setting


def without_autotune(words: Sequence[str], config: Config = None) -> Words:
    """Return ``words`` with FlashInfer autotune off.

    Beside ``kernel_config.enable_flashinfer_autotune`` the flag makes vLLM exit, so that key is changed instead:
    https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/engine/arg_utils.py#L2750
    """
    if json_setting(read(words, config), KERNEL_CONFIG, AUTOTUNE_KEY) is not None:
        return with_json_setting(words, KERNEL_CONFIG, AUTOTUNE_KEY, False, config)
    return with_switch(words, AUTOTUNE, False, config)


def normal(backend: object) -> str:
    """Return a backend's name as vLLM compares it."""
    return str(backend).lower().replace("-", "_")
