"""Combinations of hardware, versions and settings that are known to fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.plan.known_bad import Combination, KnownBad, fixes, short


def known_faults(case: Case) -> Iterator[Finding]:
    """Tell what is known about this command; without one, what some command could meet on this machine."""
    if case.plan and case.plan.entry_because:
        why = "a launch would not start with the settings that were asked for, which costs speed"
        do = "upgrade to a release in which it is fixed, where one is named; else leave it so"
        yield Finding("known-faults", "warning", case.plan.entry_because, why, do)
        return
    if case.no_plan:
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
