"""Combinations of hardware, versions and settings that are known to fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.plan.entry import known_fault
from safe_vllm.plan.known_bad import Combination, KnownBad, fixes, short
from safe_vllm.plan.ladder import Plan, Rung


def known_faults(case: Case) -> Iterator[Finding]:
    """Tell what is known about this command; without one, what some command could meet on this machine."""
    if case.no_plan:
        return
    if told := _of_plan(case):
        yield told
        return
    possible = [] if case.words else [entry for entry in case.known_bad if _may_match(entry, case)]
    for entry in possible:
        weights = " or ".join(entry.weight_formats)
        what = f"{entry.fault} is known here for {' '.join(entry.moe_backends)} {weights}".rstrip()
        parallel = " with data and expert parallelism" if entry.data_parallel and entry.expert_parallel else ""
        why = f"a launch that resembles the report starts at {entry.start_at} ({short(entry.link)})"
        yield Finding("known-faults", "note", what + parallel, why, _fixed(entry))
    if not possible and case.machine.gpus and case.machine.installation.vllm is None:
        why, do = "most entries are for a range of versions", "see to the warning about vllm, and check again"
        yield Finding("known-faults", "note", "cannot be told: versions are not known", why, do)
    elif not possible:
        yield Finding("known-faults", "ok", "none for this machine" if not case.words else "none for this command")


def remembered(case: Case) -> Iterator[Finding]:
    """Tell why nothing, or nothing new, is remembered of launches."""
    why, do = "a launch then does not know what broke and what held before it", "see to it, or give another --state-dir"
    yield from (Finding("remembered", "note", problem, why, do) for problem in case.not_remembered)


def _of_plan(case: Case) -> Finding | None:
    """Return what the settings that were asked for are known for, and whether a launch would start with them."""
    if case.plan is None or case.scene is None:
        return None
    plan = case.plan
    first = plan.observed or plan.ladder.rungs[plan.entry]
    if met := _met(first, case):
        kind = " or ".join(met.moe_backends) or "settings"
        what = f"a launch starts at {first.name}, with {kind} known here for: {met.fault} ({short(met.link)})"
        held = case.remembered.held
        if held and held.rung == first.name:
            why = f"{first.name} held here before, so that fault may not come"
            return Finding("known-faults", "note", what, why, f"nothing while it holds; {_fixed(met)}")
        why = f"{_why_not_avoided(plan, met)}; so it may load the whole model and then meet that fault"
        return Finding("known-faults", "warning", what, why, f"let it start at {met.start_at}, or {_fixed(met)}")
    if avoided := _met(plan.ladder.rungs[0], case):
        what = plan.entry_because or f"starts at {first.name}"
        fault = f"{avoided.fault} ({short(avoided.link)})"
        why = f"what was asked for is known here for: {fault}; a launch avoids that, which costs speed"
        return Finding("known-faults", "note", what, why, _fixed(avoided))
    return None


def _met(rung: Rung, case: Case) -> KnownBad | None:
    """Return what a rung is known to meet here."""
    if case.scene is None:
        return None
    around = replace(case.scene, environment={**case.environment, **dict(rung.environment)})
    return known_fault(rung.words, around, case.known_bad)


def _why_not_avoided(plan: Plan, met: KnownBad) -> str:
    if plan.observed:
        return "--observe-only changes nothing"
    if plan.entry_because:
        return plan.entry_because
    left = (left.because for left in plan.ladder.left_out if left.name == met.start_at)
    return f"{met.start_at}, which would avoid it, is left out: {next(left, 'the profile has no such rung')}"


def _may_match(entry: KnownBad, case: Case) -> bool:
    """Whether some command meets it on this machine, with these versions."""
    machine, installed = case.machine, case.machine.installation
    any_command = Combination(
        architecture=machine.architecture,
        gpu=machine.gpus[0].name if machine.gpus else None,
        compute_capability=machine.gpus[0].compute_capability if machine.gpus else None,
        vllm=installed.vllm,
        flashinfer=installed.flashinfer,
        autotunes=True,
        data_parallel=True,
        expert_parallel=True,
        speculates=True,
    )
    backend, weights = next(iter(entry.moe_backends), None), next(iter(entry.weight_formats), None)
    return bool(machine.gpus) and entry.matches(replace(any_command, moe_backend=backend, weight_format=weights))


def _fixed(entry: KnownBad) -> str:
    fixed = fixes(entry)
    return f"upgrade: fixed in {fixed}" if fixed else f"follow {entry.link}"
