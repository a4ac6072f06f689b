"""How the variables of a rung get to workers that Ray starts: by which of vLLM's own means.

A cluster that runs already has an environment of its own, so what vLLM does not hand over is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.dialect_table import RayCopies, RayWhole
from safe_vllm.plan.edit import Config
from safe_vllm.plan.flags import Reading, read
from safe_vllm.plan.grammar import DATA_PARALLEL_BACKEND, EXECUTOR
from safe_vllm.plan.groups import is_ray, placed_by_ray
from safe_vllm.plan.ladder import Rung

WHOLE_CLASS = ".RayExecutorV2"
"""How the name of the executor ends that hands over everything, where a class is given."""

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Means:
    """What vLLM does to bring variables to workers that Ray starts."""

    copies: RayCopies | None
    """What it looks up by name; ``None``: it hands over everything."""
    asks: str | None
    """The variable in which more names can be listed."""
    yields: bool
    """Whether what a node has set already may stand."""
    missed: tuple[str, ...] = ()
    """What never gets through, since a worker has set it by then."""

    def carries(self, name: str, environment: Environment) -> bool:
        """Whether it hands over the variable in this environment, in which more may be asked for."""
        if self.copies is None:
            return True
        names = _listed(environment, self.asks)
        prefixes = _listed(environment, self.copies.prefixes_asked_by)
        return name in (*self.copies.names, *names) or name.startswith((*self.copies.prefixes, *prefixes))


def means_of(reading: Reading, environment: Environment, dialect: Dialect, *, is_used: bool = False) -> Means | None:
    """Return by what means variables get to workers; ``None``: Ray starts none, unless ``is_used`` says so."""
    if not is_used and placed_by_ray(reading) is None:
        return None
    table = dialect.table.ray
    whole = next((entry for entry in table.whole if entry.covers(dialect.at)), None)
    is_whole = _hands_over_all(str(reading.setting(EXECUTOR).value), whole, environment)
    missed = whole.missed if whole and is_whole else ()
    if is_whole and not is_ray(reading.setting(DATA_PARALLEL_BACKEND).value):
        return Means(None, None, True, missed)
    copies = next(entry for entry in table.copies if entry.covers(dialect.at))
    asks = copies.asked_by if copies.asked_by and dialect.reads(copies.asked_by) else None
    return Means(copies, asks, is_whole, missed)


def reaching(rung: Rung, environment: Environment, dialect: Dialect, config: Config = None) -> Rung:
    """Return the rung with what makes vLLM hand its variables to Ray's workers; without Ray, the rung.

    What is listed already, by the operator or by us, stays listed.
    """
    all_of_it = {**environment, **dict(rung.environment)}
    means = means_of(read(rung.words, config), all_of_it, dialect)
    if means is None or means.asks is None:
        return rung
    own = dialect.table.ray.own
    names = [name for name, _ in rung.environment if name not in own and not means.carries(name, all_of_it)]
    if not names:
        return rung
    listed = all_of_it.get(means.asks, "").rstrip(", ")
    value = ",".join((*((listed,) if listed else ()), *names))
    return replace(rung, environment=tuple({**dict(rung.environment), means.asks: value}.items()))


def _hands_over_all(executor: str, whole: RayWhole | None, environment: Environment) -> bool:
    """Whether the executor is the one that hands over everything. Unless one is named, engines of Ray have it too."""
    if executor not in ("ray", "None"):
        return executor.endswith(WHOLE_CLASS)
    if whole is None:
        return False
    return whole.switch is None or environment.get(whole.switch, whole.default).strip() != "0"


def _listed(environment: Environment, variable: str | None) -> tuple[str, ...]:
    text = environment.get(variable, "") if variable else ""
    return tuple(part.strip() for part in text.split(",") if part.strip())
