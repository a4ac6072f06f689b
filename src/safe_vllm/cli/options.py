"""How our own options are declared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import click

from safe_vllm.errors import did_you_mean

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(*names: str, **settings: Any) -> Decorator:
    """Return an option that shows its environment variable in the help."""
    return click.option(*names, show_envvar=True, **settings)


def names_of(known: Sequence[str]) -> Callable[[click.Context, click.Parameter, Sequence[str]], tuple[str, ...]]:
    """Return a callback for an option that takes names, one by one or as a list with commas."""

    def check(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
        names = tuple(name.strip() for part in given for name in part.split(",") if name.strip())
        for name in names:
            if name not in known:
                raise click.BadParameter(f"there is no {name!r}{did_you_mean(name, known)}", ctx, param)
        return names

    return check


def _as_seconds(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of seconds", ctx, param)
    return value


def seconds(name: str, default: float | None, help_: str) -> Decorator:
    """Return an option that takes a number of seconds."""
    return option(
        name,
        type=click.FloatRange(min=0),
        callback=_as_seconds,
        default=default,
        show_default=default is not None,
        metavar="SECONDS",
        help=help_,
    )
