"""What is installed: vLLM, torch, and the driver that they need."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.plan.dialect_table import numbers
from safe_vllm.plan.explain import ladder_line
from safe_vllm.plan.grammar import AUTOTUNE, MOE_BACKEND

COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/"


def vllm(case: Case) -> Iterator[Finding]:
    """Look for vLLM and its version."""
    installed = case.machine.installation
    if case.no_vllm:
        why = "there is nothing that could be started"
        yield Finding("vllm", "problem", case.no_vllm, why, "install vLLM, put it on PATH, or name it with --vllm")
    elif installed.vllm is None:
        what = f"the version is unknown ({installed.python or 'the interpreter behind the command was not found'})"
        why = "settings can then not be translated for it, and known faults not be recognised"
        yield Finding("vllm", "warning", what, why, "name the script that pip or uv installed with --vllm")
    else:
        yield Finding("vllm", "ok", f"{installed.vllm} ({installed.python})")


def dialect(case: Case) -> Iterator[Finding]:
    """Tell how well the flags of the installed vLLM are known."""
    if case.machine.installation.vllm is None:
        return
    is_degraded = not case.dialect.has(AUTOTUNE) and not case.dialect.has(MOE_BACKEND)
    why = "a rung can only change what the installed vLLM lets be changed"
    if is_degraded:
        what = f"vLLM {case.machine.installation.vllm} has no switch for autotune and none for the MoE backend"
        yield Finding("dialect", "warning", what, why, "upgrade to vLLM 0.17 or later")
        return
    for note in case.dialect.notes:
        do = "nothing, unless a rung is refused; a newer safe-vllm may know more"
        yield Finding("dialect", "note", note, why, do)
    if not case.dialect.notes:
        yield Finding("dialect", "ok", "every flag that a rung uses is known")


def cuda(case: Case) -> Iterator[Finding]:
    """Compare the CUDA that the driver can run with the one that torch was built for."""
    machine, installed = case.machine, case.machine.installation
    if installed.torch_cuda is None:
        if machine.gpus and installed.torch and installed.torch_rocm is None:
            what = f"torch {installed.torch} is built without CUDA, on a machine with GPUs"
            yield Finding("cuda", "warning", what, "vLLM will run on the CPU", "install the CUDA build of vLLM")
        return
    if machine.driver_cuda is None:
        return
    driver, built = numbers(machine.driver_cuda), numbers(installed.torch_cuda)
    what = (
        f"the driver {machine.driver or ''} runs CUDA {machine.driver_cuda}, torch is built for {installed.torch_cuda}"
    )
    what = what.replace("  ", " ")
    if driver[:1] < built[:1]:
        why = "torch will say that the CUDA driver version is insufficient"
        do = f"update the driver, install the forward-compatibility package ({COMPATIBILITY}), or use an older build"
        yield Finding("cuda", "problem", what, why, do)
    elif driver < built:
        why = f"within one major release that works, except for kernels that the driver must compile ({COMPATIBILITY})"
        yield Finding(
            "cuda", "note", what, why, "update the driver if a kernel image or PTX is reported as unsupported"
        )
    else:
        yield Finding("cuda", "ok", what)


def planned(case: Case) -> Iterator[Finding]:
    """Tell which profile is for this machine, or why there is none."""
    if case.no_plan:
        yield Finding("profile", "problem", case.no_plan, "serve would end with the same message", "correct it")
    elif case.plan:
        rungs = ladder_line(case.plan.ladder, case.plan.entry)
        yield Finding("profile", "ok", f"{case.plan.profile} ({case.plan.because}): {rungs}")
