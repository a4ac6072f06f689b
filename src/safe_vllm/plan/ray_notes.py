"""What an operator should know about variables that do not, or not always, reach workers that Ray starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from safe_vllm.plan.edit import Words
from safe_vllm.plan.flags import Reading, read
from safe_vllm.plan.grammar import EXECUTOR
from safe_vllm.plan.ray import Means, means_of
from safe_vllm.plan.scene import Scene
from safe_vllm.plan.split import sizes_of

KEPT_BACK_FILE = "ray_non_carry_over_env_vars.json"
"""Lists, in ``VLLM_CONFIG_ROOT``, what the operator does not want handed over.

https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/ray/ray_env.py#L13
"""


def ray_notes(words: Words, ours: Collection[str], scene: Scene) -> Iterator[str]:
    """Say which of ``ours``, the variables that we set, may not reach Ray's workers: a sentence for each reason.

    What nobody reads is not missed anywhere.
    """
    reading, kept_back = read(words, scene.config), scene.kept_from_ray
    is_used = _is_taken_for_size(reading, scene)
    means = means_of(reading, scene.environment, scene.dialect, is_used=is_used)
    if means is None:
        return
    own, caches = scene.dialect.table.ray.own, _fresh_caches(ours, scene)
    names = sorted(set(ours) - scene.unread(ours) - {means.asks})
    if out := [name for name in (*names, *caches) if name in kept_back]:
        yield f"Ray's workers do not get {_and(out)}: {KEPT_BACK_FILE} excludes {_it(out)}"
    if out := [name for name in names if name in own]:
        yield f"Ray's workers do not get {_and(out)}: each has its own"
    names = [name for name in names if name not in kept_back and name not in own]
    yield from _lost(names, [name for name in caches if name not in kept_back], means, scene)
    if means.yields and (names := [name for name in names if name not in means.missed]):
        yield f"Ray's workers get {_and(names)} only where their node has not set {_it(names)} already"


def _lost(names: Sequence[str], caches: Sequence[str], means: Means, scene: Scene) -> Iterator[str]:
    """Tell what the installed version cannot hand over. A cluster that vLLM itself starts inherits everything."""
    at = f"vLLM {scene.dialect.version}" if scene.dialect.version else "vLLM"

    def is_lost(name: str) -> bool:
        return name in means.missed or not (means.asks or means.carries(name, scene.environment))

    if lost := [name for name in names if is_lost(name)]:
        yield (
            f"{at} cannot hand {_and(lost)} to Ray's workers: "
            f"where Ray runs already, set {_it(lost)} on each node before Ray is started"
        )
    if lost := [name for name in caches if is_lost(name)]:
        yield f"where Ray runs already, fresh caches do not reach its workers: {at} cannot hand on {_and(lost)}"


def _fresh_caches(ours: Collection[str], scene: Scene) -> list[str]:
    """Return the variables by which a launch would take fresh caches, as far as they are not set anyway."""
    if "caches" in scene.pins:
        return []
    return sorted({cache.variable for cache in scene.dialect.caches if not cache.stays} - set(ours))


def _is_taken_for_size(reading: Reading, scene: Scene) -> bool:
    """Whether vLLM takes Ray unasked, since an engine needs more GPUs than there are."""
    sizes, gpus = sizes_of(reading), len(scene.machine.gpus)
    is_free = reading.setting(EXECUTOR).value is None and scene.dialect.table.ray.by_size.covers(scene.dialect.at)
    return is_free and bool(gpus and sizes and sizes.tensor * sizes.pipeline > gpus)


def _and(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
