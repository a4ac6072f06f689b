"""All that the steps of a ladder look at."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from safe_vllm.machine.facts import Machine, ModelShape
from safe_vllm.plan import variables
from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.flags import read
from safe_vllm.plan.grammar import DATA_PARALLEL, EXPERT_BALANCING, EXPERT_PARALLEL, LORA
from safe_vllm.plan.groups import FROM_OUTSIDE
from safe_vllm.plan.known_bad import KnownBad
from safe_vllm.plan.profile import Profile
from safe_vllm.plan.settings import moe_backend

ENGINES = f"{FROM_OUTSIDE}SIZE"


@dataclass(frozen=True)
class Scene:
    """The profile, the machine, the installed vLLM and the operator's surroundings."""

    profile: Profile
    machine: Machine
    dialect: Dialect
    environment: Mapping[str, str]
    config: Config
    model: ModelShape
    """As far as its files or its name tell."""
    bad: KnownBad | None = None
    """What the operator's own settings are known to meet here."""
    pins: frozenset[str] = frozenset()
    """Settings that no rung may change."""
    kept_from_ray: Collection[str] = ()
    """Variables that the operator lets no worker of Ray have."""

    @property
    def compute_capability(self) -> str | None:
        """Return that of the first visible GPU."""
        return self.machine.gpus[0].compute_capability if self.machine.gpus else None

    @property
    def flashinfer(self) -> str | None:
        """Return the installed version."""
        return self.machine.installation.flashinfer

    def unread(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of the variables that nobody installed here reads."""
        return variables.unread(names, self.dialect, self.flashinfer)

    def is_data_parallel(self, words: Words) -> bool:
        """Whether there are several engines: by a flag, or by the variables of somebody who starts them one by one."""
        if (read(words, self.config).number(DATA_PARALLEL) or 1) > 1:
            return True
        ranks = any(name.startswith(f"{FROM_OUTSIDE}RANK") for name in self.environment)
        size = self.environment.get(ENGINES, "2" if ranks else "1")
        return size not in ("", "0", "1")

    def backend(self, words: Words) -> str | None:
        """Return the MoE backend in effect, also where vLLM chooses it by itself; ``None``: not known."""
        asked = str(moe_backend(words, self.config).value)
        if asked != "auto":
            return asked
        if self.machine.installation.vllm and not self.flashinfer:
            return None
        reading = read(words, self.config)
        return self.dialect.auto_backend(
            self.model.weight_format,
            self.compute_capability,
            data_parallel=self.is_data_parallel(words),
            expert_parallel=reading.setting(EXPERT_PARALLEL).value is True,
            in_blocks=self.model.block_size is not None if not self.model.is_guess else None,
            lora=reading.setting(LORA).value is True,
            expert_balancing=reading.setting(EXPERT_BALANCING).value is True,
            environment=self.environment,
        )
