"""What ``plan`` prints: the machine, the profile, and each rung as a change and as a command to copy."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from safe_vllm.errors import Status, Trouble
from safe_vllm.machine.facts import Machine
from safe_vllm.machine.model import lost
from safe_vllm.machine.model_flags import asked
from safe_vllm.machine.recorded import RECORDING, as_object
from safe_vllm.plan.costs import costs
from safe_vllm.plan.explain import difference, ladder_line, variable_line
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import RELIEVES, Plan, Rung
from safe_vllm.plan.model_name import name_in, nameless, shown_name
from safe_vllm.plan.profile_use import device_lines
from safe_vllm.plan.secrets import hide, hide_variable, without_secrets
from safe_vllm.preparing import Prepared, prepare
from safe_vllm.printable import as_utf8, encodable

NOT_KNOWN = "not known"
ANYWHERE = ("vllm",)
"""How a command begins that is not for this machine."""


def prepared(intent: Intent) -> Prepared:
    """Make a plan and change nothing. Raises Trouble; where there is no vLLM, it names the way to plan without."""
    try:
        return _with_lost_model(prepare(intent, changes_nothing=True))
    except Trouble as trouble:
        if trouble.status is not Status.NOT_FOUND:
            raise
        hint = f"{trouble.hint}; or plan for another machine with --machine FILE, which {RECORDING} records there"
        raise Trouble(trouble.message, hint=hint, status=trouble.status) from None


def _with_lost_model(launch: Prepared) -> Prepared:
    """Return the plan with a note where the path of the model leads nowhere; paths of another machine are not known."""
    path = None if launch.intent.machine else lost(asked(launch.intent.words, launch.config))
    if path is None:
        return launch
    note = f"{without_secrets(path)} does not exist: vLLM takes it for a name on the hub, and ends; correct the path"
    return replace(launch, plan=replace(launch.plan, notes=(*launch.plan.notes, note)))


def told(launch: Prepared, output: str) -> str:
    """Return the plan as text or as one JSON object."""
    if output == "json":
        return as_utf8(json.dumps(as_json_object(launch), ensure_ascii=False, indent=2))
    return encodable("\n".join(_lines(launch)))


def as_json_object(launch: Prepared) -> dict[str, object]:
    """Return the plan for programs."""
    plan, machine = launch.plan, launch.machine
    bare = replace(machine.installation, surface=None)
    device = list(device_lines(launch.profile, machine))
    return {
        "profile": {"name": plan.profile, "because": plan.because, "device": device},
        "machine": as_object(replace(machine, installation=bare, model_name=shown_name(machine.model_name))),
        "versions": _versions(machine),
        "entry": plan.ladder.rungs[plan.entry].name,
        "entry_because": plan.entry_because,
        "forgets": plan.forgets,
        "caches": plan.caches,
        "pins": sorted(plan.pins),
        "observed": None if plan.observed is None else {"argv": list(_argv(plan.observed, launch)), "env": {}},
        "rungs": [_rung(rung, launch) for rung in plan.ladder.rungs],
        "left_out": [{"name": left.name, "because": left.because} for left in plan.ladder.left_out],
        "unread": sorted(plan.unread),
        "notes": list(plan.notes),
        "problems": list(launch.problems),
    }


def _rung(rung: Rung, launch: Prepared) -> dict[str, object]:
    return {
        "name": rung.name,
        "argv": list(_argv(rung, launch)),
        "env": {name: hide_variable(name, value) for name, value in rung.environment},
        "relieves": sorted(RELIEVES[rung.name]),
        "costs": costs(rung, on_cpu=_is_cpu(launch.machine)),
        "note": rung.note,
        "because": rung.because,
        "links": list(rung.links),
        "settings": [{"name": s.name, "value": s.value, "source": s.source} for s in launch.settings(rung)],
    }


def _versions(machine: Machine) -> dict[str, str | None]:
    installed = machine.installation
    return {
        "vllm": installed.vllm,
        "flashinfer": installed.flashinfer,
        "flashinfer_cubin": installed.flashinfer_cubin,
        "flashinfer_jit_cache": installed.flashinfer_jit_cache,
        "torch": installed.torch,
        "cuda": installed.torch_cuda,
        "driver": machine.driver,
    }


def _lines(launch: Prepared) -> Iterator[str]:
    plan, machine = launch.plan, launch.machine
    yield f"ladder: {ladder_line(plan.ladder, plan.entry)}"
    yield from _about(launch)
    yield f"profile: {plan.profile} ({plan.because})"
    if device := device_lines(launch.profile, machine, with_reasons=False):
        yield f"device: {', '.join(device)}"
    if plan.pins:
        yield f"pinned: {', '.join(sorted(plan.pins))}"
    yield from (f"note: {note}" for note in plan.notes)
    yield from (f"problem: {problem}" for problem in launch.problems)
    if plan.entry_because:
        yield plan.entry_because
    if plan.caches:
        yield f"caches: those in {plan.caches}, with which {plan.ladder.rungs[plan.entry].name} held"
    if plan.observed:
        yield "observe-only: runs as typed, whatever happens; the rungs are what would be done without that"
        yield f"  $ {_to_copy(plan.observed, launch)}"
    above: Rung | None = None
    for rung in plan.ladder.rungs:
        yield from _rung_lines(above, rung, launch)
        above = rung
    if plan.ladder.left_out:
        yield ""
    yield from (f"left out: {left.name}: {left.because}" for left in plan.ladder.left_out)


def _about(launch: Prepared) -> Iterator[str]:
    machine, installed = launch.machine, launch.machine.installation
    none = "none" if installed.vllm else NOT_KNOWN  # without vLLM nothing was found, or nothing is recorded
    driver = f", driver {machine.driver}" if machine.driver else ""
    yield f"machine: {machine.architecture}, {_gpus(machine)}{driver}"
    yield (
        f"software: vLLM {installed.vllm or NOT_KNOWN}, torch {installed.torch or NOT_KNOWN}, "
        f"CUDA {installed.torch_cuda or none}, FlashInfer {installed.flashinfer or none}"
    )
    yield f"model: {_model(launch)}"


def _is_cpu(machine: Machine) -> bool:
    return not machine.gpus and not machine.has_driver


def _gpus(machine: Machine) -> str:
    if not machine.gpus:
        return f"no GPU ({machine.gpu_note})" if machine.gpu_note else "no GPU"
    kinds = Counter(gpu.name for gpu in machine.gpus)
    if len(kinds) > 1:
        return ", ".join(f"{count} x {name}" for name, count in kinds.items())
    first = machine.gpus[0]
    capability = f", compute capability {first.compute_capability}" if first.compute_capability else ""
    memory = f", {first.memory_mib / 1024:.0f} GiB" if first.memory_mib else ""
    kind = "slice of " if first.is_slice else ""
    return f"{len(machine.gpus)} x {kind}{first.name}{capability}{memory}"


def _model(launch: Prepared) -> str:
    told = nameless(launch.intent.words, launch.config)
    if told is None:
        return _shape(launch)
    return f"{told}; what is recorded: {_shape(launch)}" if launch.machine.model else told


def _shape(launch: Prepared) -> str:
    machine, shape = launch.machine, launch.machine.model
    name = name_in(launch.intent.words, launch.config) or machine.model_name
    said = shown_name(name) or ""
    if shape is None:
        return f"{said}; its config.json is not on this machine".removeprefix("; ")
    experts = "no experts" if shape.experts == 0 else f"{shape.experts or '?'} experts"
    heads = f"{shape.attention_heads or '?'} attention heads, {shape.kv_heads or '?'} KV heads"
    return f"{said}, {experts}, {shape.weight_format or 'unknown'} weights, {heads}".removeprefix(", ")


def _rung_lines(above: Rung | None, rung: Rung, launch: Prepared) -> Iterator[str]:
    plan = launch.plan
    marks = [rung.note] if rung.note else []
    marks += ["the launch starts here"] if rung is plan.ladder.rungs[plan.entry] and plan.entry else []
    yield ""
    yield rung.name + (f" ({'; '.join(marks)})" if marks else "")
    yield from (f"  {line}" for line in _changes(above, rung, plan))
    if rung.because:
        yield f"  because {rung.because}"
    yield from (f"  see {link}" for link in rung.links)
    if above is None:
        yield from (f"  {s.name}: {s.value} ({s.source})" for s in launch.settings(rung))
    elif taken := costs(rung, on_cpu=_is_cpu(launch.machine)):
        yield f"  costs: {taken}"
    yield f"  $ {_to_copy(rung, launch)}"


def _changes(above: Rung | None, rung: Rung, plan: Plan) -> Sequence[str]:
    return difference(Rung(rung.name, rung.words) if above is None else above, rung, plan.unread)


def _to_copy(rung: Rung, launch: Prepared) -> str:
    """Return the rung as a command. Variables that nobody reads are left out: they would only be copied on."""
    read = [(name, value) for name, value in rung.environment if name not in launch.plan.unread]
    return " ".join([*(variable_line(name, value) for name, value in read), shlex.join(_argv(rung, launch))])


def _argv(rung: Rung, launch: Prepared) -> tuple[str, ...]:
    vllm = ANYWHERE if launch.intent.machine else launch.vllm
    return (*hide(vllm), "serve", *hide(rung.words))
