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
from safe_vllm.plan.shape_flags import shape

FORM = 1
"""To be raised when a rung of the same name comes to change something else: what broke before is no evidence then."""
KEY_LENGTH = 16

VARIABLES = re.compile(
    r"(?:VLLM|FLASHINFER|TRTLLM|DG|TORCHINDUCTOR)_.+|CUDA_(?:LAUNCH_BLOCKING|DEVICE_MAX_CONNECTIONS|MODULE_LOADING)"
    r"|NCCL_(?:ALGO|PROTO|BUFFSIZE|NTHREADS|LAUNCH_MODE|P2P_\w+|NVLS_\w+|CUMEM_\w+|SHM_DISABLE|MNNVL_ENABLE|GRAPH_\w+"
    r"|COLLNET_\w+|DMABUF_ENABLE|(?:MIN|MAX)_(?:NCHANNELS|CTAS)|NET|NET_(?:PLUGIN|GDR_LEVEL)|IB_DISABLE)"
    r"|PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF|NVIDIA_TF32_OVERRIDE|CUBLAS_WORKSPACE_CONFIG|CUBLASLT_WORKSPACE_SIZE"
)
"""The operator's variables that choose kernels, their shapes or their transport, or may do so."""
NOT_THESE = re.compile(
    r"\w+_(?:LOG(?!IT|PROB)\w*|(?:STATS|TRACE)(?:_\w+)?)"
    r"|\w+_(?:CACHE_DIR|CACHE_ROOT|DIR|WORKSPACE_BASE|BASE_PATH|CONFIG_ROOT|DUMP_PATH|CACHE_PATH|FRONTEND_PATH)"
    r"|\w+_DIR_\w+|\w+_(?:HOST|HOST_IP|IP|IPS)|\w+_SERVICE_(?:HOST|PORT)(?:_\w+)?"
    r"|\w+_PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?"
    r"|VLLM_(?:DP_RANK|DP_RANK_LOCAL|API_KEY|PROCESS_NAME_PREFIX|OBJECT_STORAGE_SHM_BUFFER_NAME|USE_MODELSCOPE"
    r"|DO_NOT_TRACK|USAGE_\w+|BUILD_\w+|DOCKER_\w+|SERVER_DEV_MODE|SYSTEM_START_DATE|SKIP_\w*VERSION_SUFFIX"
    r"|(?:MAX_)?(?:IMAGE|AUDIO|VIDEO|MEDIA|ASSETS|EMBED)_\w+|HTTP_\w+|CHAT_TEMPLATE_\w+|GPT_OSS_\w+|TOOL_\w+|REGEX_\w+"
    r"|MAX_(?:COMPLETION_PROMPTS|N_SEQUENCES|STOP_STRINGS|\w*BAD_WORDS\w*)|SKIP_MODEL_NAME_VALIDATION|ENFORCE_STRICT_\w+"
    r"|ENABLE_RESPONSES_API_STORE|ENABLE_COHERE_API|DISABLE_REQUEST_ID_RANDOMIZATION|USE_PRECOMPILED\w*"
    r"|KEEP_ALIVE_ON_ENGINE_DEATH|TORCH_PROFILER_\w+|\w+_FOR_PROFILING|GC_DEBUG|\w*XGRAMMAR_\w+|\w+_OUTLINES_CACHE)"
)
"""Of those: where things lie and who listens where, what is told of them, and what only the front end looks at.

Kubernetes sets ``VLLM_…_SERVICE_HOST`` and ``VLLM_…_PORT_8000_TCP_ADDR`` where a service is called so. Names:
https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/envs.py
"""
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
    model_at: str | None = None,
) -> Fingerprint:
    """Return the fingerprint of a launch. ``off_at``: the optimisation levels at which autotune is off.

    ``model_at``: where the model (``model_named``) really is, if it is on this machine: a name may lead anywhere.
    """
    parts: dict[str, object] = {
        "form": FORM,
        "model": _shown(model_at or model_named(words, config, machine)),
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


def model_named(words: Sequence[str], config: Config, machine: Machine) -> str | None:
    """Return the model's name, or the word that is most likely to be one: the last, where it has a slash."""
    last = words[-1] if words and "/" in words[-1] and not words[-1].startswith("-") else None
    return name_in(words, config) or machine.model_name or last


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _shown(model: str | None) -> str | None:
    return shown_name(model.rstrip("/") or model) if model else None


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
    names = (name for name in sorted(environment) if VARIABLES.fullmatch(name) and not NOT_THESE.fullmatch(name))
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
