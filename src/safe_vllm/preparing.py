"""Everything that is decided before the first attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from safe_vllm.attempt.child import inherited_environment
from safe_vllm.machine import config_file, executable, profile_files
from safe_vllm.machine.facts import Machine
from safe_vllm.machine.interpreter import script_of
from safe_vllm.machine.look import look
from safe_vllm.machine.model_place import model_place
from safe_vllm.machine.ray_file import kept_from_ray
from safe_vllm.patience import within
from safe_vllm.plan.build import make_plan, scene_of
from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.intent import Intent, Limits
from safe_vllm.plan.ladder import Plan, Rung
from safe_vllm.plan.profile import Profile
from safe_vllm.plan.profile_choice import choose
from safe_vllm.plan.profile_use import limits_of
from safe_vllm.plan.remembered import Remembered
from safe_vllm.plan.scene import Scene
from safe_vllm.plan.sources import Sourced, sourced
from safe_vllm.record import directory
from safe_vllm.record.fingerprint import Fingerprint, fingerprint, model_named
from safe_vllm.record.memory import Memory, Recalled

RECALLS_WITHIN_S = 5.0
SILENT = "the state directory does not answer, so nothing is remembered; give another --state-dir"


@dataclass(frozen=True)
class Prepared:
    """What will be run, and on what grounds."""

    intent: Intent
    vllm: tuple[str, ...]
    environment: Mapping[str, str]
    machine: Machine
    profile: Profile
    limits: Limits
    plan: Plan
    config: Mapping[str, object] | None
    plan_without: Callable[[Collection[str]], Plan]
    """Make the plan again, without the change of these rungs."""
    dialect: Dialect
    memory: Memory
    """What is remembered of launches like this one."""
    problems: tuple[str, ...] = ()
    """What was wrong with the place where it is kept."""

    def settings(self, rung: Rung) -> tuple[Sourced, ...]:
        """Return the safety settings of a rung, each with where its value comes from."""
        return sourced(rung, self.intent.words, self.config, self.dialect.levels_without_autotune)


def prepare(intent: Intent, *, changes_nothing: bool = False) -> Prepared:
    """Look at the machine, or read the recorded one, and make the plan. Raises Trouble; nothing was started then.

    ``changes_nothing``: make no directory, and put nothing aside that is damaged.
    """
    from safe_vllm import known  # slow to import, and not every command plans

    environment = inherited_environment()
    config = config_file.config_of(intent.words)
    vllm, machine = _looked_at(intent, environment, config)
    scene, because = chosen_scene(intent, machine, environment, config)
    memory, recalled = recall(intent, scene, changes_nothing=changes_nothing)
    bad = known.known_bad()
    plan_without = partial(make_plan, intent, scene, because, known_bad=bad, remembered=recalled.remembered)
    plan = plan_without(())
    if config is None and (trouble := config_file.trouble_of(intent.words)):
        plan = replace(plan, notes=(*plan.notes, f"what the --config file says is not in this plan: {trouble}"))
    return Prepared(
        intent=intent,
        vllm=vllm,
        environment=environment,
        machine=machine,
        profile=scene.profile,
        limits=limits_of(scene.profile, intent.asked),
        plan=plan,
        config=config,
        plan_without=plan_without,
        dialect=scene.dialect,
        memory=memory,
        problems=recalled.problems,
    )


def chosen_scene(
    intent: Intent, machine: Machine, environment: Mapping[str, str], config: Mapping[str, object] | None
) -> tuple[Scene, str]:
    """Return what a plan is made of, with the profile that fits, and why it is that one. Raises Trouble."""
    from safe_vllm import known  # as above

    profiles = profile_files.read_profiles(intent.profile, intent.profile_dir, environment)
    profile, because = choose(profiles, machine, intent.profile)
    scene = scene_of(
        intent,
        profile,
        machine=machine,
        dialect=known.dialects().of(machine.installation.vllm, machine.installation.surface),
        environment=environment,
        config=config,
        kept_from_ray=kept_from_ray(environment),
    )
    return scene, because


def recall(intent: Intent, scene: Scene, *, changes_nothing: bool) -> tuple[Memory, Recalled]:
    """Return the memory of launches like this one, and what is in it; nothing where the disk does not answer."""
    place = model_place(model_named(intent.words, scene.config, scene.machine))
    like = fingerprint(
        intent.words,
        scene.config,
        scene.environment,
        scene.machine,
        scene.profile,
        scene.dialect.levels_without_autotune,
        scene.pins,
        place,
    )
    look_up = partial(_recalled, intent, scene.environment, like, changes_nothing=changes_nothing)
    return within(RECALLS_WITHIN_S, look_up) or (Memory(None, like, 0.0), Recalled(Remembered(), (SILENT,)))


def _recalled(
    intent: Intent, environment: Mapping[str, str], like: Fingerprint, *, changes_nothing: bool
) -> tuple[Memory, Recalled]:
    """Return the memory of launches like this one, and what is in it. It takes as long as the disk does."""
    place = directory.to_write(intent.state_dir, environment, creates=not changes_nothing)
    memory = Memory(place.path, like, 0.0 if intent.observes_only else intent.remember_for_days)
    recalled = memory.recall(time.time(), changes_nothing=changes_nothing)
    return memory, recalled._replace(problems=(*([place.problem] if place.problem else []), *recalled.problems))


def _looked_at(
    intent: Intent, environment: Mapping[str, str], config: Mapping[str, object] | None
) -> tuple[tuple[str, ...], Machine]:
    """Return the words that start vLLM, and the machine; a recorded one is told of by its record. Raises Trouble."""
    if intent.machine is None:
        vllm = executable.find(intent.vllm, environment)
        return vllm, look(script_of(vllm, environment), intent.words, environment, config)
    from safe_vllm.machine import recorded  # seldom needed

    return intent.vllm, recorded.read_with_model(intent.machine, intent.words, environment, config)
