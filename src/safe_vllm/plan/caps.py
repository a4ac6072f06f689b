"""Caps on tokens and workspace, for profiles that ask for them."""

from __future__ import annotations

from safe_vllm.plan.edit import Words, with_value
from safe_vllm.plan.flags import read
from safe_vllm.plan.grammar import BATCHED_TOKENS, CHUNKED_PREFILL, MODEL_LENGTH, SEQUENCES
from safe_vllm.plan.profile import RungEntry
from safe_vllm.plan.scene import Scene

WORKSPACE = "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE"
"""Bytes. https://github.com/vllm-project/vllm/pull/28269"""
SKIPPED_OPERATORS = "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS"
"""Replaces vLLM's own list. https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/envs.py#L1815"""
MOST_SEQUENCES = 1024
"""The largest default of ``--max-num-seqs``, which depends on the GPU.

https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/engine/arg_utils.py
"""
_MIB = 1024 * 1024


def with_token_cap(words: Words, entry: RungEntry, scene: Scene) -> Words:
    """Return ``words`` with no more tokens per step than the rung allows; vLLM refuses fewer than some others."""
    if entry.max_num_batched_tokens is None:
        return words
    cap = max(entry.max_num_batched_tokens, _fewest_tokens(words, scene))
    now = read(words, scene.config).number(BATCHED_TOKENS)
    return words if now is not None and now <= cap else with_value(words, BATCHED_TOKENS, str(cap), scene.config)


def variables_of(entry: RungEntry, scene: Scene) -> dict[str, str]:
    """Return the variables that stand for a rung's caps with the installed version."""
    found = dict(entry.environment)
    if entry.attention_workspace_mib and scene.dialect.reads(WORKSPACE):
        # below its own default vLLM has met kernels that do not fit
        found[WORKSPACE] = str(max(entry.attention_workspace_mib * _MIB, int(scene.dialect.default(WORKSPACE) or 0)))
    if skips(entry, scene):
        found[SKIPPED_OPERATORS] = ",".join(entry.skip_autotune_ops)
    return found


def skips(entry: RungEntry, scene: Scene) -> bool:
    """Whether single operators are left untuned here, so that autotune itself may stay on."""
    can = scene.dialect.reads(SKIPPED_OPERATORS, scene.flashinfer) and SKIPPED_OPERATORS not in scene.environment
    return bool(entry.skip_autotune_ops and can)


def _fewest_tokens(words: Words, scene: Scene) -> int:
    reading = read(words, scene.config)
    sequences = reading.number(SEQUENCES) or MOST_SEQUENCES
    if reading.setting(CHUNKED_PREFILL).value is not False:
        return sequences
    length = reading.number(MODEL_LENGTH) or scene.model.context_length or 0
    return max(sequences, length)
