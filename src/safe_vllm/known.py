"""The tables that ship with us, each read once, when it is first needed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.plan import dialect
from safe_vllm.plan.dialect import Dialects
from safe_vllm.plan.known_bad import KnownBad
from safe_vllm.plan.known_bad import parse as known_bad_table

if TYPE_CHECKING:  # a plan is made, and vLLM started, before anything of the verdict or the checks is wanted
    from safe_vllm.checks.tables import Knob, Pin
    from safe_vllm.verdict.advice import Table
    from safe_vllm.verdict.signatures import Signatures


@cache
def signatures() -> Signatures:
    """Return every line of vLLM's that we know."""
    from safe_vllm.verdict.signatures import parse

    return parse(read_data("signatures.yaml"))


@cache
def advice() -> Table:
    """Return what helped against what."""
    from safe_vllm.verdict import advice_table

    return advice_table.parse(read_data("advice.yaml"))


@cache
def dialects() -> Dialects:
    """Return how each release of vLLM spells what a plan may set."""
    return dialect.parse(read_data("dialects.yaml"))


@cache
def known_bad() -> tuple[KnownBad, ...]:
    """Return the combinations that are known to fail."""
    return known_bad_table(read_data("known_bad.yaml"))


@cache
def pins() -> tuple[Pin, ...]:
    """Return the versions that releases of vLLM were tested with."""
    from safe_vllm.checks.tables import parse_pins

    return parse_pins(read_data("pins.yaml"))


@cache
def knobs() -> tuple[Knob, ...]:
    """Return what to use instead of variables that have no effect."""
    from safe_vllm.checks.tables import parse_knobs

    return parse_knobs(read_data("knobs.yaml"))
