"""What is known about the environment variables that a rung may set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from safe_vllm.machine.facts import Machine
from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.profile import Profile

CUDA_LIB_PATH = "CUDA_LIB_PATH"
"""FlashInfer loads libcudart.so.12 from this directory when it is imported; nothing else, and nothing on CUDA 13.

https://github.com/flashinfer-ai/flashinfer/pull/928
"""

Variables = tuple[tuple[str, str], ...]


def unread(names: Iterable[str], dialect: Dialect, flashinfer: str | None = None) -> frozenset[str]:
    """Return those of the variables that neither the installed vLLM nor this version of FlashInfer reads."""
    return frozenset(name for name in names if dialect.reads(name, flashinfer) is False)


def base(profile: Profile, machine: Machine) -> Mapping[str, str]:
    """Return the variables that a profile sets at every rung."""
    directory = _cuda_library(machine) if profile.cuda_lib_path == "auto" else None
    found = {CUDA_LIB_PATH: directory} if directory else {}
    return {**found, **profile.environment}


def wanted(profile: Profile, machine: Machine) -> tuple[str, ...]:
    """Return the names of all variables that a profile would set at some rung of this machine's ladder."""
    names = [*base(profile, machine), *(name for entry in profile.ladder for name in entry.environment)]
    return tuple(dict.fromkeys(names))


def merged(before: Variables, more: Mapping[str, str], operators: Mapping[str, str]) -> Variables:
    """Return ``before`` with ``more`` added. A variable that the operator set stays the operator's."""
    ours = {name: value for name, value in more.items() if name not in operators}
    return tuple({**dict(before), **ours}.items())


def _cuda_library(machine: Machine) -> str | None:
    cuda = machine.installation.torch_cuda or ""
    return machine.cuda12_libraries[0] if cuda.split(".")[0] == "12" and machine.cuda12_libraries else None
