"""The safety settings that have more than one home: the MoE backend and FlashInfer autotune."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from safe_vllm.plan.edit import Config, Words, with_switch, with_value
from safe_vllm.plan.flags import Setting, read
from safe_vllm.plan.grammar import AUTOTUNE, MOE_BACKEND, OPTIMIZATION
from safe_vllm.plan.kernel_config import kernel_setting, with_kernel_setting

BACKEND_KEY = "moe_backend"
AUTOTUNE_KEY = "enable_flashinfer_autotune"


def moe_backend(words: Sequence[str], config: Config = None) -> Setting:
    """Return the MoE backend in effect: the flag, unless it says ``auto`` and ``--kernel-config`` says more."""
    reading = read(words, config)
    by_flag = reading.setting(MOE_BACKEND)
    setting = by_flag if normal(by_flag.value) != "auto" else kernel_setting(reading, BACKEND_KEY) or by_flag
    return Setting(normal(setting.value), setting.source)


def with_moe_backend(words: Sequence[str], backend: str, config: Config = None) -> Words:
    """Return ``words`` with this MoE backend in effect, changed wherever the operator named one."""
    if moe_backend(words, config).value == normal(backend):
        return tuple(words)
    changed = with_kernel_setting(words, BACKEND_KEY, backend, config)
    by_flag = read(changed, config).setting(MOE_BACKEND)
    if by_flag.source == "default" and moe_backend(changed, config).value == normal(backend):
        return changed
    return with_value(changed, MOE_BACKEND, backend, config)


def autotune(words: Sequence[str], config: Config = None, off_at: Collection[str] = ("0",)) -> Setting:
    """Return whether FlashInfer autotune is on; ``None``: left to vLLM, at a level that is none of ``off_at``."""
    reading = read(words, config)
    by_flag = reading.setting(AUTOTUNE)
    setting = by_flag if by_flag.source != "default" else kernel_setting(reading, AUTOTUNE_KEY) or by_flag
    level = reading.setting(OPTIMIZATION)
    if setting.value is None and level.value in off_at:
        return Setting(False, level.source)
    return setting


def without_autotune(words: Sequence[str], config: Config = None) -> Words:
    """Return ``words`` with FlashInfer autotune off.

    Beside ``kernel_config.enable_flashinfer_autotune`` the flag makes vLLM exit, so that key is changed instead:
    https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/engine/arg_utils.py#L2750
    """
    if kernel_setting(read(words, config), AUTOTUNE_KEY) is not None:
        return with_kernel_setting(words, AUTOTUNE_KEY, False, config)
    return with_switch(words, AUTOTUNE, False, config)


def normal(backend: object) -> str:
    """Return a backend's name as vLLM compares it."""
    return str(backend).lower().replace("-", "_")
