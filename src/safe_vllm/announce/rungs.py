"""The rungs, as changes for someone who edits the command by hand."""

from __future__ import annotations

from collections.abc import Mapping

from safe_vllm.plan.ladder import LESS_PARALLEL, NO_AUTOTUNE, NO_EXPERT_PARALLEL, TRITON
from safe_vllm.verdict.evidence import Arguments

CHANGES = {
    NO_AUTOTUNE: "add --no-enable-flashinfer-autotune (vLLM 0.16 and later)",
    TRITON: "add --moe-backend triton (vLLM 0.17 and later; NVFP4 weights: cutlass or marlin)",
    LESS_PARALLEL: "put --tensor-parallel-size where --data-parallel-size was, on the same GPUs",
    NO_EXPERT_PARALLEL: "leave out --enable-expert-parallel",
}
"""What each rung means for someone who changes the command by hand."""
_FLAGS = {NO_AUTOTUNE: "--no-enable-flashinfer-autotune", TRITON: "--moe-backend triton"}
"""Words of advice that says the same as the rung."""


def without_effect(arguments: Arguments | None, *, is_on_cpu: bool) -> frozenset[str]:
    """Return the rungs that change nothing for a server that was started so; where nothing is known, none."""
    known = arguments or Arguments(data_parallel=True, expert_parallel=True)
    changes_nothing = {
        NO_AUTOTUNE: is_on_cpu or not known.autotune,
        TRITON: is_on_cpu or known.moe_backend == "triton",
        LESS_PARALLEL: not known.data_parallel,
        NO_EXPERT_PARALLEL: not known.expert_parallel,
    }
    return frozenset(rung for rung, nothing in changes_nothing.items() if nothing)


def fitting(suspect: str, relieves: Mapping[str, frozenset[str]], useless: frozenset[str]) -> list[str]:
    """Return the rungs that change something, in order; where the suspect is known, those that are an answer to it."""
    rungs = [rung for rung in CHANGES if rung not in useless]
    return [rung for rung in rungs if suspect in relieves[rung]] or rungs


def says_the_same(advice: str, rung: str) -> bool:
    """Return whether ``advice`` names the very flag of ``rung``."""
    return rung in _FLAGS and _FLAGS[rung] in advice
