"""FlashInfer: whether it is the version that vLLM was tested with, whether its parts match, whether it can be used."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.checks.tables import Pin
from safe_vllm.plan.dialect_table import release

NEEDS_NINJA = (0, 32)
"""https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/utils/flashinfer.py#L88"""
IS_USABLE = "https://github.com/vllm-project/vllm/blob/v0.23.0/vllm/utils/flashinfer.py#L48"


def pins(case: Case) -> Iterator[Finding]:
    """Compare FlashInfer and torch with what the installed vLLM asks for."""
    installed = case.machine.installation
    wanted = dict(_wanted(case))
    found = {
        "flashinfer-python": installed.flashinfer,
        "flashinfer-cubin": installed.flashinfer_cubin,
        "torch": installed.torch,
    }
    differ = False
    for name, version in wanted.items():
        have = found.get(name)
        if have is not None and _public(have) != _public(version):
            differ = True
            why = "it was built and tested with that one; others fail at import, or in kernels"
            do = f"pip install {name}=={version}"
            what = f"{name} {have} is installed, and vLLM {installed.vllm} asks for {version}"
            yield Finding("pins", "warning", what, why, do)
    if wanted and not differ:
        told = ", ".join(f"{name} {version}" for name, version in wanted.items() if found.get(name))
        yield Finding("pins", "ok", f"as vLLM {installed.vllm} asks for: {told or 'nothing of it is installed'}")


def _wanted(case: Case) -> Iterator[tuple[str, str]]:
    """Yield what the metadata asks for; without any, what the table of releases says."""
    if case.state.pins:
        yield from case.state.pins.items()
        return
    pin = _pin(case)
    if pin and case.machine.installation.torch_cuda:
        yield "flashinfer-python", pin.flashinfer
        if pin.cubin:
            yield "flashinfer-cubin", pin.flashinfer
        yield "torch", pin.torch


def _pin(case: Case) -> Pin | None:
    """Return the entry of this very release: a build between releases may ask for something else."""
    version = _public(case.machine.installation.vllm or "")
    return next((pin for pin in case.pins if version in pin.vllm), None)


def parts(case: Case) -> Iterator[Finding]:
    """Compare the packages of FlashInfer with each other; it does so itself when it is imported."""
    installed = case.machine.installation
    found = {"flashinfer-cubin": installed.flashinfer_cubin, "flashinfer-jit-cache": installed.flashinfer_jit_cache}
    there = {name: version for name, version in found.items() if version}
    if installed.flashinfer is None or not there:
        return
    is_forced = case.environment.get("FLASHINFER_DISABLE_VERSION_CHECK", "") not in ("", "0")
    wrong = {name: version for name, version in there.items() if _public(version) != _public(installed.flashinfer)}
    for name, version in wrong.items():
        why = (
            "FLASHINFER_DISABLE_VERSION_CHECK lets it pass, and kernels of another version are run"
            if is_forced
            else f"importing flashinfer fails: {name} version does not match flashinfer version"
        )
        what = f"{name} {version} beside flashinfer-python {installed.flashinfer}"
        do = f"pip install {name}=={_public(installed.flashinfer)}, or pip uninstall {name}"
        yield Finding("flashinfer-parts", "warning" if is_forced else "problem", what, why, do)
    if not wrong:
        told = ", ".join(f"{name} {version}" for name, version in there.items())
        yield Finding("flashinfer-parts", "ok", f"{told}, as flashinfer-python {installed.flashinfer}")


def usable(case: Case) -> Iterator[Finding]:
    """Look for what vLLM wants before it uses FlashInfer at all."""
    installed, condition = case.machine.installation, case.state
    if installed.torch_cuda is None or installed.vllm is None:
        return
    if installed.flashinfer is None:
        why = "vLLM does without it: no TRT-LLM kernels, no autotune, often slower attention"
        pin = condition.pins.get("flashinfer-python")
        what = f"not installed, and vLLM {installed.vllm} asks for {pin}" if pin else "not installed"
        do = f"pip install flashinfer-python=={pin}" if pin else "pip install the version that vLLM was tested with"
        yield Finding("flashinfer", "warning" if pin else "note", what, why, do)
        return
    has_cubin = installed.flashinfer_cubin or case.environment.get("VLLM_HAS_FLASHINFER_CUBIN", "0") not in ("", "0")
    lacks = [] if has_cubin or condition.nvcc else ["nvcc (or flashinfer-cubin)"]
    at = release(installed.vllm)
    lacks += ["ninja"] if at and at >= NEEDS_NINJA and condition.ninja is None else []
    if lacks:
        what = f"{installed.flashinfer} is installed, and {' and '.join(lacks)} not found"
        why = f"vLLM then leaves FlashInfer's kernels out, mostly without a word ({IS_USABLE})"
        yield Finding("flashinfer", "warning", what, why, f"put {' and '.join(lacks)} on PATH or install it")
    else:
        yield Finding("flashinfer", "ok", f"{installed.flashinfer}, usable")


def _public(version: str) -> str:
    """Return a version without the name of its build, as in ``2.11.0+cu130``."""
    return version.partition("+")[0]
