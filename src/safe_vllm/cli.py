"""The command line: argv in, exit status out."""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from safe_vllm.early import let_signals_come
from safe_vllm.errors import Status, Trouble
from safe_vllm.plan.intent import Intent, Limits

INTERRUPTED = 130
"""As a shell tells of a command that Ctrl-C ended; ``serve`` has a status of its own for that."""

NOT_YET = frozenset({"doctor", "profiles", "status", "forget"})
"""Names that are ours and not vLLM's, and have no code yet."""


class Verbatim(click.Command):
    """A command that takes every word as it is: options, ``--`` and all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words for ``ctx.args`` and look at none of them."""
        ctx.args = list(args)
        return []


class Launcher(click.Group):
    """Our own subcommands; every other one is vLLM's."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return our command, or one that hands over to ``vllm``."""
        if cmd_name in NOT_YET:
            raise Trouble(f"`safe-vllm {cmd_name}` does not exist yet in this version", status=Status.USAGE)
        return super().get_command(ctx, cmd_name) or Verbatim(cmd_name, callback=_hand_over)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command by its exact name."""
        return args[0], self.get_command(ctx, args[0]), args[1:]


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _option(*names: str, **settings: Any) -> Decorator:
    """Return an option that shows its environment variable in the help."""
    return click.option(*names, show_envvar=True, **settings)


def _as_seconds(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of seconds", ctx, param)
    return value


def _seconds(name: str, default: float | None, help_: str) -> Decorator:
    return _option(
        name,
        type=click.FloatRange(min=0),
        callback=_as_seconds,
        default=default,
        show_default=default is not None,
        metavar="SECONDS",
        help=help_,
    )


@click.command(
    cls=Launcher,
    context_settings={"auto_envvar_prefix": "SAFE_VLLM"},
    epilog="SAFE_VLLM_OFF=1 runs plain vLLM. Any other subcommand is passed to vLLM as it is.",
)
@_option("--profile", metavar="NAME|FILE", help="Hardware profile; chosen from the machine when not given.")
@_option("--profile-dir", metavar="DIR", help="A directory with profiles of your own.")
@_option("--no-canary", is_flag=True, help="Trust /health; send no real request.")
@_option("--events", metavar="FILE", help="Append one JSON object per event.")
@_option("--vllm", envvar="SAFE_VLLM_VLLM", default="vllm", metavar="COMMAND", help="Instead of `vllm`.")
@_option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Our own lines.")
@_option("--max-attempts", type=click.IntRange(min=1), default=8, show_default=True, help="Then give up.")
@_seconds("--stop-timeout", 60.0, "From the request to stop until SIGKILL.")
@_seconds("--fault-grace", 20.0, "From a fault line in the output to our own action.")
@_seconds("--backoff", 2.0, "Before the second attempt; doubles up to 60.")
@_seconds("--proving-window", 600.0, "A server that served so long had proven its rung.")
@_seconds("--start-timeout", None, "From start until ready; no limit when not given.")
@click.version_option(package_name="safe-vllm", prog_name="safe-vllm", allow_from_autoenv=False)
@click.help_option("-h", "--help", allow_from_autoenv=False)
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> None:
    """Run `vllm serve` so that it comes back by itself after a GPU kernel fault, one step safer.

    Our options stand before the subcommand; every word after it is vLLM's.
    """
    ctx.obj = options


@cli.command("serve", cls=Verbatim, short_help="Supervise `vllm serve`.")
@click.pass_context
def serve(ctx: click.Context) -> int:
    """Run `vllm serve ARGS…` under supervision."""
    if _is_off() or _wants_only_words(ctx.args):
        _exec(ctx.obj["vllm"], ["serve", *ctx.args])
    from safe_vllm import launcher

    return launcher.serve(_intent(ctx))


@cli.command("plan", cls=Verbatim, short_help="Print the ladder for `vllm serve`; start nothing.")
@click.pass_context
def plan(ctx: click.Context) -> int:
    """Print what `safe-vllm serve ARGS…` would run."""
    from safe_vllm import launcher
    from safe_vllm.announce.banner import planned

    let_signals_come()
    prepared = launcher.prepare(_intent(ctx))
    click.echo("\n".join(planned(prepared.plan, prepared.machine, prepared.vllm)))
    return 0


@cli.command("diagnose", short_help="Judge a log that already exists.")
@click.argument("file", required=False, type=click.Path(), metavar="[FILE]")
@_option("--exit-status", type=int, help="How `vllm serve` ended; a signal as its negative number.")
@click.pass_context
def diagnose(ctx: click.Context, file: str | None, exit_status: int | None) -> int:
    """Judge an existing log: plain or gzip, from docker, kubectl or the journal. Standard input when no FILE."""
    from safe_vllm import diagnosis

    let_signals_come()
    with _progress(file) as on_progress:
        verdict, links = diagnosis.of(file, exit_status, on_progress)
    click.echo(diagnosis.told(verdict, links, ctx.obj["output"]))
    return 0


@contextmanager
def _progress(file: str | None) -> Iterator[Callable[[int], None]]:
    """Show how far the reading is, where there is a terminal to show it on and an end to come to."""
    from safe_vllm.machine import log_file

    total = log_file.size(file)
    if total is None or not sys.stderr.isatty():
        yield lambda count: None
        return
    with click.progressbar(length=total, label="reading", file=sys.stderr) as bar:
        yield bar.update


@click.pass_context
def _hand_over(ctx: click.Context) -> None:
    """Become `vllm OTHER…`."""
    _exec(ctx.obj["vllm"], [str(ctx.info_name), *ctx.args])


def _is_off() -> bool:
    return os.environ.get("SAFE_VLLM_OFF", "").lower() in ("1", "true", "yes", "on")


def _wants_only_words(words: list[str]) -> bool:
    """Return whether vLLM would print its help or version and end."""
    options = words[: words.index("--")] if "--" in words else words
    return any(word in ("-h", "-v", "--help", "--version") or word.startswith("--help=") for word in options)


def _intent(ctx: click.Context) -> Intent:
    options: Mapping[str, Any] = ctx.obj
    limits = Limits(
        max_attempts=options["max_attempts"],
        stop_timeout_s=options["stop_timeout"],
        fault_grace_s=options["fault_grace"],
        backoff_s=options["backoff"],
        proving_window_s=options["proving_window"],
        start_timeout_s=options["start_timeout"],
    )
    return Intent(
        words=tuple(ctx.args),
        vllm=_command_words(options["vllm"]),
        profile=options["profile"],
        profile_dir=options["profile_dir"],
        wants_canary=not options["no_canary"],
        output=options["output"],
        events=options["events"],
        limits=limits,
    )


def _command_words(text: str) -> tuple[str, ...]:
    import shlex

    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise Trouble(f"--vllm {text!r}: {error}", hint="quote it as a shell would", status=Status.USAGE) from error


def _exec(vllm: str, words: list[str]) -> NoReturn:
    """Become vLLM; nothing of us is left."""
    from safe_vllm.attempt.child import inherited_environment
    from safe_vllm.machine import executable

    environment = inherited_environment()
    command = executable.find(_command_words(vllm), environment)
    let_signals_come()
    try:
        os.execve(command[0], [*command, *words], environment)
    except OSError as error:
        status = Status.NOT_EXECUTABLE
        raise Trouble(f"{command[0]} cannot be executed: {error.strerror}", status=status) from error


def run(words: list[str]) -> int:
    """Return the exit status for these words. The one place where any exception ends."""
    try:
        # Switched off, we are out of the way: a bad value of another variable of ours is nobody's trouble.
        variables = {"auto_envvar_prefix": None} if _is_off() else {}
        return int(cli.main(words, prog_name="safe-vllm", standalone_mode=False, **variables) or 0)
    except Trouble as trouble:
        _complain(f"{trouble}")
        return int(trouble.status)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return int(Status.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.UsageError as error:
        _complain(f"{error.format_message()}; see `safe-vllm --help`")
        return int(Status.USAGE)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except Exception:  # noqa: BLE001  the funnel: whatever arrives here is a bug of ours
        _complain("this is a bug in safe-vllm; please report the lines below")
        traceback.print_exc()
        return int(Status.BUG)


def _complain(text: str) -> None:
    print(f"safe-vllm: {text}", file=sys.stderr)  # noqa: T201
