"""Builds the ladder: what each rung changes, on top of all rungs above it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from safe_vllm.machine.facts import Machine
from safe_vllm.plan import variables
from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.grammar import AUTOTUNE, MOE_BACKEND
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import (
    AS_ASKED,
    LESS_PARALLEL,
    NO_AUTOTUNE,
    NO_EXPERT_PARALLEL,
    TRITON,
    Ladder,
    LeftOut,
    Plan,
    Rung,
)
from safe_vllm.plan.parallelism import less_parallel, no_expert_parallel
from safe_vllm.plan.profile import Profile, RungEntry
from safe_vllm.plan.settings import autotune, moe_backend, with_moe_backend, without_autotune

RELIEVES = {
    AS_ASKED: frozenset[str](),
    # Without tuning every FlashInfer operator runs its default tactic: MoE, GEMM and attention alike.
    NO_AUTOTUNE: frozenset({"autotune", "gemm", "attention"}),
    # Another MoE backend has other kernels, and none of the operators that were being tuned.
    TRITON: frozenset({"moe", "autotune"}),
    # The shapes that experts see change with the number of ranks; without DP there is no all-to-all.
    LESS_PARALLEL: frozenset({"parallel", "all-to-all", "moe"}),
    NO_EXPERT_PARALLEL: frozenset({"parallel", "all-to-all", "moe"}),
}
"""The suspects that each rung's own step answers; what the rungs above changed did not help, so it is not repeated."""


