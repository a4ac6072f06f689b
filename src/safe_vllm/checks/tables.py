"""The tables that the checks use: the versions that belong together, and the knobs behind variables without effect."""

from __future__ import annotations

import re

import msgspec

from safe_vllm.errors import Trouble
from safe_vllm.plan.dialect import Dialect

PLAIN = re.compile(r"\d+(\.\d+)+")


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What releases of vLLM ask for."""

    vllm: tuple[str, ...]
    torch: str
    link: str
    flashinfer: str
    cubin: bool = False
    """Whether flashinfer-cubin of the same version is asked for too."""


class Knob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to use instead of variables that have no effect."""

    instead_of: tuple[str, ...]
    use: str
    needs: str
    """The flag or variable that the installed vLLM must have for it."""
    link: str

    def works(self, dialect: Dialect) -> bool:
        """Whether the installed vLLM has it."""
        return dialect.has(self.needs) if self.needs.startswith("-") else dialect.reads(self.needs) is True


class _Pins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pins: tuple[Pin, ...]


class _Knobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    knobs: tuple[Knob, ...]


def parse_pins(content: object) -> tuple[Pin, ...]:
    """Return the pins in ``content``, as read from ``pins.yaml``; raises ``Trouble``."""
    try:
        found = msgspec.convert(content, _Pins).pins
    except msgspec.ValidationError as error:
        raise Trouble(f"pins.yaml: {error}") from None
    releases = [release for pin in found for release in pin.vllm]
    for release in releases:
        if not PLAIN.fullmatch(release):
            raise Trouble(f"pins.yaml: {release!r} is no release of vLLM")
        if releases.count(release) > 1:
            raise Trouble(f"pins.yaml: {release} is there twice")
    return found


def parse_knobs(content: object) -> tuple[Knob, ...]:
    """Return the knobs in ``content``, as read from ``knobs.yaml``; raises ``Trouble``."""
    try:
        return msgspec.convert(content, _Knobs).knobs
    except msgspec.ValidationError as error:
        raise Trouble(f"knobs.yaml: {error}") from None
