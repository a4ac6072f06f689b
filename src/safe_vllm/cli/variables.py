"""Variables that look like ours and are not: a misspelt one would be passed over without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import click

from safe_vllm.plan.intent import PREFIX

COMMAND = PREFIX.rstrip("_")
"""Whose options these are, as click wants it: it adds what stands between."""


def variable_of(option: click.Option, prefix: str) -> str:
    """Return the variable of an option of the command whose variables begin so."""
    if option.envvar:
        return option.envvar if isinstance(option.envvar, str) else next(iter(option.envvar))
    return f"{prefix}_{option.name}".upper()


def names(command: click.Command, prefix: str = COMMAND) -> Iterator[str]:
    """Yield the variables of all options of a command and of those below it."""
    for option in command.params:
        if isinstance(option, click.Option) and option.allow_from_autoenv:
            yield variable_of(option, prefix)
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield from names(inner, f"{prefix}_{name}".upper())


def misspelt(environment: Mapping[str, str], command: click.Command) -> dict[str, str]:
    """Return the variables that are probably meant for us and are none of ours, each with the one that was meant."""
    if not any(name.startswith(PREFIX) for name in environment):
        return {}
    from safe_vllm.plan import option_values

    return option_values.misspelt(environment, (*names(command), *option_values.NO_OPTIONS))


def told(strangers: Mapping[str, str], *, as_json: bool) -> Iterator[str]:
    """Yield one line for each. What the variables say is not shown: it may be a secret."""
    for name, meant in strangers.items():
        if as_json:
            yield json.dumps({"event": "variable-not-known", "v": 1, "variable": name, "meant": meant})
        else:
            yield f"{name} is set and not known, so it has no effect; did you mean {meant}?"
