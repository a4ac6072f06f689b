"""What each rung changes, on top of all rungs above it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from safe_vllm.plan.caps import skips, variables_of, with_token_cap
from safe_vllm.plan.dialect_table import numbers
from safe_vllm.plan.edit import Words
from safe_vllm.plan.grammar import AUTOTUNE, MOE_BACKEND
from safe_vllm.plan.ladder import AS_ASKED, LESS_PARALLEL, NO_AUTOTUNE, NO_EXPERT_PARALLEL, TRITON, LeftOut, Rung
from safe_vllm.plan.parallelism import less_parallel, no_expert_parallel
from safe_vllm.plan.profile import SAFE, RungEntry
from safe_vllm.plan.scene import Scene
from safe_vllm.plan.settings import (
    autotune,
    drafter_backend,
    drafter_method,
    moe_backend,
    normal,
    with_drafter_backend,
    with_moe_backend,
    without_autotune,
)
from safe_vllm.plan.variables import merged

UNQUANTISED_BACKEND = "triton"
"""What an unquantised drafter takes; the backends of quantised weights are refused for it."""
DRAFTER_BACKEND = "--speculative-config.moe_backend"
DRAFTS_WITH_EXPERTS = "mtp"
"""Drafters made of a layer of the model, experts and all; the others have none."""
OPT_INS = (
    "VLLM_USE_FLASHINFER_MOE_FP16",
    "VLLM_USE_FLASHINFER_MOE_FP8",
    "VLLM_USE_FLASHINFER_MOE_FP4",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS",
)
"""How FlashInfer's MoE kernels were asked for before there was a flag.

https://github.com/vllm-project/vllm/blob/v0.15.1/vllm/envs.py
"""
_ON = ("1", "true")
TUNED_FROM = 9
"""Major number of the compute capability from which vLLM tunes FlashInfer at all."""

Changed = Words | LeftOut
Step = Callable[[Words, RungEntry, Scene], Changed]


def stepped(last: Rung, entry: RungEntry, scene: Scene) -> Rung | LeftOut:
    """Return the rung that makes its own change on top of ``last``, or why there is none."""
    changed = _STEPS[entry.rung](last.words, entry, scene)
    if isinstance(changed, LeftOut):
        return changed
    ours = merged(last.environment, variables_of(entry, scene), scene.environment)
    if entry.rung == TRITON:
        ours = (*ours, *((name, "0") for name in _opted_in(scene)))
    words = with_token_cap(changed, entry, scene)
    return Rung(entry.rung, words, ours, _note(entry, last.words, words, scene), entry.because, entry.links)


def _note(entry: RungEntry, before: Words, after: Words, scene: Scene) -> str | None:
    """Return the profile's note, and whether the rung asks for what vLLM would choose anyway."""
    is_left = moe_backend(before, scene.config).value == "auto"
    asked = str(moe_backend(after, scene.config).value)
    is_same = entry.rung == TRITON and is_left and asked != "auto" and scene.backend(before) == asked
    same = f"MoE backend auto is {asked} here already, as a rule" if is_same else None
    return "; ".join(part for part in (entry.note, same or _other(entry, asked, scene)) if part) or None


def _other(entry: RungEntry, asked: str, scene: Scene) -> str | None:
    """Return which backend it is where the rung, in spite of its name, does not ask for Triton."""
    if entry.rung != TRITON or asked in (UNQUANTISED_BACKEND, "auto") or scene.dialect.missing(MOE_BACKEND):
        return None
    if entry.moe_backend not in (None, SAFE):
        return f"{asked} here, as the profile says"
    return f"{asked} here: the safe backend for {scene.model.weight_format or 'these'} weights on this GPU"


def _as_asked(words: Words, entry: RungEntry, scene: Scene) -> Changed:
    """Ask for the profile's MoE backend where the operator asks for none."""
    wanted = entry.moe_backend or scene.profile.moe_backend
    is_free = wanted is not None and moe_backend(words, scene.config).source == "default"
    return with_moe_backend(words, wanted, scene.config) if wanted and is_free and _takes(wanted, scene) else words


def _no_autotune(words: Words, entry: RungEntry, scene: Scene) -> Changed:
    if because := scene.dialect.missing(AUTOTUNE) or _never_tunes(scene):
        return LeftOut(NO_AUTOTUNE, because)
    is_off = autotune(words, scene.config, scene.dialect.levels_without_autotune).value is False
    changed = words if is_off or skips(entry, scene) else without_autotune(words, scene.config)
    return _with_entry_backend(changed, entry, scene)


