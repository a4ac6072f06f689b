"""The ladder: complete sets of settings, from what was asked for down to the safest."""

from __future__ import annotations

from dataclasses import dataclass

AS_ASKED = "as-asked"
NO_AUTOTUNE = "no-autotune"
TRITON = "triton"
LESS_PARALLEL = "less-parallel"
NO_EXPERT_PARALLEL = "no-expert-parallel"
RUNG_NAMES = (AS_ASKED, NO_AUTOTUNE, TRITON, LESS_PARALLEL, NO_EXPERT_PARALLEL)

RELIEVES = {
    AS_ASKED: frozenset[str](),
    # Without tuning every FlashInfer operator runs its default tactic: MoE, GEMM and attention alike.
    NO_AUTOTUNE: frozenset({"autotune", "gemm", "attention"}),
    # Another MoE backend has other kernels, and none of the operators that were being tuned.
    TRITON: frozenset({"moe", "autotune"}),
    # The shapes that experts see change with the number of ranks; without DP there is no all-to-all.
    LESS_PARALLEL: frozenset({"parallel", "all-to-all", "moe"}),
    NO_EXPERT_PARALLEL: frozenset({"parallel", "all-to-all", "moe"}),
}
"""The suspects that each rung's own step answers; what the rungs above changed did not help, so it is not repeated."""

COSTS = {
    AS_ASKED: "nothing",
    NO_AUTOTUNE: "FlashInfer runs default tactics instead of the fastest ones; the start is minutes shorter",
    TRITON: "MoE kernels that are slower wherever FlashInfer's were the fast ones",
    LESS_PARALLEL: "fewer engines, each over more GPUs: less throughput under load; with MLA less room in the KV cache",
    NO_EXPERT_PARALLEL: "every expert is split over all GPUs: smaller kernels, more communication",
}
"""What the step to each rung takes away, on top of the rungs above."""


@dataclass(frozen=True)
class Rung:
    """One complete set of settings: what follows ``vllm serve``, and the variables we set."""

    name: str
    words: tuple[str, ...]
    """Every word after ``vllm serve``."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables we set, by name; the operator's own environment is not repeated here."""
    note: str | None = None
    """What a reader should know, such as "no effect here"."""
    because: str | None = None
    """Why the ladder has it."""
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    """A rung that this ladder does not have, and why."""

    name: str
    because: str


@dataclass(frozen=True)
class Ladder:
    """The rungs in order. Two neighbours never run the same command."""

    rungs: tuple[Rung, ...]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What will be run, and why it is this."""

    profile: str
    because: str
    """Why this profile was chosen."""
    ladder: Ladder
    entry: int = 0
    """The place of the rung that a launch starts with."""
    entry_because: str | None = None
    """Why it is not the first."""
    unread: frozenset[str] = frozenset()
    """Variables that we set and that the installed versions do not read."""
    notes: tuple[str, ...] = ()
    pins: frozenset[str] = frozenset()
    """Settings that no rung changes, as the operator asked."""
    observed: Rung | None = None
    """What runs instead of any rung where nothing may be changed: the operator's words, and no variable of ours."""
    forgets: bool = False
    """What is remembered leads nowhere any more, and is to be dropped."""
    caches: str | None = None
    """The directory of ours that the caches of all rungs are in, as when one held; ``None``: the operator's own."""
    fixed_in: tuple[str, ...] = ()
    """Releases in which the known fault is mended that the first rung avoids."""
