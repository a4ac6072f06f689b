"""The product's side: the rungs that safe-vllm plans for a command line on a machine. The only place that knows how."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from safe_vllm.machine.facts import Gpu, Machine
from safe_vllm.machine.look import look
from safe_vllm.machine.profile_files import read_profiles, shipped
from safe_vllm.machine.recorded import as_object
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.profile_choice import choose
from safe_vllm.preparing import prepare

GPUS = 8
CAPABILITIES = {"H100": "9.0", "H200": "9.0", "GH200": "9.0", "GB10": "12.1"}
"""Of GPUs whose profile names no generation; all others are 10.0."""


@dataclass(frozen=True)
class Planned:
    """One rung."""

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Hardware:
    """A shipped profile and a machine that it is for."""

    profile: str
    architecture: str
    gpu: str = ""
    capability: str = ""

    @property
    def is_cpu(self) -> bool:
        """Return whether vLLM runs on the CPU."""
        return not self.gpu


def every_kind() -> list[Hardware]:
    """Return every shipped profile with a machine that it is for."""
    return [_hardware(path) for path in sorted(shipped().glob("*.yaml"))]


def _hardware(path: Path) -> Hardware:
    profile, _ = choose(read_profiles(str(path), None, {}), Machine("x86_64"), str(path))
    fits = profile.fits
    architecture = (*fits.architectures, "x86_64")[0]
    if fits.has_gpu is False:
        return Hardware(path.stem, architecture)
    gpu = (*fits.gpus, "B200")[0]
    capability = (*fits.compute_capabilities, CAPABILITIES.get(gpu, "10.0"))[0]
    return Hardware(path.stem, architecture, f"NVIDIA {gpu}", capability)


def record(hardware: Hardware, vllm: Path, place: Path) -> Path:
    """Return a file that describes such a machine with this vLLM installed on it."""
    machine = replace(look(str(vllm), (), {}), architecture=hardware.architecture, model=None)
    installed = machine.installation
    if hardware.is_cpu:
        seen = replace(machine, gpus=(), has_driver=False, installation=replace(installed, torch="2.0+cpu"))
    else:
        gpus = (Gpu(hardware.gpu, hardware.capability, 180 << 10),) * GPUS
        installed = replace(installed, torch="2.0", torch_cuda="13.0")
        seen = replace(machine, gpus=gpus, gpu_note=None, has_driver=True, installation=installed)
    file = place / f"machine-{hardware.profile}.json"
    file.write_text(json.dumps(as_object(seen)), encoding="utf-8")
    return file


def rungs(
    words: Sequence[str], hardware: Hardware, machine: Path, vllm: Path, environment: Mapping[str, str]
) -> tuple[Planned, ...]:
    """Return the ladder for ``vllm serve WORDS`` on a recorded machine."""
    profile = shipped() / f"{hardware.profile}.yaml"
    with _only(environment):
        prepared = prepare(Intent(tuple(words), (str(vllm),), profile=str(profile), machine=str(machine)))
    return tuple(Planned(rung.name, rung.words, dict(rung.environment)) for rung in prepared.plan.ladder.rungs)


@contextmanager
def _only(environment: Mapping[str, str]) -> Iterator[None]:
    """Have nothing but PATH and these variables in the environment: no profiles and no settings of this machine."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({"PATH": before.get("PATH", os.defpath), **environment})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
