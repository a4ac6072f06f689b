"""What a memory is of: the software, the hardware, the model and the settings with which it was made. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from safe_vllm.machine.facts import Machine
from safe_vllm.plan.edit import Config
from safe_vllm.plan.model_name import name_in, shown_name
from safe_vllm.plan.profile import Profile
from safe_vllm.plan.secrets import hide_variable
from safe_vllm.record.shape_flags import shape

FORM = 1
"""To be raised when a rung of the same name comes to change something else: what broke before is no evidence then."""
KEY_LENGTH = 16

VARIABLES = re.compile(
    r"(?:FLASHINFER_|TRTLLM_|VLLM_(?:USE|ENABLE|DISABLE|FLASHINFER|MOE|FUSED_MOE|MXFP4|NVFP4|ALL2ALL|ATTENTION)_).+"
    r"|VLLM_(?:DP_SIZE|MAX_TOKENS_PER_EXPERT_FP4_MOE|DEEP_GEMM_WARMUP)"
    r"|NCCL_(?:ALGO|PROTO|P2P_DISABLE|P2P_LEVEL|NVLS_ENABLE|CUMEM_ENABLE|SHM_DISABLE|MNNVL_ENABLE)"
    r"|CUDA_LAUNCH_BLOCKING|PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF"
)
"""The operator's variables that choose kernels, their shapes or their transport."""
NOT_THESE = re.compile(r"LOG|CACHE|DIR(?:$|_)|_BASE$|_PATH$|_PORT$|MODELSCOPE|STATS|TRACE")
"""Of those: where things lie, and what is told of them."""
PROSE = ("note", "because", "links", "reasons", "status")
"""What an entry of a profile's ladder says for people."""


@dataclass(frozen=True)
class Fingerprint:
    """The name of a memory, and what it stands for."""

    key: str
    about: Mapping[str, Any]
    """All that went into the key, in words, without secrets."""


def fingerprint(
    words: Sequence[str],
    config: Config,
    environment: Mapping[str, str],
    machine: Machine,
    profile: Profile,
    off_at: Collection[str],
    pins: Collection[str] = (),
) -> Fingerprint:
    """Return the fingerprint of a launch. ``off_at``: the optimisation levels at which autotune is off."""
    parts: dict[str, object] = {
        "form": FORM,
        "model": _model(words, config, machine),
        "software": _software(machine),
        "architecture": machine.architecture,
        "gpus": dict(Counter(f"{gpu.name} (slice)" if gpu.is_slice else gpu.name for gpu in machine.gpus)),
        "settings": shape(words, config, off_at),
        "variables": _variables(environment),
        "pins": sorted(pins),
        "profile": {"name": profile.name, "content": _digest(_content(profile))[:KEY_LENGTH]},
    }
    about = {name: value for name, value in parts.items() if value}
    return Fingerprint(_digest(about)[:KEY_LENGTH], about)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _model(words: Sequence[str], config: Config, machine: Machine) -> str | None:
    """Return the model's name, or the word that is most likely to be one: the last, where it has a slash."""
    last = words[-1] if words and "/" in words[-1] and not words[-1].startswith("-") else None
    name = name_in(words, config) or machine.model_name or last
    return shown_name(name.rstrip("/") or name) if name else None


def _software(machine: Machine) -> dict[str, str]:
    installed = machine.installation
    versions = {
        "vllm": installed.vllm,
        "flashinfer": installed.flashinfer,
        "flashinfer_cubin": installed.flashinfer_cubin,
        "flashinfer_jit_cache": installed.flashinfer_jit_cache,
        "torch": installed.torch,
        "cuda": installed.torch_cuda,
        "rocm": installed.torch_rocm,
        "driver": machine.driver,
    }
    return {name: version for name, version in versions.items() if version}


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in sorted(environment) if VARIABLES.fullmatch(name) and not NOT_THESE.search(name))
    return {name: hide_variable(name, environment[name]) for name in names}


def _content(profile: Profile) -> Mapping[str, object]:
    """Return what a profile does to a launch's settings: its words for people and its limits are left out."""
    ladder = [_without_prose(msgspec.to_builtins(entry)) for entry in profile.ladder]
    return {
        "environment": _hidden(profile.environment),
        "cuda_lib_path": profile.cuda_lib_path,
        "moe_backend": profile.moe_backend,
        "ladder": [{**entry, "environment": _hidden(entry.get("environment", {}))} for entry in ladder],
    }


def _without_prose(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in PROSE}


def _hidden(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: hide_variable(name, value) for name, value in variables.items()}
