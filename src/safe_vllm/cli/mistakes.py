"""What click says of a wrong command line, in one line of ours: which option or variable, what is wrong, what now."""

from __future__ import annotations

import click

from safe_vllm.cli.variables import variable_of
from safe_vllm.errors import nearest

SWITCH = "1, true, yes or on, or 0, false, no or off"
"""What the variable of a switch takes, but for the single letters."""


def is_help(error: click.UsageError) -> bool:
    """Return whether no words were given, and the help is all that there is to say; click 8.1 has no such error."""
    return isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ()))


def told(error: click.UsageError) -> str:
    """Return what is wrong with a command line and where to read on."""
    path = error.ctx.command_path if error.ctx else "safe-vllm"
    sentence = _sentence(error)
    return sentence + ("" if sentence.endswith("?") else ";") + f" see `{path} --help`"


def _sentence(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        return _no_option(error.option_name, error.ctx)
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter) and error.param:
        return f"{_named(error.param, error.ctx)}: {_of_value(error.message, error.param)}"
    text = error.format_message().rstrip(".")
    return text[:1].lower() + text[1:]


def _of_value(message: str, param: click.Parameter) -> str:
    """Return what is wrong with a value; of a switch click lists all spellings, also the empty one."""
    if isinstance(param.type, click.types.BoolParamType):
        return f"expected {SWITCH}, got {message.partition(' is not a valid boolean')[0]}"
    return message.rstrip(".")


def _named(param: click.Parameter, ctx: click.Context | None) -> str:
    """Return the option, or the variable where the value comes from there."""
    source = ctx.get_parameter_source(param.name or "") if ctx else None
    if ctx and isinstance(param, click.Option) and source is click.core.ParameterSource.ENVIRONMENT:
        return variable_of(param, ctx.auto_envvar_prefix or "")
    return param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name


def _no_option(name: str, ctx: click.Context | None) -> str:
    here = _long_options(ctx) if ctx else []
    ours = _long_options(ctx.find_root()) if ctx else []
    if name in ours and name not in here:
        return f"{name} stands before the subcommand: `safe-vllm {name} …`"
    if near := nearest(name.lstrip("-"), [each.lstrip("-") for each in here]):
        return f"there is no option {name}, did you mean --{near}?"
    is_first = ctx is not None and ctx.parent is None
    return f"there is no option {name}" + (" of ours: vLLM's stand behind `serve MODEL`" if is_first else "")


def _long_options(ctx: click.Context) -> list[str]:
    return [name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("--")]
