"""What is known about the fault that the operator's own settings would meet, and the rung that avoids it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from safe_vllm.plan.edit import Words
from safe_vllm.plan.flags import read
from safe_vllm.plan.grammar import EXPERT_PARALLEL
from safe_vllm.plan.known_bad import Combination, KnownBad, sentence, worst
from safe_vllm.plan.ladder import RUNG_NAMES, Ladder
from safe_vllm.plan.scene import Scene
from safe_vllm.plan.settings import autotune, drafter_method, moe_backend


def combination(words: Words, scene: Scene) -> Combination:
    """Return what ``words`` are about to run here."""
    reading, installed = read(words, scene.config), scene.machine.installation
    return Combination(
        architecture=scene.machine.architecture,
        gpu=scene.machine.gpus[0].name if scene.machine.gpus else None,
        compute_capability=scene.compute_capability,
        vllm=installed.vllm,
        flashinfer=installed.flashinfer,
        moe_backend=scene.backend(words) if _runs_experts(words, scene) else None,
        weight_format=scene.model.weight_format,
        autotunes=autotune(words, scene.config, scene.dialect.levels_without_autotune).value is not False,
        data_parallel=scene.is_data_parallel(words),
        expert_parallel=reading.setting(EXPERT_PARALLEL).value is True,
        speculates=drafter_method(words, scene.config) is not None,
    )


def known_fault(words: Words, scene: Scene, table: Iterable[KnownBad]) -> KnownBad | None:
    """Return what ``words`` are known to meet here; ``None``: nothing."""
    return worst(table, combination(words, scene))


def entry_of(ladder: Ladder, words: Words, scene: Scene) -> tuple[int, str | None]:
    """Return the place of the rung that avoids what is known, and why it is not the first."""
    if scene.bad is None:
        return 0, None
    names = [rung.name for rung in ladder.rungs]
    wanted = RUNG_NAMES.index(scene.bad.start_at)
    # where that rung is left out, the one above it avoids a part of what is known
    place = max(place for place, name in enumerate(names) if RUNG_NAMES.index(name) <= wanted)
    return (place, sentence(scene.bad, combination(words, scene), names[place])) if place else (0, None)


def explained(ladder: Ladder, entry: int, scene: Scene) -> Ladder:
    """Return the ladder in which the rung that avoids what is known says so: a report, not the profile."""
    if scene.bad is None:
        return ladder
    links = tuple(dict.fromkeys(link for link in (scene.bad.link, scene.bad.verified_by) if link))
    start = replace(ladder.rungs[entry], because=f"it avoids a known {scene.bad.fault}", links=links)
    return replace(ladder, rungs=(*ladder.rungs[:entry], start, *ladder.rungs[entry + 1 :]))


def _runs_experts(words: Words, scene: Scene) -> bool:
    """Whether there is an MoE backend at all. An operator who names one knows that the model has experts."""
    return bool(scene.model.experts) or moe_backend(words, scene.config).value != "auto"
