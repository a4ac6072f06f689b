"""A hardware profile: when it fits, what it sets, and which rungs its ladder has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from safe_vllm.errors import Trouble
from safe_vllm.machine.facts import Machine, ProfileFile
from safe_vllm.plan.ladder import AS_ASKED, RUNG_NAMES

RungName = Literal["as-asked", "no-autotune", "triton", "less-parallel", "no-expert-parallel"]
CudaLibPath = Literal["auto", "unset"]


class Fits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a profile fits. All that is stated must hold, but an exact GPU makes up for a foreign generation."""

    gpus: tuple[str, ...] = ()
    """Whole words of the GPU's name, such as ``GB200``."""
    compute_capabilities: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    """As ``uname -m`` prints them."""
    has_gpu: bool | None = None


class RungEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rung, and what the profile adds to it."""

    rung: RungName
    environment: dict[str, str] = {}
    moe_backend: str | None = None
    """In effect from this rung on."""
    note: str | None = None
    because: str | None = None
    links: tuple[str, ...] = ()


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything one YAML file says."""

    name: str
    description: str
    ladder: tuple[RungEntry, ...]
    fits: Fits = Fits()
    environment: dict[str, str] = {}
    """Set at every rung, unless the operator set it."""
    cuda_lib_path: CudaLibPath = "auto"
    """``auto``: set CUDA_LIB_PATH where it has an effect."""
    moe_backend: str | None = None
    """Asked for where the operator asked for none."""
    links: tuple[str, ...] = ()


def choose(files: Sequence[ProfileFile], machine: Machine, asked: str | None = None) -> tuple[Profile, str]:
    """Return the profile for this machine, or the one that was ``asked`` for, and why. All files must be sound."""
    profiles = [parse(file.content, file.path) for file in files]
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


def parse(content: object, where: str) -> Profile:
    """Return the profile that ``content`` (as read from YAML) describes; ``where`` names its file in errors."""
    try:
        profile = msgspec.convert(content, Profile)
    except msgspec.ValidationError as error:
        raise Trouble(f"{where}: {_sentence(str(error))}", hint="see docs/profiles.md") from None
    _check_name(profile, where)
    _check_ladder(profile, where)
    return profile


def _grade(fits: Fits, machine: Machine) -> tuple[int, str] | None:
    """Return how exactly ``fits`` describes the machine: GPU 3, generation 2, architecture or no GPU 1, anything 0."""
    runs_on_cpu = _runs_on_cpu(machine)
    if fits.has_gpu is not None and fits.has_gpu is runs_on_cpu:
        return None
    if fits.architectures and machine.architecture not in fits.architectures:
        return None
    gpu = machine.gpus[0] if machine.gpus and not runs_on_cpu else None
    if gpu and any(_has_word(gpu.name, name) for name in fits.gpus):
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


def _runs_on_cpu(machine: Machine) -> bool:
    """Return whether vLLM will run on the CPU. A driver that would not talk is not that, nor are ROCm and XPU."""
    build = (machine.installation.torch or "").partition("+")[2]
    return build == "cpu" or not (machine.gpus or machine.has_driver or build.startswith(("rocm", "xpu")))


def _has_word(name: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", name, re.IGNORECASE) is not None


def _check_name(profile: Profile, where: str) -> None:
    """Raise Trouble where a profile is not called what its file is called, so that ``--profile NAME`` finds it."""
    stem = where.rpartition("/")[2].rpartition(".")[0]
    if stem and profile.name != stem:
        raise Trouble(f"{where}: name: expected {stem!r}, as the file is called, got {profile.name!r}")


def _check_ladder(profile: Profile, where: str) -> None:
    names = [entry.rung for entry in profile.ladder]
    expected = [name for name in RUNG_NAMES if name in names]
    if names != expected or names[:1] != [AS_ASKED]:
        order = ", ".join(RUNG_NAMES)
        raise Trouble(f"{where}: ladder must start with {AS_ASKED} and keep this order, each once: {order}")


def _sentence(error: str) -> str:
    """Return msgspec's message as path and expectation, with the nearest known word for an unknown one."""
    text, _, path = error.partition(" - at ")
    at = path.strip("`").removeprefix("$.").removeprefix("$")
    if unknown := re.search(r"unknown field `(.*)`", text):
        text = f"unknown key {unknown[1]!r}{_nearest(unknown[1], _keys(at))}"
    elif invalid := re.search(r"Invalid enum value '(.*)'", text):
        text = f"unknown value {invalid[1]!r}{_nearest(invalid[1], _choices(at))}"
    text = text.replace("`object`", "a mapping").replace("`array`", "a list")
    text = text[:1].lower() + text[1:]
    return f"{at}: {text}" if at else text


def _keys(at: str) -> tuple[str, ...]:
    struct = Fits if at.startswith("fits") else RungEntry if at.startswith("ladder") else Profile
    return tuple(field.name for field in msgspec.structs.fields(struct))


def _choices(at: str) -> tuple[str, ...]:
    return RUNG_NAMES if at.endswith(".rung") else get_args(CudaLibPath)


def _nearest(word: str, known: Sequence[str]) -> str:
    import difflib  # only when something is wrong

    near = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {near[0]!r}?" if near else f", expected one of: {', '.join(known)}"
