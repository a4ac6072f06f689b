"""Every safety setting of a rung with its value and where that came from: default < profile < user < rung."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.flags import Setting, read
from safe_vllm.plan.grammar import AUTOTUNE, DATA_PARALLEL, EXPERT_PARALLEL, MOE_BACKEND, TENSOR_PARALLEL
from safe_vllm.plan.settings import autotune, moe_backend

ORIGINS = {"default": "vLLM's default", "config": "the --config file", "user": "the command line"}


@dataclass(frozen=True)
class Sourced:
    """One setting as vLLM will take it."""

    name: str
    """The flag that stands for it."""
    value: str
    source: str


def sourced(words: Words, asked: Words, config: Config, off_at: Collection[str], changed_by: str) -> list[Sourced]:
    """Return the safety settings of ``words``; what differs from ``asked`` was ``changed_by`` somebody of ours."""
    before = dict(_settings(asked, config, off_at))
    return [
        Sourced(name, _text(setting), ORIGINS[setting.source] if setting == before[name] else changed_by)
        for name, setting in _settings(words, config, off_at)
    ]


def _settings(words: Words, config: Config, off_at: Collection[str]) -> Sequence[tuple[str, Setting]]:
    reading = read(words, config)
    return (
        (MOE_BACKEND, moe_backend(words, config)),
        (AUTOTUNE, autotune(words, config, off_at)),
        *((name, reading.setting(name)) for name in (DATA_PARALLEL, TENSOR_PARALLEL, EXPERT_PARALLEL)),
    )


def _text(setting: Setting) -> str:
    if setting.value is None:
        return "left to vLLM"
    return {True: "on", False: "off"}.get(setting.value, setting.value) if isinstance(setting.value, bool) else setting.value
