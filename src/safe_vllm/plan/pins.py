"""Settings that the operator pinned: no rung changes them, whatever they are spelled like."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.edit import Words
from safe_vllm.plan.flags import read
from safe_vllm.plan.fresh_caches import compile_cache
from safe_vllm.plan.grammar import (
    BATCHED_TOKENS,
    DATA_PARALLEL,
    DATA_PARALLEL_LOCAL,
    DATA_PARALLEL_START_RANK,
    EXPERT_PARALLEL,
    TENSOR_PARALLEL,
)
from safe_vllm.plan.intent import PINS
from safe_vllm.plan.ladder import TRITON, LeftOut, Rung
from safe_vllm.plan.profile import Profile, RungEntry
from safe_vllm.plan.scene import Scene
from safe_vllm.plan.settings import autotune, drafter_backend, moe_backend

ADDITIONS = {
    "moe_backend": ("moe-backend", TRITON),
    "max_num_batched_tokens": ("workspace", None),
    "attention_workspace_mib": ("workspace", None),
}
"""What a profile may add to a rung, with the setting that it changes, and the rung whose own step it is."""
FLAGS_OF = {
    "workspace": (BATCHED_TOKENS,),
    "data-parallel-size": (DATA_PARALLEL, DATA_PARALLEL_LOCAL, DATA_PARALLEL_START_RANK),
    "tensor-parallel-size": (TENSOR_PARALLEL,),
    "expert-parallel": (EXPERT_PARALLEL,),
}


def within(profile: Profile, pins: Collection[str], dialect: Dialect) -> Profile:
    """Return the profile without what would change a pinned setting beside the steps of its rungs."""
    return msgspec.structs.replace(
        profile,
        environment=_unpinned(profile.environment, pins, dialect),
        moe_backend=None if "moe-backend" in pins else profile.moe_backend,
        ladder=tuple(_within(entry, pins, dialect) for entry in profile.ladder),
    )


def kept(before: Rung, rung: Rung, scene: Scene) -> Rung | LeftOut:
    """Return the rung, or that it is left out: its step, on top of ``before``, would change a pinned setting."""
    pinned = [name for name in PINS if name in scene.pins]
    changed = [name for name in pinned if _value(name, before, scene) != _value(name, rung, scene)]
    verb = "is" if len(changed) == 1 else "are"
    because = f"it would change {' and '.join(changed)}, which {verb} pinned with --pin"
    return LeftOut(rung.name, because) if changed else rung


def dropped(profile: Profile, words: Words, scene: Scene) -> Iterator[str]:
    """Say what of the ``profile`` is not used because of the pins, one sentence each."""
    pins, dialect = scene.pins, scene.dialect
    is_free = moe_backend(words, scene.config).source == "default"
    if profile.moe_backend and "moe-backend" in pins and is_free:
        yield f"moe_backend {profile.moe_backend} of the profile is not used: moe-backend is pinned"
    ours = [*profile.environment, *(name for entry in profile.ladder for name in entry.environment)]
    for name in dict.fromkeys(ours):
        if (pin := dialect.pinned_by(name)) in pins and name not in scene.environment:
            yield f"{name} of the profile is not set: {pin} is pinned"
    for entry in profile.ladder:
        left = _within(entry, pins, dialect)
        for key, (pin, _) in ADDITIONS.items():
            if getattr(entry, key) != getattr(left, key):
                yield f"{key} of the profile is not used at {entry.rung}: {pin} is pinned"


def _within(entry: RungEntry, pins: Collection[str], dialect: Dialect) -> RungEntry:
    blank = RungEntry(entry.rung)
    pinned = (key for key, (pin, rung) in ADDITIONS.items() if pin in pins and entry.rung != rung)
    environment = _unpinned(entry.environment, pins, dialect)
    return msgspec.structs.replace(entry, environment=environment, **{key: getattr(blank, key) for key in pinned})


def _unpinned(environment: dict[str, str], pins: Collection[str], dialect: Dialect) -> dict[str, str]:
    return {name: value for name, value in environment.items() if dialect.pinned_by(name) not in pins}


def _value(pin: str, rung: Rung, scene: Scene) -> tuple[object, ...]:
    """Return all that vLLM and FlashInfer would take for the setting, from words and variables."""
    environment = {**scene.environment, **dict(rung.environment)}
    by_variables = {name: value for name, value in environment.items() if scene.dialect.pinned_by(name) == pin}
    return (by_variables, *_by_words(pin, rung.words, scene))


def _by_words(pin: str, words: Words, scene: Scene) -> tuple[object, ...]:
    config, reading = scene.config, read(words, scene.config)
    if pin == "moe-backend":
        return moe_backend(words, config).value, drafter_backend(words, config)
    if pin == "autotune":
        return (autotune(words, config, scene.dialect.levels_without_autotune).value,)
    if pin == "caches":
        return (compile_cache(words, config),)
    return tuple(reading.setting(name).value for name in FLAGS_OF[pin])
