"""What was in effect when vLLM died, and whether a piece of advice says more than that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.settings import autotune, moe_backend
from safe_vllm.plan.shape_flags import has, option

MOE, ATTENTION, ALL2ALL = "--moe-backend", "--attention-backend", "--all2all-backend"


class Advice(Protocol):
    """What a piece of advice says to change."""

    @property
    def sets(self) -> Sequence[str]:
        """Return the flags as ``--flag value`` and the variables as ``NAME=value``, all of which it says to set."""

    @property
    def leaves_out(self) -> str | None:
        """Return the flag that it says to leave out."""

    @property
    def needs_tuning(self) -> bool:
        """Return whether it is of use only where kernels are tuned."""


@dataclass(frozen=True)
class Running:
    """What was in effect when vLLM died."""

    words: Words
    """After ``vllm serve``."""
    environment: Mapping[str, str]
    config: Config = None

    @property
    def tunes(self) -> bool:
        """Whether FlashInfer may tune kernels."""
        return autotune(self.words, self.config).value is not False

    def named_backend(self, suspect: str) -> str | None:
        """Return the backend that the command names for what is suspected; ``None``: vLLM chose."""
        if suspect == "attention":
            named = option(self.words, ATTENTION, self.config) or self.environment.get("VLLM_ATTENTION_BACKEND")
        elif suspect == "all-to-all":
            named = option(self.words, ALL2ALL, self.config) or self.environment.get("VLLM_ALL2ALL_BACKEND")
        else:
            named = str(moe_backend(self.words, self.config).value)
        return None if named in (None, "", "auto") else named

    def has_effect_of(self, advice: Advice) -> bool:
        """Whether ``advice`` asks for what is so already, or for a change to what is not in use."""
        if advice.leaves_out and not has(self.words, advice.leaves_out):
            return True
        return (advice.needs_tuning and not self.tunes) or self.has(advice)

    def has(self, advice: Advice) -> bool:
        """Whether the settings that ``advice`` names are in effect."""
        return bool(advice.sets) and all(map(self._has, advice.sets))

    def _has(self, setting: str) -> bool:
        flag, _, value = setting.partition(" ")
        if not flag.startswith("--"):
            name, _, value = setting.partition("=")
            return self.environment.get(name) == value
        if flag == MOE:
            return self.named_backend("moe") == value.replace("-", "_")
        return option(self.words, flag, self.config) == value if value else has(self.words, flag)
