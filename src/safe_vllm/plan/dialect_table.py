"""The table of dialects as values: which release of vLLM has what."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from safe_vllm.errors import Trouble
from safe_vllm.machine.facts import WeightFormat

Release = tuple[int, ...]
Numbers = Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+(\.\d+)*$")]
"""A version made of numbers alone."""


def numbers(version: str) -> Release:
    """Return the numbers at the start of a version, without what follows them, as in ``0.6.11.post2``."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def release(version: str | None) -> Release | None:
    """Return the release that a version is or leads to; ``None`` where it does not tell.

    ``0.1.dev5`` is what a checkout without tags calls itself, whatever it holds.
    """
    found = numbers(version or "")
    return (*found, 0)[:3] if len(found) > 1 and not (version or "").startswith("0.1.dev") else None


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fact that holds for a range of releases."""

    link: str
    since: Numbers | None = None
    until: Numbers | None = None
    """The last release; ``0.23`` stands for all of 0.23.x."""

    def covers(self, at: Release) -> bool:
        """Whether the fact holds for this release."""
        last = numbers(self.until) if self.until else at
        return (self.since is None or at >= numbers(self.since)) and at[: len(last)] <= last

    def why_not(self, name: str, at: Release, version: str | None) -> str | None:
        """Return why a release outside the range lacks ``name``; ``None`` for one inside."""
        if self.covers(at):
            return None
        if self.since and at < numbers(self.since):
            return f"{name} came with vLLM {self.since}, and {version} is installed"
        return f"vLLM {self.until} was the last to have {name}, and {version} is installed"


class Flag(Entry, frozen=True):
    """A flag, or with a dot a key of one."""

    name: str
    is_front_end: bool = False


class Choice(Entry, frozen=True):
    """One value of ``--moe-backend``."""

    name: str


class Levels(Entry, frozen=True):
    """The optimisation levels at which autotune is off."""

    off_at: tuple[str, ...]


class Variable(Entry, frozen=True):
    """An environment variable."""

    name: str
    by: Literal["vllm", "flashinfer", "nobody"] = "vllm"
    works_since: Numbers | None = None
    flashinfer: Numbers | None = None
    default: str | None = None
    pin: str | None = None
    """The setting that it belongs to, as ``--pin`` names it."""


class Cache(Entry, frozen=True):
    """Something that is kept from one start to the next."""

    name: str
    what: str
    variable: str
    """The one that moves it."""
    otherwise: tuple[str, ...]
    """Where it is as long as that is not set: the first of them that needs no variable which is not set."""
    inside: str = ""
    """Where it is in the directory that the variable names."""
    stays: bool = False
    """It takes long to make again."""


class Note(Entry, frozen=True):
    """What the operator should know about a release."""

    note: str
    unless: str | None = None
    """A flag which, found in the source, shows that it is not so."""


class Backend(Entry, frozen=True):
    """A MoE backend for a weight format, on GPUs of a range of compute capabilities."""

    weights: WeightFormat | Literal["unknown"]
    backend: str
    at_least: Numbers | None = None
    below: Numbers | None = None

    def suits(self, weights: str | None, capability: str | None) -> bool:
        """Whether it is for these weights and this GPU; an unknown GPU is given the benefit of the doubt."""
        if self.weights != (weights or "unknown"):
            return False
        at = numbers(capability or "")
        return not at or (
            (self.at_least is None or at >= numbers(self.at_least)) and (self.below is None or at < numbers(self.below))
        )


class AutoBackend(Backend, frozen=True):
    """What ``auto`` resolves to."""

    data_parallel: bool | None = None
    expert_parallel: bool | None = None
    in_blocks: bool | None = None
    lora: bool | None = None
    expert_balancing: bool | None = None
    unless_set: tuple[str, ...] = ()


class RayCopies(Entry, frozen=True):
    """What the process that starts a worker through Ray looks up in its own environment and hands over."""

    prefixes: tuple[str, ...]
    names: tuple[str, ...] = ()
    asked_by: str | None = None
    """The variable that lists more names, with commas between them."""
    prefixes_asked_by: str | None = None


class RayWhole(Entry, frozen=True):
    """Releases whose executor for Ray hands over the whole environment, and lets what a node has set stand."""

    switch: str | None = None
    """The variable that chooses that executor; ``None``: there is no other."""
    default: str = "1"
    missed: tuple[str, ...] = ()
    """What a worker sets by importing vLLM, before it is given anything."""


class Ray(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How variables get to workers that Ray starts."""

    copies: tuple[RayCopies, ...]
    whole: tuple[RayWhole, ...]
    own: tuple[str, ...]
    """What each worker has of its own."""
    by_size: Entry
    """Releases that take Ray by themselves where an engine needs more GPUs than there are."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known."""

    oldest: Numbers
    newest: Numbers
    degraded: tuple[Note, ...]
    flags: tuple[Flag, ...]
    moe_backends: tuple[Choice, ...]
    autotune: tuple[Levels, ...]
    variables: tuple[Variable, ...]
    caches: tuple[Cache, ...]
    safe_backends: tuple[Backend, ...]
    auto_backends: tuple[AutoBackend, ...]
    ray: Ray

    def flag(self, name: str) -> Flag | None:
        """Return what is known about a flag."""
        return next((entry for entry in self.flags if entry.name == name), None)

    def variable(self, name: str) -> Variable | None:
        """Return what is known about an environment variable."""
        return next((entry for entry in self.variables if entry.name == name), None)


def parse(content: object) -> Table:
    """Return the table that ``content``, as read from ``dialects.yaml``, describes; raises ``Trouble``."""
    try:
        table = msgspec.convert(content, Table)
    except msgspec.ValidationError as error:
        raise Trouble(f"dialects.yaml: {error}") from None
    for part in (table.flags, table.moe_backends, table.variables):
        names = [entry.name for entry in part]
        for name in names:
            if names.count(name) > 1:
                raise Trouble(f"dialects.yaml: {name} is there twice")
    return table
