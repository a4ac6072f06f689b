"""What of the advice is of use to somebody who reads a report: not what was in effect already when vLLM died."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.settings import autotune, moe_backend
from safe_vllm.record.incident import Core
from safe_vllm.record.incident_command import has, option

MOE, ATTENTION, ALL2ALL = "--moe-backend", "--attention-backend", "--all2all-backend"
FOLLOWED = {
    "PYTHONFAULTHANDLER": "process",
    "keep the core file": "gpu",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "gpu",
    "py-spy dump": "stacks",
}
"""Signs of advice, and what there is already where somebody followed it."""
OPEN = "open the core file, which shows where the process crashed: "
OPEN_GPU = "open the GPU core dump, which names the kernel: "
ABOUT_TUNING = re.compile(r"tuner|untuned|autotune|AUTOTUNE|tune again|tuned in|tuning")
_ASSIGNED = re.compile(r"\b([A-Z][A-Z0-9_]{3,})=([\w./:-]*\w)")
_FLAG = re.compile(r"^(?:[^:]*: )?(--[\w-]+)(?: ([\w.-]+))?")
_OMITTED = re.compile(r"\bleave out (--[\w-]+) if it is set")
_VERBS = frozenset("avoids avoid helped ended served stopped makes moves turns".split())
"""What follows a switch in a piece of advice, where a value would follow another flag."""


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

    def has_effect_of(self, advice: str) -> bool:
        """Whether ``advice`` asks for what is so already, or for a change to what is not in use."""
        if not self.tunes and ABOUT_TUNING.search(advice):
            return True
        if omitted := _OMITTED.search(advice):
            return not has(self.words, omitted[1])
        return self.has(advice)

    def has(self, advice: str) -> bool:
        """Whether the setting that ``advice`` names is in effect."""
        assigned = _ASSIGNED.findall(advice)
        if assigned and all(self.environment.get(name) == value for name, value in assigned):
            return True
        return (flag := _FLAG.match(advice)) is not None and self._has(flag[1], flag[2] or "")

    def _has(self, flag: str, value: str) -> bool:
        if flag == MOE:
            return self.named_backend("moe") == value.replace("-", "_")
        if not value or value in _VERBS:
            return has(self.words, flag)
        return option(self.words, flag, self.config) == value


def useful(
    advice: Sequence[str], running: Running, cores: Sequence[Core], python: str | None, *, has_stacks: bool
) -> Iterator[str]:
    """Yield what to do with the core files that there are, and what is left of the advice."""
    kinds = {core.kind for core in cores}
    for kind in sorted(kinds):
        path = next(core.path for core in cores if core.kind == kind)
        with_python = f"gdb {shlex.quote(python or 'python3')} {shlex.quote(path)}"
        on_gpu = f"cuda-gdb -ex {shlex.quote(f'target cudacore {path}')}"
        yield OPEN_GPU + on_gpu if kind == "gpu" else OPEN + with_python
    there = {*kinds, *(["stacks"] if has_stacks else [])}
    done = [sign for sign, kind in FOLLOWED.items() if kind in there]
    yield from (text for text in advice if not (running.has_effect_of(text) or any(sign in text for sign in done)))
