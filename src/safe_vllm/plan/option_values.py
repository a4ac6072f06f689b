"""The variables of our options: how they are called, and the values with which safe-vllm does not start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from safe_vllm.errors import Trouble, nearest
from safe_vllm.plan.intent import PINS, PREFIX, SWITCHED_ON
from safe_vllm.plan.ladder import RUNG_NAMES
from safe_vllm.plan.status_address import address

NO_OPTIONS = (f"{PREFIX}OFF", f"{PREFIX}NO_CACHE")
"""Variables of ours without an option."""
LINK = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)", re.ASCII)
"""How the variables are called that Kubernetes makes of a service: of one called ``safe-vllm``, ``SAFE_VLLM_PORT``.

https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""
ALIKE = 0.72
"""From here on a name is taken for a misspelt one of ours; what is less alike may well be somebody else's."""
TRUTHS = (*SWITCHED_ON, "0", "false", "f", "no", "n", "off")

Reader = Callable[[str], str | None]
"""Returns what a value should have been; ``None``: it is good."""


def seconds(text: str | None) -> float | None:
    """Return a number of seconds as our options read it; ``None``: there is none, or it is refused."""
    return number(text, float, 0) if text else None


def number(text: str, kind: type[int] | type[float], least: float) -> float | None:
    """Return a number that is not smaller than the least; ``None``: it is none."""
    try:
        found = kind(text)
    except (ValueError, OverflowError):
        return None
    return found if found >= least else None


def _number(what: str, kind: type[int] | type[float], least: float) -> Reader:
    return lambda text: None if number(text, kind, least) is not None else f"{what}, {least:g} or more"


def _names(known: Iterable[str], *, is_list: bool = False) -> Reader:
    held = tuple(known)

    def read(text: str) -> str | None:
        names = re.split(r"[,\s]+", text) if is_list else [text.strip()]
        return None if all(name in held for name in names if name) else f"one of {', '.join(held)}"

    return read


def _address(text: str) -> str | None:
    try:
        address(text)
    except Trouble:
        return "HOST:PORT with an IP address, as in 0.0.0.0:9464 or [::]:9464"
    return None


def _truth(text: str) -> str | None:
    return None if text.strip().lower() in TRUTHS else "1 or 0"


SECONDS = _number("a number of seconds without a unit", float, 0)
READERS: Mapping[str, Reader] = {
    f"{PREFIX}STATUS_ADDRESS": _address,
    f"{PREFIX}STOP_TIMEOUT": SECONDS,
    f"{PREFIX}START_TIMEOUT": SECONDS,
    f"{PREFIX}FAULT_GRACE": SECONDS,
    f"{PREFIX}BACKOFF": SECONDS,
    f"{PREFIX}PROVING_WINDOW": SECONDS,
    f"{PREFIX}REMEMBER_FOR": _number("a number of days", float, 0),
    f"{PREFIX}MAX_ATTEMPTS": _number("a whole number", int, 1),
    f"{PREFIX}OUTPUT": _names(("text", "json")),
    f"{PREFIX}START_AT": _names(RUNG_NAMES),
    f"{PREFIX}PIN": _names(PINS, is_list=True),
    f"{PREFIX}OBSERVE_ONLY": _truth,
    f"{PREFIX}NO_CANARY": _truth,
}
"""Those that not every value is good for."""
TEXTS = ("PROFILE", "PROFILE_DIR", "MACHINE", "STATE_DIR", "EVENTS", "VLLM")
OF_SUBCOMMANDS = ("DIAGNOSE_EXIT_STATUS",)
NAMES = (*READERS, *(PREFIX + name for name in (*TEXTS, *OF_SUBCOMMANDS)), *NO_OPTIONS)
"""All variables that mean anything to us."""


def refused(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which safe-vllm does not start, each with what is expected of it."""
    given = {name: value for name, value in values.items() if value and name in READERS}
    return {name: expected for name, value in given.items() if (expected := READERS[name](value))}


def misspelt(names: Iterable[str], known: Iterable[str] = NAMES) -> dict[str, str]:
    """Return the variables that are probably meant for us and are none of ours, each with the one that was meant."""
    ours = [name.removeprefix(PREFIX) for name in known]
    strange = (
        name
        for name in sorted(names)
        if name.startswith(PREFIX) and re.fullmatch(r"\w+", name, re.ASCII) and not LINK.fullmatch(name)
    )
    ends = {name: name.removeprefix(PREFIX) for name in strange}
    return {
        name: PREFIX + near for name, end in ends.items() if end not in ours and (near := nearest(end, ours, ALIKE))
    }
