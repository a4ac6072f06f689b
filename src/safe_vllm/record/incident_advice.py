"""What of the advice is of use to somebody who reads a report: not what was in effect already when vLLM died."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.settings import autotune, moe_backend
from safe_vllm.record.incident import Core
from safe_vllm.record.incident_command import has, option
from safe_vllm.verdict.evidence import Advised

MOE, ATTENTION, ALL2ALL = "--moe-backend", "--attention-backend", "--all2all-backend"
OPEN = "open the core file, which shows where the process crashed: "
OPEN_GPU = "open the GPU core dump, which names the kernel: "


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

    def has_effect_of(self, advice: Advised) -> bool:
        """Whether ``advice`` asks for what is so already, or for a change to what is not in use."""
        if advice.leaves_out and not has(self.words, advice.leaves_out):
            return True
        return (advice.needs_tuning and not self.tunes) or self.has(advice)

    def has(self, advice: Advised) -> bool:
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


def opening(cores: Sequence[Core], python: str | None) -> Iterator[str]:
    """Yield what to do with the core files that there are, one of each kind."""
    firsts = {core.kind: core.path for core in reversed(cores)}
    for kind, path in sorted(firsts.items()):
        with_python = f"gdb {shlex.quote(python or 'python3')} {shlex.quote(path)}"
        on_gpu = f"cuda-gdb -ex {shlex.quote(f'target cudacore {path}')}"
        yield OPEN_GPU + on_gpu if kind == "gpu" else OPEN + with_python
