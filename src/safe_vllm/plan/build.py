"""Builds the plan: the ladder with every rung on top of those above it, and where a launch starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from safe_vllm.machine.facts import Machine, ModelShape
from safe_vllm.plan import variables
from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.entry import explained, known_fault
from safe_vllm.plan.flags import read
from safe_vllm.plan.fresh_caches import with_fresh_caches
from safe_vllm.plan.grammar import QUANTIZATION
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.known_bad import KnownBad, fixes
from safe_vllm.plan.ladder import AS_ASKED, NO_AUTOTUNE, Ladder, LeftOut, Plan, Rung
from safe_vllm.plan.model_name import guessed, name_in
from safe_vllm.plan.notes import notes
from safe_vllm.plan.pins import dropped, kept, within
from safe_vllm.plan.profile import Profile
from safe_vllm.plan.ray import reaching
from safe_vllm.plan.ray_notes import ray_notes
from safe_vllm.plan.remembered import Remembered
from safe_vllm.plan.scene import Scene
from safe_vllm.plan.settings import autotune, with_moe_backend
from safe_vllm.plan.start import Start, start_of
from safe_vllm.plan.steps import stepped

NOTHING = Remembered()


def scene_of(
    intent: Intent,
    profile: Profile,
    *,
    machine: Machine,
    dialect: Dialect,
    environment: Mapping[str, str],
    config: Config = None,
    kept_from_ray: Collection[str] = (),
) -> Scene:
    """Return what a plan is made of, for what the operator asked for; what is known to fail is not looked up yet."""
    return Scene(
        profile=profile,
        machine=machine,
        dialect=dialect,
        environment=environment,
        config=config,
        model=_model_shape(intent.words, machine, config),
        pins=intent.pins,
        kept_from_ray=kept_from_ray,
    )


def make_plan(
    intent: Intent,
    scene: Scene,
    because: str,
    without: Collection[str] = (),
    *,
    known_bad: tuple[KnownBad, ...] = (),
    remembered: Remembered = NOTHING,
) -> Plan:
    """Return the plan for what the operator asked for in this scene, whose profile was chosen ``because`` of that.

    ``without`` names rungs that vLLM refused: those below do not make their change. Such a rung stays where it is, so
    every rung down to the last refused one is as before. Raises ``Trouble`` for a ``--start-at`` that there is not.
    """
    profile = scene.profile
    scene = replace(scene, profile=within(profile, scene.pins, scene.dialect))
    scene = replace(scene, bad=known_fault(_at_the_top(intent.words, scene), scene, known_bad))
    ladder = _ladder(intent.words, scene, without, profile)
    first = ladder.rungs[0].words
    start = start_of(intent, ladder, first, scene, remembered)
    ladder = _as_started(ladder, start, scene)
    set_by_us = {name for rung in ladder.rungs for name, _ in rung.environment}
    return Plan(
        profile=profile.name,
        because=because,
        ladder=ladder,
        entry=start.place,
        entry_because=start.because,
        unread=scene.unread(set_by_us),
        notes=(*_remarks(intent, profile, first, scene), *ray_notes(first, set_by_us, scene)),
        pins=scene.pins,
        observed=Rung(AS_ASKED, intent.words) if intent.observes_only else None,
        forgets=start.forgets,
        caches=start.caches,
        fixed_in=_fixed_in(scene),
    )


def _fixed_in(scene: Scene) -> tuple[str, ...]:
    fixed = fixes(scene.bad) if scene.bad else ""
    return (fixed,) if fixed else ()


def _remarks(intent: Intent, profile: Profile, words: Words, scene: Scene) -> tuple[str, ...]:
    is_vain = intent.observes_only and intent.start_at
    vain = (f"--start-at {intent.start_at} has no effect with --observe-only",) if is_vain else ()
    return (*notes(words, scene), *dropped(profile, intent.words, scene), *vain)


def _as_started(ladder: Ladder, start: Start, scene: Scene) -> Ladder:
    """Return the ladder with what follows from where it is entered: a reason, and caches of ours."""
    ladder = explained(ladder, start.place, scene) if start.avoids_known else ladder
    if start.caches is None:
        return ladder
    around = (start.caches, scene.environment, scene.dialect, scene.config)
    return replace(ladder, rungs=tuple(with_fresh_caches(rung, *around) for rung in ladder.rungs))


def _model_shape(words: Words, machine: Machine, config: Config) -> ModelShape:
    """Return what is known of the model's shape: by its files, else by its name."""
    if machine.model is not None:
        return machine.model
    name, asked = name_in(words, config), read(words, config).setting(QUANTIZATION).value
    return guessed(name or "", str(asked) if asked else None) if name or asked else ModelShape()


def _at_the_top(words: Words, scene: Scene) -> Words:
    """Return what the first rung runs: the profile may have asked for a backend."""
    rung = stepped(Rung(AS_ASKED, words), scene.profile.ladder[0], scene)
    return words if isinstance(rung, LeftOut) else rung.words


def _ladder(words: Words, scene: Scene, without: Collection[str], profile: Profile) -> Ladder:
    """Return the ladder of the ``scene``, whose profile is what the pins leave of ``profile``."""
    rungs: list[Rung] = []
    left_out: list[LeftOut] = []
    ours = variables.base(scene.profile, scene.machine)
    last = Rung(AS_ASKED, words, variables.merged((), ours, scene.environment))
    for entry, whole in zip(scene.profile.ladder, profile.ladder, strict=True):
        rung = stepped(last, entry, scene)
        rung = kept(last, rung, scene) if isinstance(rung, Rung) else rung
        if isinstance(rung, LeftOut):
            left_out.append(rung)
            continue
        if twin := next((above for above in rungs if _is_same(above, rung, scene)), None):
            left_out.append(LeftOut(entry.rung, _why_twin(twin, rung, scene, is_whole=entry == whole)))
        else:
            rungs.append(rung)
        if rung.name not in without:
            last = rung
        elif rung.name == AS_ASKED:
            last = _without_backend(last, scene)
    around = (scene.environment, scene.dialect, scene.config)
    return Ladder(tuple(reaching(rung, *around) for rung in rungs), tuple(left_out))


def _without_backend(last: Rung, scene: Scene) -> Rung:
    """Return what is left of the first rung when the backend that it asked for was refused."""
    if "moe-backend" in scene.pins:
        return last
    return replace(last, words=with_moe_backend(last.words, "auto", scene.config))


def _why_twin(above: Rung, below: Rung, scene: Scene, *, is_whole: bool) -> str:
    is_off = autotune(above.words, scene.config, scene.dialect.levels_without_autotune).value is False
    nothing = "it would change nothing" if is_whole else "it would change nothing but what is pinned with --pin"
    reason = "autotune is off already" if below.name == NO_AUTOTUNE and is_off else nothing
    return f"{reason}: same command as {above.name}"


def _is_same(above: Rung, below: Rung, scene: Scene) -> bool:
    """Return whether vLLM could not tell the two apart: what nobody reads makes no difference."""
    return _told(above, scene) == _told(below, scene)


def _told(rung: Rung, scene: Scene) -> tuple[Words, dict[str, str]]:
    unread = scene.unread(name for name, _ in rung.environment)
    return rung.words, {name: value for name, value in rung.environment if name not in unread}