def _triton(words: Words, entry: RungEntry, scene: Scene) -> Changed:
    if because := _no_experts(scene):
        return LeftOut(TRITON, because)
    if because := scene.dialect.missing(MOE_BACKEND):
        return words if _opted_in(scene) else LeftOut(TRITON, because)
    backend = _safe(entry, scene)
    if isinstance(backend, LeftOut):
        return backend
    return _with_drafter(with_moe_backend(words, backend, scene.config), backend, scene)


def _less_parallel(words: Words, entry: RungEntry, scene: Scene) -> Changed:
    if because := _no_experts(scene):
        return LeftOut(LESS_PARALLEL, because)
    changed = less_parallel(words, scene.config, scene.environment, scene.machine)
    return changed if isinstance(changed, LeftOut) else _with_entry_backend(changed, entry, scene)


def _no_expert_parallel(words: Words, entry: RungEntry, scene: Scene) -> Changed:
    if because := _no_experts(scene):
        return LeftOut(NO_EXPERT_PARALLEL, because)
    changed = no_expert_parallel(words, scene.config, scene.environment, scene.machine)
    return changed if isinstance(changed, LeftOut) else _with_entry_backend(changed, entry, scene)


_STEPS: Mapping[str, Step] = {
    AS_ASKED: _as_asked,
    NO_AUTOTUNE: _no_autotune,
    TRITON: _triton,
    LESS_PARALLEL: _less_parallel,
    NO_EXPERT_PARALLEL: _no_expert_parallel,
}


def _safe(entry: RungEntry, scene: Scene) -> str | LeftOut:
    """Return the MoE backend that the rung asks for: the profile's word, or what is safe for weights and GPU."""
    if entry.moe_backend not in (None, SAFE):
        wanted = str(entry.moe_backend)
        return wanted if _takes(wanted, scene) else LeftOut(TRITON, _refusal(wanted, scene))
    known = scene.dialect.safe_backends(scene.model.weight_format, scene.compute_capability)
    best = scene.bad.moe_backend if scene.bad else None
    if best in known or known:
        return best if best in known and best else known[0]
    weights = f"{scene.model.weight_format} weights" if scene.model.weight_format else "these weights"
    where = f" on compute capability {scene.compute_capability}" if scene.compute_capability else ""
    return LeftOut(TRITON, f"no MoE backend without FlashInfer takes {weights}{where} in this version of vLLM")


def _with_drafter(words: Words, backend: str, scene: Scene) -> Words:
    """Return ``words`` in which a drafter does not run FlashInfer's experts either."""
    method, own = drafter_method(words, scene.config), drafter_backend(words, scene.config)
    if method is None or scene.dialect.missing(DRAFTER_BACKEND):
        return words
    inherits = own in (None, "auto")
    is_wrong = own is not None and own.startswith("flashinfer")
    if is_wrong or (inherits and DRAFTS_WITH_EXPERTS in method and backend != UNQUANTISED_BACKEND):
        return with_drafter_backend(words, UNQUANTISED_BACKEND, scene.config)
    return words


def _with_entry_backend(words: Words, entry: RungEntry, scene: Scene) -> Words:
    wanted = _safe(entry, scene) if entry.moe_backend == SAFE else entry.moe_backend
    if wanted is None or isinstance(wanted, LeftOut) or not _takes(wanted, scene):
        return words
    return with_moe_backend(words, wanted, scene.config)


def _takes(backend: str, scene: Scene) -> bool:
    return normal(backend) in scene.dialect.moe_backends


def _refusal(backend: str, scene: Scene) -> str:
    return f"--moe-backend {backend} is none of those that vLLM takes: {', '.join(scene.dialect.moe_backends)}"


def _opted_in(scene: Scene) -> tuple[str, ...]:
    """Return the variables by which the operator asked for FlashInfer's MoE kernels, where there is no flag for it."""
    if not scene.dialect.missing(MOE_BACKEND):
        return ()
    is_on = (name for name in OPT_INS if scene.environment.get(name, "").lower() in _ON)
    return tuple(name for name in is_on if scene.dialect.reads(name))


def _never_tunes(scene: Scene) -> str | None:
    """Return why there is no autotune here to switch off.

    https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/model_executor/warmup/kernel_warmup.py#L261
    """
    installed, capability = scene.machine.installation, scene.compute_capability
    if installed.vllm and installed.torch_cuda and not installed.flashinfer:
        return "FlashInfer is not installed, so nothing is tuned"
    major = numbers(capability or "")[:1]
    if not major or major[0] >= TUNED_FROM:
        return None
    return f"vLLM tunes FlashInfer from compute capability {TUNED_FROM}.0 on, and this GPU has {capability}"


def _no_experts(scene: Scene) -> str | None:
    return "the model has no experts" if scene.model.experts == 0 else None