@dataclass(frozen=True)
class Scene:
    """All that the steps look at, so that each takes one argument beside the words."""

    profile: Profile
    machine: Machine
    dialect: Dialect
    environment: Mapping[str, str]
    config: Config

    def unread(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of the variables that nobody installed here reads."""
        return variables.unread(names, self.dialect, self.machine.installation.flashinfer)


Step = Callable[[Words, RungEntry, Scene], Words | LeftOut]


def make_plan(
    intent: Intent,
    profile: Profile,
    because: str,
    machine: Machine,
    dialect: Dialect,
    environment: Mapping[str, str],
    config: Config = None,
    without: Collection[str] = (),
) -> Plan:
    """Return the plan for what the operator asked for, on this machine, with the operator's environment.

    ``without`` names rungs that vLLM refused: those below do not make their change. Such a rung stays where it is, so
    every rung down to the last refused one is the same as in the plan before.
    """
    scene = Scene(profile, machine, dialect, environment, config)
    ladder = _ladder(intent.words, scene, without)
    set_by_us = {name for rung in ladder.rungs for name, _ in rung.environment}
    return Plan(profile.name, because, ladder, scene.unread(set_by_us), _notes(scene))


def _ladder(words: Words, scene: Scene, without: Collection[str]) -> Ladder:
    rungs: list[Rung] = []
    left_out: list[LeftOut] = []
    ours = variables.base(scene.profile, scene.machine)
    last = Rung(AS_ASKED, words, variables.merged((), ours, scene.environment))
    for entry in scene.profile.ladder:
        rung = _stepped(last, entry, scene)
        if isinstance(rung, LeftOut):
            left_out.append(rung)
            continue
        if twin := next((above for above in rungs if _is_same(above, rung, scene)), None):
            left_out.append(LeftOut(entry.rung, f"same command as {twin.name}"))
        else:
            rungs.append(rung)
        if rung.name not in without:
            last = rung
        elif rung.name == AS_ASKED:
            last = _without_backend(last, scene)
    return Ladder(tuple(rungs), tuple(left_out))


def _stepped(last: Rung, entry: RungEntry, scene: Scene) -> Rung | LeftOut:
    """Return the rung that makes its own change on top of ``last``."""
    changed = STEPS[entry.rung](last.words, entry, scene)
    if isinstance(changed, LeftOut):
        return changed
    ours = variables.merged(last.environment, entry.environment, scene.environment)
    return Rung(entry.rung, changed, ours, entry.note)


def _without_backend(last: Rung, scene: Scene) -> Rung:
    """Return what is left of the first rung when the backend that it asked for was refused."""
    return replace(last, words=with_moe_backend(last.words, "auto", scene.config))


def _is_same(above: Rung, below: Rung, scene: Scene) -> bool:
    """Return whether vLLM could not tell the two apart: what nobody reads makes no difference."""
    return _told(above, scene) == _told(below, scene)


def _told(rung: Rung, scene: Scene) -> tuple[Words, dict[str, str]]:
    unread = scene.unread(name for name, _ in rung.environment)
    return rung.words, {name: value for name, value in rung.environment if name not in unread}


def _as_asked(words: Words, entry: RungEntry, scene: Scene) -> Words | LeftOut:
    """Ask for the profile's MoE backend where the operator asks for none."""
    wanted = scene.profile.moe_backend
    is_free = not scene.dialect.missing(MOE_BACKEND) and moe_backend(words, scene.config).source == "default"
    asked = with_moe_backend(words, wanted, scene.config) if wanted and is_free else words
    return _with_entry_backend(asked, entry, scene)


def _no_autotune(words: Words, entry: RungEntry, scene: Scene) -> Words | LeftOut:
    if because := scene.dialect.missing(AUTOTUNE):
        return LeftOut(NO_AUTOTUNE, because)
    is_off = autotune(words, scene.config, scene.dialect.levels_without_autotune).value is False
    changed = words if is_off else without_autotune(words, scene.config)
    return _with_entry_backend(changed, entry, scene)


def _triton(words: Words, entry: RungEntry, scene: Scene) -> Words | LeftOut:
    if because := _no_experts(scene) or scene.dialect.missing(MOE_BACKEND):
        return LeftOut(TRITON, because)
    return with_moe_backend(words, entry.moe_backend or "triton", scene.config)


def _less_parallel(words: Words, entry: RungEntry, scene: Scene) -> Words | LeftOut:
    if because := _no_experts(scene):
        return LeftOut(LESS_PARALLEL, because)
    changed = less_parallel(words, scene.config, scene.environment, scene.machine.model)
    return changed if isinstance(changed, LeftOut) else _with_entry_backend(changed, entry, scene)


def _no_expert_parallel(words: Words, entry: RungEntry, scene: Scene) -> Words | LeftOut:
    if because := _no_experts(scene):
        return LeftOut(NO_EXPERT_PARALLEL, because)
    changed = no_expert_parallel(words, scene.config, scene.environment, scene.machine.model)
    return changed if isinstance(changed, LeftOut) else _with_entry_backend(changed, entry, scene)


STEPS: Mapping[str, Step] = {
    AS_ASKED: _as_asked,
    NO_AUTOTUNE: _no_autotune,
    TRITON: _triton,
    LESS_PARALLEL: _less_parallel,
    NO_EXPERT_PARALLEL: _no_expert_parallel,
}


def _with_entry_backend(words: Words, entry: RungEntry, scene: Scene) -> Words:
    if entry.moe_backend is None or scene.dialect.missing(MOE_BACKEND):
        return words
    return with_moe_backend(words, entry.moe_backend, scene.config)


def _no_experts(scene: Scene) -> str | None:
    model = scene.machine.model
    return "the model has no experts" if model and model.experts == 0 else None


def _notes(scene: Scene) -> tuple[str, ...]:
    notes = list(scene.dialect.notes)
    if scene.machine.has_driver and scene.machine.gpu_note:
        notes.append(scene.machine.gpu_note)
    if scene.profile.moe_backend and (because := scene.dialect.missing(MOE_BACKEND)):
        notes.append(f"moe_backend {scene.profile.moe_backend} of the profile is not used: {because}")
    wanted = variables.wanted(scene.profile, scene.machine)
    notes += [f"{name} is set in the environment and stays as it is" for name in wanted if name in scene.environment]
    return tuple(notes)
