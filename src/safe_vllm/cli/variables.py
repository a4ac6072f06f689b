"""Variables that look like ours and are not: a misspelt one would be passed over without a word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import click

from safe_vllm.errors import nearest

PREFIX = "SAFE_VLLM"
STEM = f"{PREFIX}_"
NO_OPTIONS = (f"{STEM}OFF", f"{STEM}NO_CACHE")
"""Variables of ours without an option."""
LINK = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)", re.ASCII)
"""How the variables are called that Kubernetes makes of a service: of one called ``safe-vllm``, ``SAFE_VLLM_PORT``.

https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""
ALIKE = 0.72
"""From here on a name is taken for a misspelt one of ours; what is less alike may well be somebody else's."""


def variable_of(option: click.Option, prefix: str) -> str:
    """Return the variable of an option of the command whose variables begin so."""
    if option.envvar:
        return option.envvar if isinstance(option.envvar, str) else next(iter(option.envvar))
    return f"{prefix}_{option.name}".upper()


def names(command: click.Command, prefix: str = PREFIX) -> Iterator[str]:
    """Yield the variables of all options of a command and of those below it."""
    for option in command.params:
        if isinstance(option, click.Option) and option.allow_from_autoenv:
            yield variable_of(option, prefix)
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield from names(inner, f"{prefix}_{name}".upper())


def misspelt(environment: Mapping[str, str], command: click.Command) -> dict[str, str]:
    """Return the variables that are probably meant for us and are none of ours, each with the one that was meant."""
    ours = [name.removeprefix(STEM) for name in (*names(command), *NO_OPTIONS)]
    strange = (
        name
        for name in sorted(environment)
        if name.startswith(STEM) and re.fullmatch(r"\w+", name, re.ASCII) and not LINK.fullmatch(name)
    )
    ends = {name: name.removeprefix(STEM) for name in strange}
    return {name: STEM + near for name, end in ends.items() if end not in ours and (near := nearest(end, ours, ALIKE))}


def told(strangers: Mapping[str, str], *, as_json: bool) -> Iterator[str]:
    """Yield one line for each. What the variables say is not shown: it may be a secret."""
    for name, meant in strangers.items():
        if as_json:
            yield json.dumps({"event": "variable-not-known", "v": 1, "variable": name, "meant": meant})
        else:
            yield f"{name} is set and not known, so it has no effect; did you mean {meant}?"
