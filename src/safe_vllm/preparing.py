"""Everything that is decided before the first attempt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from safe_vllm.attempt.child import inherited_environment
from safe_vllm.machine import config_file, executable, profile_files
from safe_vllm.machine.facts import Machine
from safe_vllm.machine.interpreter import script_of
from safe_vllm.machine.look import look
from safe_vllm.plan.build import make_plan
from safe_vllm.plan.intent import Intent, Limits
from safe_vllm.plan.ladder import Plan, Rung
from safe_vllm.plan.profile import Profile
from safe_vllm.plan.profile_choice import choose
from safe_vllm.plan.profile_use import limits_of
from safe_vllm.plan.sources import Sourced, sourced


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
    levels_without_autotune: tuple[str, ...] = ("0",)

    def settings(self, rung: Rung) -> tuple[Sourced, ...]:
        """Return the safety settings of a rung, each with where its value comes from."""
        return sourced(rung, self.intent.words, self.config, self.levels_without_autotune)


def prepare(intent: Intent) -> Prepared:
    """Look at the machine, or read the recorded one, and make the plan. Raises Trouble; nothing was started then."""
    from safe_vllm import known  # slow to import, and not every command plans

    environment = inherited_environment()
    config = config_file.config_of(intent.words)
    if intent.machine is None:
        vllm = executable.find(intent.vllm, environment)
        machine = look(script_of(vllm, environment), intent.words, environment, config)
    else:
        vllm = intent.vllm
        from safe_vllm.machine import recorded  # seldom needed

        machine = recorded.read_with_model(intent.machine, intent.words, environment, config)
    profiles = profile_files.read_profiles(intent.profile, intent.profile_dir, environment)
    profile, because = choose(profiles, machine, intent.profile)
    dialect = known.dialects().of(machine.installation.vllm, machine.installation.surface)
    bad = known.known_bad()
    plan_without = partial(make_plan, intent, profile, because, machine, dialect, environment, config, bad)
    limits = limits_of(profile, intent.asked)
    plan, off_at = plan_without(()), dialect.levels_without_autotune
    if config is None and (trouble := config_file.trouble_of(intent.words)):
        plan = replace(plan, notes=(*plan.notes, f"what the --config file says is not in this plan: {trouble}"))
    return Prepared(intent, vllm, environment, machine, profile, limits, plan, config, plan_without, off_at)
