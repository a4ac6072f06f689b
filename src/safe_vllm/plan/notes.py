"""What an operator should know about a plan beside its ladder."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.plan import variables
from safe_vllm.plan.caps import SKIPPED_OPERATORS, skips
from safe_vllm.plan.edit import Words
from safe_vllm.plan.grammar import AUTOTUNE, MOE_BACKEND
from safe_vllm.plan.scene import Scene
from safe_vllm.plan.secrets import without_secrets
from safe_vllm.plan.settings import moe_backend, normal
from safe_vllm.plan.strangers import strangers

OURS = ("VLLM_", "FLASHINFER_", "TRTLLM_")
"""How the variables begin that somebody may have set for vLLM or FlashInfer."""


def notes(words: Words, scene: Scene) -> tuple[str, ...]:
    """Return the remarks on a plan whose first rung runs ``words``, one sentence each."""
    return tuple(_notes(words, scene))


def _notes(words: Words, scene: Scene) -> Iterator[str]:
    yield from scene.dialect.notes
    if scene.machine.has_driver and scene.machine.gpu_note:
        yield scene.machine.gpu_note
    if scene.machine.model_note:
        yield without_secrets(scene.machine.model_note)
    yield from strangers(words, scene.dialect)
    yield from _on_the_model(words, scene)
    if (wanted := scene.profile.moe_backend) and normal(wanted) not in scene.dialect.moe_backends:
        because = scene.dialect.missing(MOE_BACKEND) or "the installed vLLM does not take it"
        yield f"moe_backend {wanted} of the profile is not used: {because}"
    yield from _on_skipping(scene)
    ours = variables.wanted(scene.profile, scene.machine)
    yield from (f"{name} is set in the environment and stays as it is" for name in ours if name in scene.environment)
    yield from _on_the_environment(scene)


def _on_skipping(scene: Scene) -> Iterator[str]:
    """Tell where single operators cannot be left untuned, so that nothing is tuned at that rung."""
    asks = [entry for entry in scene.profile.ladder if entry.skip_autotune_ops]
    if (
        asks
        and "autotune" not in scene.pins
        and scene.dialect.has(AUTOTUNE)
        and not any(skips(entry, scene) for entry in asks)
    ):
        is_set = f"{SKIPPED_OPERATORS} is set in the environment" if SKIPPED_OPERATORS in scene.environment else None
        because = is_set or scene.dialect.unread(SKIPPED_OPERATORS, scene.flashinfer) or "vLLM does not read it"
        yield f"skip_autotune_ops of the profile cannot be used, and all autotune is off instead: {because}"


def _on_the_model(words: Words, scene: Scene) -> Iterator[str]:
    if scene.model.is_guess and scene.model.experts:
        weights = scene.model.weight_format or "some quantised"
        yield f"the model's config.json is not on this machine: by its name taken for a model with {weights} experts"
    if scene.model.experts == 0 or moe_backend(words, scene.config).value != "auto":
        return
    if scene.model.experts and (backend := scene.backend(words)):
        kind = f"{scene.model.weight_format} experts, compute capability {scene.compute_capability}"
        yield f"MoE backend auto is {backend} here ({kind})"


def _on_the_environment(scene: Scene) -> Iterator[str]:
    for name in sorted(scene.environment):
        if name.startswith(OURS) and (because := scene.dialect.unread(name, scene.flashinfer)):
            yield f"{name} in the environment has no effect: {because}"
