"""What people who met the same fault changed: choosing, from a table, what fits a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from safe_vllm.verdict import xids
from safe_vllm.verdict.evidence import Advised, Verdict
from safe_vllm.versions import is_within

MOST_SHOWN = 4
PACKAGES = {"vllm": "vLLM", "flashinfer": "FlashInfer"}
_WEIGHTS = {True: -1, None: 1, False: 0}
"""What sorts by how specific advice is: a condition that is met speaks for it, one that nothing tells of against it."""
_BOUNDS = {
    ">=": "{} or later",
    ">": "later than {}",
    "~=": "like {}",
    "==": "{}",
    "!=": "other than {}",
    "<=": "up to {}",
    "<": "before {}",
}


@dataclass(frozen=True)
class Advice(Advised):
    """One thing to try, and when. An empty condition is always met."""

    faults: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    """Parts of the name of the backend in use, however that is spelled."""
    vllm: str | None = None
    """Versions, as a PEP 440 specifier set."""
    flashinfer: str | None = None
    gpus: tuple[str, ...] = ()
    """Words of the GPU's name."""
    architectures: tuple[str, ...] = ()
    compute_capabilities: tuple[str, ...] = ()
    xids: tuple[int, ...] = ()
    """Of the line that is the cause."""
    signatures: tuple[str, ...] = ()
    """Names of what the line that is the cause may show."""
    fixed_in: tuple[tuple[str, str], ...] = ()
    """Packages, with the versions that make the advice needless."""


Table = tuple[Advice, ...]


@dataclass(frozen=True)
class _Condition:
    is_met: bool | None
    """``None``: nothing told."""
    words: str = ""


def advised(verdict: Verdict, table: Table) -> Verdict:
    """Return ``verdict`` with the advice that fits it, the most specific first, and where that comes from."""
    chosen = [(entry, conditions) for entry in table if _fits(conditions := tuple(_conditions(entry, verdict)))]
    chosen.sort(key=lambda choice: sum(_WEIGHTS[condition.is_met] for condition in choice[1]))
    return replace(verdict, advised=tuple(replace(each[0], text=_sentence(*each)) for each in chosen[:MOST_SHOWN]))


def _fits(conditions: tuple[_Condition, ...]) -> bool:
    return all(condition.is_met is not False for condition in conditions)


def _conditions(entry: Advice, verdict: Verdict) -> Iterator[_Condition]:
    """Yield what ``entry`` demands. What nothing tells is left to the reader, in words."""
    setup = verdict.setup
    line = next(iter(verdict.evidence), None)
    if entry.xids:
        yield _Condition(xids.number(line) in entry.xids)
    if entry.signatures:
        yield _Condition(line.signature in entry.signatures if line else None)
    for wanted, found in (
        (entry.faults, verdict.fault),
        (entry.suspects, verdict.suspect),
        (entry.phases, verdict.phase),
    ):
        if wanted:
            yield _Condition(found in wanted)
    name, words = _plain(verdict.backend), _plain(setup.gpu)
    for wanted, found_in, where in (
        (entry.backends, name and [part for part in entry.backends if str(_plain(part)) in name], "where {} is in use"),
        (entry.gpus, words and [gpu for gpu in entry.gpus if str(_plain(gpu)) in words.split("_")], "on {}"),
        (entry.architectures, setup.architecture and [setup.architecture], "on {}"),
        (
            entry.compute_capabilities,
            setup.compute_capability and [setup.compute_capability],
            "on GPUs of compute capability {}",
        ),
    ):
        if wanted:
            is_met = None if found_in is None else bool(set(found_in) & set(wanted))
            yield _Condition(is_met, where.format(" or ".join(wanted)))
    yield from _versions(entry, verdict)


def _versions(entry: Advice, verdict: Verdict) -> Iterator[_Condition]:
    installed = {"vllm": verdict.setup.vllm, "flashinfer": verdict.setup.flashinfer}
    for package, wanted in (("vllm", entry.vllm), ("flashinfer", entry.flashinfer)):
        if wanted:
            yield _Condition(is_within(installed[package], wanted), f"with {PACKAGES[package]} {_spoken(wanted)}")
    for package, version in entry.fixed_in:
        yield _Condition(is_within(installed[package], f"<{version}"))


def _plain(name: str | None) -> str | None:
    """Return a name as it is spelled least: ``FlashInfer TRTLLM`` and ``FLASHINFER_TRTLLM`` are one."""
    return re.sub(r"[\W_]+", "_", name.lower()) if name else None


def _spoken(wanted: str) -> str:
    """Return a specifier set in words, the lower bound first."""
    bounds = [re.fullmatch(r"\s*([<>=!~]+)\s*(.+?)\s*", part) for part in wanted.split(",")]
    found = sorted((list(_BOUNDS).index(bound[1]), bound[2]) for bound in bounds if bound)
    return " and ".join(list(_BOUNDS.values())[place].format(version) for place, version in found)


def _sentence(entry: Advice, conditions: tuple[_Condition, ...]) -> str:
    unknown = [condition.words for condition in conditions if condition.is_met is None and condition.words]
    condition = f"{', '.join(unknown)}: " if unknown else ""
    fixed = " and ".join(f"{PACKAGES[package]} {version}" for package, version in entry.fixed_in)
    return f"{condition}{entry.text}{f'; fixed in {fixed}' if fixed else ''}"
