"""The machine: its architecture, its GPUs, and which of them vLLM will see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.plan.dialect_table import numbers

ARCHITECTURES = ("x86_64", "aarch64")
OLDEST_FOR_FLASHINFER = (7, 5)
"""https://docs.flashinfer.ai/installation.html (supported GPU architectures)"""


def architecture(case: Case) -> Iterator[Finding]:
    """Look at what ``uname -m`` says."""
    found = case.machine.architecture
    if found in ARCHITECTURES:
        yield Finding("architecture", "ok", found)
    else:
        why = "vLLM's CUDA wheels exist for x86_64 and aarch64 alone"
        yield Finding("architecture", "warning", f"this is {found}", why, "build vLLM from source")


def gpus(case: Case) -> Iterator[Finding]:
    """Look at what NVML shows, or why it shows nothing."""
    machine = case.machine
    if not machine.gpus:
        yield _no_gpu(case)
        return
    names = Counter((gpu.name, gpu.compute_capability or "unknown") for gpu in machine.gpus)
    told = ", ".join(f"{count} x {name} (compute capability {cc})" for (name, cc), count in names.items())
    yield Finding("gpus", "ok", f"{told}, driver {machine.driver or 'unknown'}")
    if machine.gpu_note:
        why = "what NVML shows is not all that decides which GPUs CUDA gives to vLLM"
        yield Finding("gpus", "note", machine.gpu_note, why, "set CUDA_VISIBLE_DEVICES if it is to be another one")
    if len({gpu.compute_capability for gpu in machine.gpus}) > 1:
        why = "vLLM picks its kernels by one GPU and runs them on all"
        yield Finding("gpus", "warning", "the GPUs are of different kinds", why, _choose(case))
    lowest = min((numbers(gpu.compute_capability) for gpu in machine.gpus if gpu.compute_capability), default=None)
    if lowest and lowest < OLDEST_FOR_FLASHINFER:
        what = f"compute capability {lowest[0]}.{lowest[1]} is below 7.5"
        why = "FlashInfer does not run on it, nor do most of vLLM's kernels for quantised weights"
        yield Finding("gpus", "warning", what, why, "use a newer GPU, or expect the slowest kernels")


def _choose(case: Case) -> str:
    first = case.machine.gpus[0].name
    return f"let CUDA_VISIBLE_DEVICES name GPUs of one kind alone, such as those that are {first}"


def _no_gpu(case: Case) -> Finding:
    """Return whether it is as it should be that there is no GPU."""
    machine, installed = case.machine, case.machine.installation
    what = machine.gpu_note or "no GPU was found"
    if machine.has_driver:
        do = "check nvidia-smi, CUDA_VISIBLE_DEVICES, and that the container was given the GPU (docker run --gpus all)"
        return Finding("gpus", "problem", what, "a driver is loaded, but vLLM would find no device", do)
    if installed.torch_cuda:
        why = f"torch is built for CUDA {installed.torch_cuda}, and vLLM will fail to infer the device type"
        do = "run it where there is a driver; a container needs --gpus all and the NVIDIA container toolkit"
        return Finding("gpus", "problem", what, why, do)
    return Finding("gpus", "ok", f"none ({what})")


def visible(case: Case) -> Iterator[Finding]:
    """Look at the variables that hide GPUs."""
    shown = case.environment.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in (shown or "").split(",") if name.strip()]
    if shown is not None and case.machine.has_driver and (not names or names[0] == "-1"):
        why = "CUDA shows no GPU at all when it is empty or begins with -1"
        yield Finding("visible-devices", "problem", f"CUDA_VISIBLE_DEVICES is {shown!r}", why, "unset it")
    elif len(set(names)) < len(names):
        why = "CUDA stops with an error, or shows fewer GPUs, where one is named twice"
        yield Finding("visible-devices", "problem", f"CUDA_VISIBLE_DEVICES is {shown!r}", why, "name each GPU once")
    elif shown is not None and len(case.machine.gpus) < len(names):
        what = f"CUDA_VISIBLE_DEVICES names {len(names)}, and {len(case.machine.gpus)} can be seen"
        why = "CUDA ignores what follows a name that it does not know"
        if case.machine.has_driver:
            yield Finding("visible-devices", "warning", what, why, "correct the names; nvidia-smi -L lists them")
    given = case.environment.get("NVIDIA_VISIBLE_DEVICES")
    if given in ("", "void", "none") and (case.machine.has_driver or case.machine.installation.torch_cuda):
        why = "the NVIDIA container toolkit then gives the container no GPU"
        yield Finding("visible-devices", "warning", f"NVIDIA_VISIBLE_DEVICES is {given!r}", why, "set it to all")
    yield from _capabilities(case)


def _capabilities(case: Case) -> Iterator[Finding]:
    given = case.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    lacks = [name for name in ("compute", "utility") if name not in (given or "").split(",")]
    if given and given != "all" and lacks and case.state.container:
        what = f"NVIDIA_DRIVER_CAPABILITIES is {given!r}"
        why = f"without {' and '.join(lacks)} the container has no {'CUDA' if 'compute' in lacks else 'NVML'} library"
        yield Finding("visible-devices", "warning", what, why, "set it to compute,utility")


def count(case: Case) -> Iterator[Finding]:
    """Compare the GPUs that the command needs with those that there are."""
    needed = case.ranks * (case.reading.number("--data-parallel-size-local") or case.engines)
    there = len(case.machine.gpus)
    if not there or not case.words or not case.is_alone:
        return
    if needed > there:
        what = f"the command needs {needed} GPUs, and {there} can be seen"
        why = "vLLM ends with: World size is larger than the number of available GPUs"
        yield Finding("gpu-count", "problem", what, why, "lower --tensor-parallel-size or --data-parallel-size")
    else:
        yield Finding("gpu-count", "ok", f"{needed} of {there} GPUs are used")
