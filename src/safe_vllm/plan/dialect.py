"""How the installed vLLM spells what a plan may set: the table of releases, and above it the installed source."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from safe_vllm.machine.facts import Surface
from safe_vllm.plan import dialect_table
from safe_vllm.plan.dialect_notes import notes
from safe_vllm.plan.dialect_table import Cache, Entry, Flag, Release, Table, Variable, numbers, release
from safe_vllm.plan.grammar import MOE_BACKEND
from safe_vllm.plan.groups import FROM_OUTSIDE

SERVERS = ("--host", "--port", "--api-key")
"""Flags of the HTTP server alone: where they were read, so were its others."""


@dataclass(frozen=True)
class Dialects:
    """All dialects that are known."""

    table: Table

    def of(self, version: str | None, surface: Surface | None = None) -> Dialect:
        """Return the dialect of an installed vLLM; an unknown version is taken for the newest that is known."""
        newest, oldest = (*numbers(self.table.newest), 0), (*numbers(self.table.oldest), 0)
        at = max(release(version) or newest, oldest)
        seen = surface or Surface()
        return Dialect(version, self.table, at, seen, notes(self.table, version, at, seen))


def parse(content: object) -> Dialects:
    """Return the dialects that ``content``, as read from ``dialects.yaml``, describes; raises ``Trouble``."""
    return Dialects(dialect_table.parse(content))


@dataclass(frozen=True)
class Dialect:
    """What one installed vLLM takes. Its source decides what exists; where that could not be read, the table does."""

    version: str | None
    """As installed."""
    table: Table
    at: Release
    """The release that the table is asked about."""
    surface: Surface
    notes: tuple[str, ...]
    """What the operator should know: what is not certain, and where the source differs from the table."""

    def has(self, flag: str) -> bool:
        """Whether it takes the flag; with a dot, whether the flag before it takes that key."""
        return self.missing(flag) is None

    def missing(self, flag: str) -> str | None:
        """Return why it does not take the flag; ``None``: it does."""
        entry = self.table.flag(flag)
        by_source = self._is_in_source(flag, entry)
        if by_source or (by_source is None and entry and entry.covers(self.at)):
            return None
        return self._why_not(flag, entry) or f"the installed {self._name} has no {flag}"

    @property
    def flags(self) -> frozenset[str] | None:
        """All flags that the source names; ``None``: not all of it could be read."""
        flags = self.surface.flags
        return flags if flags and flags.issuperset(SERVERS) else None

    @cached_property
    def moe_backends(self) -> tuple[str, ...]:
        """What ``--moe-backend`` takes; empty where there is no such flag."""
        if not self.has(MOE_BACKEND):
            return ()
        if self.surface.moe_backends is not None:
            return self.surface.moe_backends
        return tuple(entry.name for entry in self.table.moe_backends if entry.covers(self.at))

    @property
    def levels_without_autotune(self) -> tuple[str, ...]:
        """The optimisation levels at which FlashInfer autotune is off unless it is asked for."""
        if self.surface.levels_without_autotune is not None:
            return self.surface.levels_without_autotune
        return next((entry.off_at for entry in reversed(self.table.autotune) if entry.covers(self.at)), ())

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names of the variables that it reads, as far as they are known."""
        known = frozenset(entry.name for entry in self.table.variables) | (self.surface.variables or frozenset())
        return frozenset(name for name in known if self.reads(name))

    @cached_property
    def caches(self) -> tuple[Cache, ...]:
        """What it keeps from one start to the next, in directories that a variable moves."""
        return tuple(
            cache for cache in self.table.caches if cache.covers(self.at) and self.reads(cache.variable) is not False
        )

    def pinned_by(self, variable: str) -> str | None:
        """Return the setting that a variable belongs to, as ``--pin`` names it; ``None``: to none."""
        if variable in (cache.variable for cache in self.table.caches):
            return "caches"
        entry = self.table.variable(variable)
        return "data-parallel-size" if variable.startswith(FROM_OUTSIDE) else entry.pin if entry else None

    def reads(self, name: str, flashinfer: str | None = None) -> bool | None:
        """Whether it, or this version of FlashInfer, reads the variable; ``None``: not known."""
        if name.startswith("VLLM_") and self.surface.variables is not None:
            return self.unread(name, flashinfer) is None
        return None if self.table.variable(name) is None else self.unread(name, flashinfer) is None

    def unread(self, name: str, flashinfer: str | None = None) -> str | None:
        """Return why the variable has no effect; ``None``: it has, or nothing is known about it."""
        entry = self.table.variable(name)
        if entry and entry.by == "nobody":
            return f"no released vLLM or FlashInfer reads {name}"
        return self._unknown_to_vllm(name, entry) or (self._without_effect(entry, flashinfer) if entry else None)

    def default(self, variable: str) -> str | None:
        """Return the value that vLLM takes where the variable is not set; ``None``: not known, or none."""
        entry = self.table.variable(variable)
        return entry.default if entry and self.reads(variable) else None

    def safe_backends(self, weight_format: str | None, compute_capability: str | None) -> tuple[str, ...]:
        """Return the MoE backends without FlashInfer that it takes for these weights and this GPU, preferred first."""
        return tuple(
            entry.backend
            for entry in self.table.safe_backends
            if entry.covers(self.at)
            and entry.suits(weight_format, compute_capability)
            and entry.backend in self.moe_backends
        )

    def auto_backend(
        self,
        weight_format: str | None,
        compute_capability: str | None,
        *,
        data_parallel: bool = False,
        expert_parallel: bool = False,
        in_blocks: bool | None = None,
        lora: bool = False,
        expert_balancing: bool = False,
        environment: Collection[str] = (),
    ) -> str | None:
        """Return what the backend ``auto`` resolves to as a rule; ``None``: not known. ``environment``: names set."""
        if compute_capability is None:
            return None
        for entry in self.table.auto_backends:
            if (
                entry.covers(self.at)
                and entry.suits(weight_format, compute_capability)
                and entry.data_parallel in (None, data_parallel)
                and entry.expert_parallel in (None, expert_parallel)
                and entry.in_blocks in (None, in_blocks)
                and entry.lora in (None, lora)
                and entry.expert_balancing in (None, expert_balancing)
            ):
                return entry.backend if not any(name in environment for name in entry.unless_set) else None
        return None

    def _is_in_source(self, flag: str, entry: Flag | None) -> bool | None:
        """Whether the source has the flag; ``None``: the place where it would be was not read."""
        flags = self.surface.flags
        if flags is None:
            return None
        prefix, dot, _ = flag.partition(".")
        if dot and not any(name.startswith(f"{prefix}.") for name in flags):
            return None
        if entry and entry.is_front_end and not any(each.name in flags for each in self._front_end):
            return None
        return flag in flags

    @property
    def _name(self) -> str:
        return f"vLLM {self.version}" if self.version else "vLLM"

    def _why_not(self, name: str, entry: Entry | None) -> str | None:
        return entry.why_not(name, self.at, self.version) if entry else None

    @property
    def _front_end(self) -> tuple[Flag, ...]:
        return tuple(entry for entry in self.table.flags if entry.is_front_end)

    def _unknown_to_vllm(self, name: str, entry: Variable | None) -> str | None:
        if not name.startswith("VLLM_"):
            return None
        if self.surface.variables is None:
            return self._why_not(name, entry)
        if name in self.surface.variables:
            return None
        return self._why_not(name, entry) or f"the installed {self._name} does not read {name}"

    def _without_effect(self, entry: Variable, flashinfer: str | None) -> str | None:
        if entry.works_since and self.at < numbers(entry.works_since):
            return f"{entry.name} has an effect from vLLM {entry.works_since} on, and {self.version} is installed"
        if entry.flashinfer and flashinfer and numbers(flashinfer) < numbers(entry.flashinfer):
            return f"{entry.name} needs FlashInfer {entry.flashinfer}, and {flashinfer} is installed"
        return None
