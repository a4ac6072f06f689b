"""All that the checks look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from safe_vllm.checks.finding import Finding
from safe_vllm.checks.tables import Knob, Pin
from safe_vllm.machine.condition import Condition
from safe_vllm.machine.facts import Machine
from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.flags import Reading, read
from safe_vllm.plan.grammar import DATA_PARALLEL, EXECUTOR
from safe_vllm.plan.known_bad import KnownBad
from safe_vllm.plan.ladder import Plan
from safe_vllm.plan.remembered import Remembered
from safe_vllm.plan.scene import Scene
from safe_vllm.plan.split import sizes_of

NOTHING = Remembered()


@dataclass(frozen=True)
class Case:
    """A machine, what is installed on it, and the command that will run there."""

    machine: Machine
    dialect: Dialect
    condition: Condition | None = None
    """``None``: the machine is a recorded one, and not at hand."""
    environment: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    """What would follow ``vllm serve``; none: nothing is known of the command."""
    config: Mapping[str, object] | None = None
    no_vllm: str | None = None
    """Why the command was not found."""
    plan: Plan | None = None
    no_plan: str | None = None
    """Why there is no plan."""
    scene: Scene | None = None
    """What the plan was made of, to ask what is known about one of its rungs."""
    remembered: Remembered = NOTHING
    """What earlier launches of this command have learnt."""
    not_remembered: tuple[str, ...] = ()
    """What is wrong with the place where that is kept."""
    pins: tuple[Pin, ...] = ()
    knobs: tuple[Knob, ...] = ()
    known_bad: tuple[KnownBad, ...] = ()

    @property
    def state(self) -> Condition:
        """The state of the machine, or one of which nothing is known."""
        return self.condition or Condition()

    @cached_property
    def reading(self) -> Reading:
        """The flags of the command."""
        return read(self.words, self.config)

    @property
    def ranks(self) -> int:
        """How many GPUs one engine uses."""
        sizes = sizes_of(self.reading)
        return sizes.gpus // sizes.data if sizes else 1

    @property
    def engines(self) -> int:
        """How many engines there are."""
        return self.reading.number(DATA_PARALLEL) or 1

    @property
    def is_alone(self) -> bool:
        """Whether all of it runs on this machine, as far as the command tells."""
        is_elsewhere = self.reading.setting(EXECUTOR).value in ("ray", "external_launcher")
        return not is_elsewhere and (self.reading.number("--nnodes") or 1) == 1

    @property
    def torch_cuda_major(self) -> str | None:
        """The CUDA that torch was built for."""
        return (self.machine.installation.torch_cuda or "").partition(".")[0] or None


Check = Callable[[Case], Iterator[Finding]]
