"""Shows GPUs to a vLLM that has none, inside this process alone: enough of NVML for vLLM to choose its CUDA platform.

Runs under the interpreter of the vLLM in question. Configuration is built as on a machine with these GPUs; nothing
could be computed on them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

MEMORY_BYTES = 180 << 30
EXTENSIONS = ("_C", "_moe_C", "_C_stable_libtorch", "_moe_C_stable_libtorch")
HUMMING = ("humming", *(f"humming.{name}" for name in ("config", "dtypes", "layer", "schema", "utils", "utils.weight")))
"""Kernels of others, which some releases import to read a configuration. Where they are not installed, names do."""
ATTENTION = ("vllm_flash_attn._vllm_fa2_C", "vllm_flash_attn._vllm_fa3_C")


class Names(types.ModuleType):
    """A module in which every name is a class of that name."""

    def __getattr__(self, name: str) -> type:
        """Make the class."""
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def have_memory() -> None:
    """Give this machine the memory of one with eight GPUs: releases before 0.18 want 4 GiB for each rank."""
    import psutil

    real = psutil.virtual_memory
    psutil.virtual_memory = lambda: real()._replace(total=MEMORY_BYTES * 8)


def leave_out_kernels() -> None:
    """Keep compiled kernels from being loaded: they were built for another torch, or for a CPU where there are GPUs."""
    import torch

    for extension in (*EXTENSIONS, *ATTENTION):
        sys.modules[f"vllm.{extension}"] = types.ModuleType(f"vllm.{extension}")
    if not (_folder_of_vllm() / "vllm_flash_attn" / "__init__.py").is_file():  # CPU builds of old releases
        sys.modules["vllm.vllm_flash_attn"] = Names("vllm.vllm_flash_attn")
    if importlib.util.find_spec("humming") is None:
        sys.modules.update({name: Names(name) for name in HUMMING})
    for question in ("_is_avx512_supported", "_is_avx2_supported", "_is_amx_tile_supported"):
        if not hasattr(torch._C._cpu, question):
            setattr(torch._C._cpu, question, _always(False))


def show(count: int, name: str, capability: tuple[int, int]) -> None:
    """Make vLLM see ``count`` such GPUs. To be called before anything of vLLM was imported."""
    _to_torch(count, name, capability)
    nvml: Any = _nvml_of_vllm()
    answers = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": count,
        "nvmlDeviceGetCudaComputeCapability": capability,
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=MEMORY_BYTES),
        "nvmlDeviceGetP2PStatus": 0,
        "nvmlDeviceGetNumaNodeId": 0,
    }
    for function, answer in answers.items():
        setattr(nvml, function, _always(answer))
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"


def _nvml_of_vllm() -> types.ModuleType:
    """Load the copy of pynvml that vLLM ships, without vLLM: some releases choose their platform while imported."""
    package = types.ModuleType("vllm.third_party")
    package.__path__ = [str(_folder_of_vllm() / "third_party")]
    sys.modules[package.__name__] = package
    return importlib.import_module("vllm.third_party.pynvml")


def _folder_of_vllm() -> Path:
    spec = importlib.util.find_spec("vllm")
    assert spec and spec.submodule_search_locations, "no vLLM for this interpreter"
    return Path(spec.submodule_search_locations[0])


def _to_torch(count: int, name: str, capability: tuple[int, int]) -> None:
    import torch
    import torch._dynamo.device_interface  # asks what this torch was built for, and is to hear the truth

    properties = types.SimpleNamespace(
        name=name,
        major=capability[0],
        minor=capability[1],
        total_memory=MEMORY_BYTES,
        multi_processor_count=148,
        is_integrated=False,
        shared_memory_per_block_optin=232448,
    )
    torch.cuda.device_count = torch.cuda._device_count_nvml = _always(count)
    torch.cuda.is_available = torch.cuda._is_compiled = _always(True)
    torch.cuda.get_device_capability = _always(capability)
    torch.cuda.get_device_properties = _always(properties)
    torch.cuda.get_device_name = _always(name)
    torch.version.cuda = "13.0"
    _promise_kernels()


def _promise_kernels() -> None:
    """Let every question whether some compiled kernel supports something be answered with yes."""
    import torch

    real = torch._ops._OpNamespace.__getattr__

    def found(namespace: Any, name: str) -> object:
        is_asked = "support" in name and str(namespace.name) in EXTENSIONS
        return _always(True) if is_asked else real(namespace, name)

    torch._ops._OpNamespace.__getattr__ = found


def _always(answer: object) -> object:
    return lambda *_, **__: answer


def call_itself(version: str) -> None:
    """Make vLLM's distribution be called ``vllm`` and have this version, by which vLLM tells a CPU build."""
    real = importlib.metadata.version
    importlib.metadata.version = lambda distribution: version if distribution == "vllm" else real(distribution)
