"""Cases for the checks, built by hand: a sound machine, and what is to be different about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safe_vllm import known
from safe_vllm.checks.case import Case, Check
from safe_vllm.checks.finding import Finding
from safe_vllm.checks.tables import parse_knobs, parse_pins
from safe_vllm.data.strict_yaml import read_data
from safe_vllm.machine.condition import GIB, Condition, Disk, Limit, Port
from safe_vllm.machine.facts import Gpu, Installation, Machine, Surface

B200 = Gpu("NVIDIA B200", "10.0", 183359)
H100 = Gpu("NVIDIA H100 80GB HBM3", "9.0", 81559)
INSTALLED = Installation(
    python="/opt/venv/bin/python3",
    vllm="0.23.0",
    torch="2.11.0+cu130",
    torch_cuda="13.0",
    flashinfer="0.6.12",
    flashinfer_cubin="0.6.12",
)
MACHINE = Machine(
    "x86_64", (B200, B200), has_driver=True, driver="580.95.05", driver_cuda="13.0", installation=INSTALLED
)
SOUND = Condition(
    shm_total_bytes=16 * GIB,
    shm_free_bytes=16 * GIB,
    core_pattern="|/usr/lib/systemd/systemd-coredump %P",
    limits={name: Limit() for name in ("core", "nofile", "memlock", "nproc", "stack")},
    disks=(Disk("Hugging Face cache", "/cache/hub", "HF_HOME", 500 * GIB),),
    memory_bytes=256 * GIB,
    kernel="6.15.2-generic",
    init="systemd",
    port=Port("", 8000),
    nvcc="/usr/local/cuda/bin/nvcc",
    ninja="/usr/bin/ninja",
)


def case(
    *words: str,
    machine: Machine = MACHINE,
    installed: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    surface: Surface | None = None,
    **more: Any,
) -> Case:
    """Return a sound case with changes to the installation, to the state of the machine and to the environment."""
    machine = replace(machine, installation=replace(machine.installation, **(installed or {}), surface=surface))
    return Case(
        machine=machine,
        dialect=known.dialects().of(machine.installation.vllm, surface),
        condition=replace(SOUND, **(state or {})),
        environment=environment or {},
        words=words,
        pins=parse_pins(read_data("pins.yaml")),
        knobs=parse_knobs(read_data("knobs.yaml")),
        known_bad=known.known_bad(),
        **more,
    )


def found(check: Check, what: Case) -> list[Finding]:
    """Return what a check finds. Whatever is not fine says why it matters and what to do."""
    findings = list(check(what))
    assert all(finding.level == "ok" or (finding.why and finding.do) for finding in findings)
    assert all("\n" not in text for finding in findings for text in (finding.what, finding.why, finding.do))
    return findings


def told(check: Check, what: Case) -> list[tuple[str, str]]:
    """Return level and text of what a check finds."""
    return [(finding.level, f"{finding.what} | {finding.why} | {finding.do}") for finding in found(check, what)]


def levels(check: Check, what: Case) -> list[str]:
    """Return the levels of what a check finds."""
    return [finding.level for finding in found(check, what)]
