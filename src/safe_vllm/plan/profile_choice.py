"""Which profile is for this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safe_vllm.errors import Trouble
from safe_vllm.machine.facts import Gpu, Machine, ProfileFile
from safe_vllm.plan.profile import Fits, Profile
from safe_vllm.plan.profile_reading import parse
from safe_vllm.versions import is_within

Grade = tuple[int, int]
"""How exactly a profile describes a machine: GPU 3, generation 2, architecture or no GPU 1, else 0; then versions."""


def choose(files: Sequence[ProfileFile], machine: Machine, asked: str | None = None) -> tuple[Profile, str]:
    """Return the profile for this machine, or the one that was ``asked`` for, and why. All files must be sound."""
    profiles = [parse(file) for file in files]
    if asked is not None and profiles:
        return profiles[-1], "asked for"
    return best(profiles, machine)


def best(profiles: Sequence[Profile], machine: Machine) -> tuple[Profile, str]:
    """Return the profile that describes the machine most exactly, and why; of equals the last."""
    graded = [(*grade, profile) for profile in profiles if (grade := _grade(profile.fits, machine))]
    if not graded:
        raise Trouble("no profile fits this machine", hint="add one without 'fits' or name one with --profile")
    top = max(grade for grade, _, _ in graded)
    return next((profile, why) for grade, why, profile in reversed(graded) if grade == top)


def names_gpu(fits: Fits, machine: Machine) -> bool:
    """Return whether a profile names the first GPU of the machine."""
    gpu = _gpu(machine)
    return gpu is not None and any(has_word(gpu.name, name) for name in fits.gpus)


def _grade(fits: Fits, machine: Machine) -> tuple[Grade, str] | None:
    """Return how exactly ``fits`` describes the machine, and by what; ``None``: it does not."""
    graded = _grade_of_hardware(fits, machine)
    ranges = {
        "vLLM": (fits.vllm, machine.installation.vllm),
        "FlashInfer": (fits.flashinfer, machine.installation.flashinfer),
    }
    stated = {name: pair for name, pair in ranges.items() if pair[0] is not None}
    if graded is None or not all(is_within(version, wanted or "") is True for wanted, version in stated.values()):
        return None
    grade, why = graded
    versions = [f"{name} {installed} is in {text}" for name, (text, installed) in stated.items()]
    return (grade, len(versions)), ", ".join([*([] if versions and not grade else [why]), *versions])


def _grade_of_hardware(fits: Fits, machine: Machine) -> tuple[int, str] | None:
    if fits.has_gpu is not None and fits.has_gpu is _runs_on_cpu(machine):
        return None
    if fits.architectures and machine.architecture not in fits.architectures:
        return None
    gpu = _gpu(machine)
    if gpu and names_gpu(fits, machine):
        return 3, f"the GPU is {gpu.name}"
    if gpu and gpu.compute_capability in fits.compute_capabilities:
        return 2, f"the GPU's compute capability is {gpu.compute_capability}"
    if not fits.gpus and not fits.compute_capabilities:
        return _grade_without_gpu_names(fits, machine)
    return None


def _grade_without_gpu_names(fits: Fits, machine: Machine) -> tuple[int, str]:
    if fits.has_gpu is False:
        return 1, machine.gpu_note or ("torch is a CPU build" if machine.gpus else "no GPU was found")
    if fits.architectures or fits.has_gpu:
        return 1, f"the architecture is {machine.architecture}"
    return 0, "no other profile fits"


def _gpu(machine: Machine) -> Gpu | None:
    return machine.gpus[0] if machine.gpus and not _runs_on_cpu(machine) else None


def _runs_on_cpu(machine: Machine) -> bool:
    """Return whether vLLM will run on the CPU. A driver that would not talk is not that, nor are ROCm and XPU."""
    installed = machine.installation
    build = (installed.torch or "").partition("+")[2]
    is_for_others = installed.torch_rocm is not None or build.startswith(("rocm", "xpu"))
    return build == "cpu" or not (machine.gpus or machine.has_driver or is_for_others)


def has_word(name: str, word: str) -> bool:
    """Whether the name of a GPU has this word: ``NVIDIA GB200`` has no ``B200``."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", name, re.IGNORECASE) is not None
