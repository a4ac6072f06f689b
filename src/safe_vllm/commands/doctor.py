"""The story of ``doctor``: look at the machine, the installation and the command, check them, start nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from safe_vllm import known
from safe_vllm.announce.checkup import as_lines, as_object
from safe_vllm.checks import (
    command,
    flashinfer,
    given,
    hardware,
    known_faults,
    libraries,
    resources,
    software,
    surroundings,
    unit_file,
    unit_kind,
    variables,
)
from safe_vllm.checks.case import Case, Check
from safe_vllm.checks.finding import Finding
from safe_vllm.errors import Trouble
from safe_vllm.machine import (
    config_file,
    examine,
    executable,
    manifest_files,
    packages,
    ports,
    recorded,
    requirements,
    unit_files,
)
from safe_vllm.machine.condition import Condition, Port
from safe_vllm.machine.facts import Machine
from safe_vllm.machine.interpreter import script_of
from safe_vllm.machine.look import look
from safe_vllm.machine.model import lost
from safe_vllm.machine.model_flags import asked
from safe_vllm.plan.build import make_plan
from safe_vllm.plan.flags import read
from safe_vllm.plan.grammar import HEADLESS
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.model_name import shown_name
from safe_vllm.preparing import chosen_scene, recall

OF_MACHINE: tuple[Check, ...] = (
    command.files,
    software.vllm,
    hardware.architecture,
    hardware.gpus,
    hardware.count,
    software.dialect,
    software.cuda,
    flashinfer.pins,
    flashinfer.parts,
    software.planned,
    command.flags,
    known_faults.remembered,
    known_faults.known_faults,
)
"""What can be told of a recorded machine too."""
OF_THIS_MACHINE: tuple[Check, ...] = (
    hardware.visible,
    flashinfer.usable,
    variables.unread,
    variables.vanishing,
    variables.links,
    variables.switches,
    libraries.cuda_lib_path,
    libraries.library_path,
    resources.shared_memory,
    resources.memory,
    resources.core_files,
    resources.disks,
    resources.limits,
    command.model,
    command.config,
    surroundings.port,
    surroundings.kernel,
    surroundings.init,
    surroundings.kubernetes,
)


def examined(intent: Intent) -> Case:
    """Look at everything once. What is missing becomes a part of the case; only a bad record raises Trouble."""
    environment = dict(os.environ)
    config = config_file.config_of(intent.words)
    script, no_vllm = (None, None) if intent.machine else _command(intent, environment)
    if intent.machine:
        machine = recorded.read_with_model(intent.machine, intent.words, environment, config)
    else:
        machine = look(script, intent.words, environment, config)
    case = Case(
        machine=machine,
        dialect=known.dialects().of(machine.installation.vllm, machine.installation.surface),
        condition=None if intent.machine else _condition(script, machine, intent.words, config, environment),
        environment=environment,
        words=intent.words,
        config=config,
        no_vllm=no_vllm,
        pins=known.pins(),
        knobs=known.knobs(),
        known_bad=known.known_bad(),
    )
    return _with_plan(case, intent)


def checked(case: Case) -> tuple[Finding, ...]:
    """Return what all checks find, in their order."""
    checks = OF_MACHINE if case.condition is None else (*OF_MACHINE, *OF_THIS_MACHINE)
    return tuple(finding for check in checks for finding in check(case))


def of_units(names: Sequence[str]) -> tuple[Finding, ...]:
    """Return what is found in systemd units and their drop-ins; ``-`` is standard input. Raises Trouble."""
    files = unit_files.each(names)
    unit_kind.refuse_what_is_none(files)
    return unit_file.checked_each(unit_kind.units(files))


def of_manifests(names: Sequence[str]) -> tuple[Finding, ...]:
    """Return what is found in Kubernetes manifests and compose files; ``-`` is standard input. Raises Trouble."""
    return given.checked(manifest_files.each(names))


def told_of_files(findings: Sequence[Finding], output: str) -> str:
    """Return the check of units or manifests as text or as one JSON object."""
    if output == "json":
        return json.dumps(as_object(findings, None), ensure_ascii=False, indent=2)
    return "\n".join(as_lines(findings))


def told(findings: Sequence[Finding], machine: Machine, output: str) -> str:
    """Return the check-up as text or as one JSON object, with the machine as ``--machine FILE`` takes it."""
    if output == "json":
        bare = replace(machine.installation, surface=None)
        facts = recorded.as_object(replace(machine, installation=bare, model_name=shown_name(machine.model_name)))
        return json.dumps(as_object(findings, facts), ensure_ascii=False, indent=2)
    return "\n".join(as_lines(findings))


def _command(intent: Intent, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the path of the vLLM command, or why there is none."""
    try:
        return script_of(executable.find(intent.vllm, environment), environment), None
    except Trouble as trouble:
        return None, trouble.message


def _condition(
    script: str | None,
    machine: Machine,
    words: Sequence[str],
    config: Mapping[str, object] | None,
    environment: Mapping[str, str],
) -> Condition:
    is_installed = machine.installation.vllm is not None
    wanted = requirements.pins(packages.survey(script, environment).places) if is_installed else {}
    found = examine.examine(environment, _port(words, config), wanted)
    return replace(found, lost_model=lost(asked(words, config)), config_trouble=config_file.trouble_of(words))


def _with_plan(case: Case, intent: Intent) -> Case:
    """Return the case with the plan that a launch would follow, or why there is none."""
    try:
        scene, because = chosen_scene(intent, case.machine, case.environment, case.config)
        _, recalled = recall(intent, scene, changes_nothing=True)
        known_bad, remembered = case.known_bad, recalled.remembered
        plan = make_plan(intent, scene, because, known_bad=known_bad, remembered=remembered)
    except Trouble as trouble:
        return replace(case, no_plan=str(trouble))
    return replace(case, plan=plan, scene=scene, remembered=remembered, not_remembered=recalled.problems)


def _port(words: Sequence[str], config: Mapping[str, object] | None) -> Port | None:
    """Return the port that these words ask for; a socket in a file, or none at all, needs no port."""
    reading = read(words, config)
    if reading.setting(HEADLESS).value is True or reading.setting("--uds").value is not None:
        return None
    return ports.port(str(reading.setting("--host").value or ""), reading.number("--port") or 0)
