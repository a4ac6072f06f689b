"""Every safety setting of a rung with its value and where that came from: default < profile < user < rung."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.flags import Setting, read
from safe_vllm.plan.grammar import AUTOTUNE, DATA_PARALLEL, EXPERT_PARALLEL, MOE_BACKEND, TENSOR_PARALLEL
from safe_vllm.plan.ladder import AS_ASKED, Rung
from safe_vllm.plan.settings import autotune, moe_backend

ORIGINS = {"default": "vLLM's default", "config": "the --config file", "user": "the command line"}


@dataclass(frozen=True)
class Sourced:
    """One setting as vLLM will take it."""

    name: str
    """The flag that stands for it."""
    value: str
    source: str


def sourced(rung: Rung, asked: Words, config: Config, off_at: Collection[str]) -> tuple[Sourced, ...]:
    """Return the safety settings of a rung; what differs from what was ``asked`` is the profile's or the rung's."""
    before = dict(_settings(asked, config, off_at))
    ours = "the profile" if rung.name == AS_ASKED else "this rung or one above"
    return tuple(
        Sourced(name, _text(setting), ORIGINS[setting.source] if setting == before[name] else ours)
        for name, setting in _settings(rung.words, config, off_at)
    )


def _settings(words: Words, config: Config, off_at: Collection[str]) -> Sequence[tuple[str, Setting]]:
    reading = read(words, config)
    return (
        (MOE_BACKEND, moe_backend(words, config)),
        (AUTOTUNE, autotune(words, config, off_at)),
        *((name, reading.setting(name)) for name in (DATA_PARALLEL, TENSOR_PARALLEL, EXPERT_PARALLEL)),
    )


def _text(setting: Setting) -> str:
    if isinstance(setting.value, bool):
        return "on" if setting.value else "off"
    return "left to vLLM" if setting.value is None else setting.value
