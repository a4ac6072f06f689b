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
        names = (name.strip() for part in given for name in part.split(","))
        return tuple(_checked(ctx, param, name, known) for name in names if name)

    return check


def name_of(known: Sequence[str]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return a callback for an option that takes one name; click's own type does not say which one was meant."""

    def check(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
        return None if given is None else _checked(ctx, param, given, known)

    return check


def _checked(ctx: click.Context, param: click.Parameter, name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise click.BadParameter(f"there is no {name!r}{did_you_mean(name, known)}", ctx, param)
    return name


class Number(click.ParamType):  # type: ignore[type-arg]
    """A number of something; click's own types name neither the thing nor, in words, the least of it."""

    name = "number"

    def __init__(self, things: str, least: float, kind: type[int] | type[float] = float) -> None:
        """Keep what is counted, and the smallest number of it."""
        self.expected = things if least == -math.inf else f"{things}, {least} or more"
        self.least = least
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or say what was expected."""
        try:
            number = self.kind(value)
        except ValueError:
            number = math.nan
        if not number >= self.least:  # nan is not
            self.fail(f"expected {self.expected}, got {str(value)!r}", param, ctx)
        return number


def seconds(name: str, default: float | None, help_: str) -> Decorator:
    """Return an option that takes a number of seconds."""
    return option(
        name,
        type=Number("a number of seconds", 0),
        default=default,
        show_default=default is not None,
        metavar="SECONDS",
        help=help_,
    )
