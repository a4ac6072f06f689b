"""Combinations of hardware, versions and settings that are known to fail, and where to start instead."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from safe_vllm.errors import Trouble
from safe_vllm.plan.ladder import RUNG_NAMES
from safe_vllm.plan.profile import RungName
from safe_vllm.plan.profile_choice import has_word
from safe_vllm.versions import is_within


def _a(noun: str) -> str:
    """Return a noun with its article; MoE is spelled out where it is spoken."""
    return f"{'an' if noun[:1] in 'aeiouM' else 'a'} {noun}"


_TITLES = {"flashinfer": "FlashInfer", "vllm": "vLLM"}
_NUMBER = re.compile(r"github\.com/[^/]+/([^/]+)/(?:issues|pull)/(\d+)")


@dataclass(frozen=True)
class Combination:
    """What is about to be run, as far as it is known. ``None``: not known."""

    architecture: str
    gpu: str | None = None
    compute_capability: str | None = None
    vllm: str | None = None
    flashinfer: str | None = None
    moe_backend: str | None = None
    """In effect: what was asked for, or what vLLM will choose."""
    weight_format: str | None = None
    autotunes: bool | None = None
    data_parallel: bool = False
    expert_parallel: bool = False
    speculates: bool = False


class KnownBad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the table. Every stated condition must hold."""

    name: str
    fault: str
    start_at: RungName
    link: str
    architectures: tuple[str, ...] = ()
    compute_capabilities: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    vllm: str | None = None
    """A version range, as in PEP 440."""
    flashinfer: str | None = None
    moe_backends: tuple[str, ...] = ()
    weight_formats: tuple[str, ...] = ()
    autotunes: bool = False
    data_parallel: bool = False
    expert_parallel: bool = False
    speculates: bool = False
    moe_backend: str | None = None
    """For the rung ``triton``: what the report used."""
    verified_by: str | None = None
    fixed_in: dict[str, str] = {}

    def matches(self, what: Combination) -> bool:
        """Whether this is known to happen to ``what``."""
        switches = ("autotunes", "data_parallel", "expert_parallel", "speculates")
        return (
            _is_one_of(what.architecture, self.architectures)
            and _is_one_of(what.compute_capability, self.compute_capabilities)
            and _is_one_of(what.moe_backend, self.moe_backends)
            and _is_one_of(what.weight_format, self.weight_formats)
            and (not self.gpus or any(has_word(what.gpu or "", gpu) for gpu in self.gpus))
            and all(getattr(what, name) is True for name in switches if getattr(self, name))
            and _is_in(what.flashinfer, self.flashinfer)
            and _is_in(what.vllm, self.vllm)
        )


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    known_bad: tuple[KnownBad, ...]


def parse(content: object) -> tuple[KnownBad, ...]:
    """Return the entries of the table; raises Trouble where it is not sound."""
    try:
        return msgspec.convert(content, _Table).known_bad
    except msgspec.ValidationError as error:
        raise Trouble(f"known_bad.yaml: {error}") from None


def worst(table: Iterable[KnownBad], what: Combination) -> KnownBad | None:
    """Return the entry that ``what`` matches, of several the one that starts furthest down; ``None``: none."""
    found = [entry for entry in table if entry.matches(what)]
    return max(found, key=lambda entry: RUNG_NAMES.index(entry.start_at), default=None)


def sentence(entry: KnownBad, what: Combination, start_at: str) -> str:
    """Return why the launch starts at ``start_at``, in one sentence."""
    settings = " ".join(part for part in (what.moe_backend, what.weight_format) if part)
    versions = f" with FlashInfer {what.flashinfer}" if entry.flashinfer else f" with vLLM {what.vllm}"
    where = f" on {what.gpu or what.compute_capability} ({what.architecture})"
    is_verified = entry.verified_by is not None and start_at == entry.start_at
    verified = f"; {start_at} is the setting that {short(entry.verified_by or '')} verified" if is_verified else ""
    fixed = fixes(entry)
    known = f"{settings}{where}{versions} is known for {_a(entry.fault)} ({short(entry.link)})"
    text = f"starts at {start_at}, not at the top: {known}{verified}"
    return f"{text}; fixed in {fixed}" if fixed else text


def fixes(entry: KnownBad) -> str:
    """Return the releases in which it is fixed, in words; empty: none is named."""
    return " and ".join(f"{_TITLES[name]} {version}" for name, version in entry.fixed_in.items())


def short(link: str) -> str:
    """Return ``vllm#46861`` for the link of an issue or pull request, any other link as it is."""
    found = _NUMBER.search(link)
    return f"{found[1]}#{found[2]}" if found else link


def _is_one_of(value: str | None, wanted: tuple[str, ...]) -> bool:
    return not wanted or value in wanted


def _is_in(version: str | None, wanted: str | None) -> bool:
    return wanted is None or is_within(version, wanted) is True
