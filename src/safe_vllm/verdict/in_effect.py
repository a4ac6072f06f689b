"""What is left of the advice once it is known what was in effect when vLLM died."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from safe_vllm.verdict.advice import Table, advised
from safe_vllm.verdict.evidence import Advised, Verdict

MXFP4 = "_mxfp4"


class InEffect(Protocol):
    """What was in effect when vLLM died."""

    def named_backend(self, suspect: str) -> str | None:
        """Return the backend that the command names for what is suspected; ``None``: vLLM chose."""

    def has_effect_of(self, advice: Advised) -> bool:
        """Return whether ``advice`` asks for what is so already, or for a change to what is not in use."""


def advised_with(verdict: Verdict, table: Table, running: InEffect, *, is_mxfp4: bool = False) -> Verdict:
    """Return the verdict with advice that is not in effect already, and that fits the backend that the command names.

    What is left out makes room: only the first few pieces of advice are given.
    """
    named = running.named_backend(verdict.suspect)
    is_vague = verdict.backend is None or _plain(verdict.backend) in _plain(named or "")
    if named and is_mxfp4:  # TRT-LLM's kernels for such weights have another name in the output
        named += MXFP4
    told = replace(verdict, backend=named if named and is_vague else verdict.backend)
    left = tuple(entry for entry in table if not running.has_effect_of(entry))
    return replace(advised(told, left), backend=verdict.backend)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
