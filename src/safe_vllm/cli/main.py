"""All commands, and the one funnel in which every exception ends."""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

import click

from safe_vllm.cli.doctor import doctor
from safe_vllm.cli.forget import forget
from safe_vllm.cli.intent import intent_of
from safe_vllm.cli.mistakes import is_help, told
from safe_vllm.cli.options import Number, name_of, names_of, option, seconds
from safe_vllm.cli.plain import Launcher, Verbatim, become, complain, wants_only_words
from safe_vllm.cli.profiles import profiles
from safe_vllm.cli.status import status
from safe_vllm.cli.switch import is_off
from safe_vllm.cli.switch import told as switch_told
from safe_vllm.cli.variables import COMMAND, misspelt
from safe_vllm.cli.variables import told as strangers_told
from safe_vllm.early import let_signals_come
from safe_vllm.errors import Status, Trouble, reason_of
from safe_vllm.plan.intent import PINS, Limits
from safe_vllm.plan.ladder import RUNG_NAMES

UNWRITTEN = 1
"""As other commands end that cannot write their output."""
INTERRUPTED = 130
"""As a shell tells of a command that Ctrl-C ended; ``serve`` has a status of its own for that."""
USAGES = {"plan": "MODEL …", "doctor": "[MODEL …] | --unit FILE | --manifest FILE"}
"""What stands behind commands that take every word as it is; click only knows that of others."""
OURS = Limits()
"""What holds where neither the operator nor the profile says otherwise."""


@click.command(
    cls=Launcher,
    context_settings={"auto_envvar_prefix": COMMAND},
    epilog="SAFE_VLLM_OFF=1 runs plain vLLM. Any other subcommand is passed to vLLM as it is.",
)
@option("--profile", metavar="NAME|FILE", help="Hardware profile; chosen from the machine when not given.")
@option("--profile-dir", metavar="DIR", help="A directory with profiles of your own.")
@option("--machine", metavar="FILE.json", help="Plan for a recorded machine instead of this one.")
@option(
    "--pin",
    multiple=True,
    callback=names_of(PINS),
    metavar="SETTING",
    help=f"Let no rung change it; repeatable: {', '.join(PINS)}.",
)
@option("--start-at", callback=name_of(RUNG_NAMES), metavar="RUNG", help=f"Start here: {', '.join(RUNG_NAMES)}.")
@option("--observe-only", is_flag=True, help="Judge and report; change nothing, end nothing.")
@option("--no-canary", is_flag=True, help="Trust /health; send no real request.")
@option("--state-dir", metavar="DIR", help="Where it is kept what broke and what held, with reports.")
@option(
    "--remember-for",
    type=Number("a number of days", 0),
    default=14.0,
    show_default=True,
    metavar="DAYS",
    help="Believe what broke and what held so long; 0: not at all.",
)
@option("--events", metavar="FILE", help="Append one JSON object per event.")
@option("--status-address", metavar="HOST:PORT", help="Tell over HTTP how the launch stands.")
@option("--vllm", envvar="SAFE_VLLM_VLLM", default="vllm", metavar="COMMAND", help="Instead of `vllm`.")
@option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Our own lines.")
@option(
    "--max-attempts",
    type=Number("a whole number", 1, int),
    default=OURS.max_attempts,
    show_default=True,
    metavar="COUNT",
    help="Give up after so many starts that failed, or deaths in service, since a server last proved itself; at the "
    "last rung of one that once served, after four hours.",
)
@seconds("--stop-timeout", OURS.stop_timeout_s, "From the request to stop until SIGKILL.")
@seconds("--fault-grace", OURS.fault_grace_s, "From a fault line in the output to our own action.")
@seconds(
    "--backoff", OURS.backoff_s, "Before the second attempt; doubles up to 60, and up to a quarter more by chance."
)
@seconds("--proving-window", OURS.proving_window_s, "A server that served so long had proven its rung.")
@seconds("--start-timeout", OURS.start_timeout_s, "From start until ready; no limit when not given.")
@click.version_option(package_name="safe-vllm", prog_name="safe-vllm", allow_from_autoenv=False)
@click.help_option("-h", "--help", allow_from_autoenv=False)
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> None:
    """Run `vllm serve` so that it comes back by itself after a GPU kernel fault, one step safer.

    Our options stand before the subcommand; every word after it is vLLM's.
    """
    ctx.obj = options
    if ctx.invoked_subcommand in cli.commands and ctx.invoked_subcommand != "serve":
        _tell_of_variables(as_json=False)


@cli.command("serve", cls=Verbatim, short_help="Supervise `vllm serve`.")
@click.pass_context
def serve(ctx: click.Context) -> int:
    """Run `vllm serve ARGS…` under supervision."""
    if is_off() or wants_only_words(ctx.args):
        become(ctx.obj["vllm"], ["serve", *ctx.args])
    if ctx.obj["machine"]:
        raise Trouble("--machine is for plan and doctor: serve runs on this machine", status=Status.USAGE)
    _tell_of_variables(as_json=ctx.obj["output"] == "json")
    from safe_vllm import launcher

    return launcher.serve(intent_of(ctx))


@cli.command("plan", cls=Verbatim, short_help="Print the ladder for `vllm serve`; start nothing.")
@click.pass_context
def plan(ctx: click.Context) -> int:
    """Print what `safe-vllm serve ARGS…` would run: the machine, the profile, every rung as a command to copy."""
    if wants_only_words(ctx.args):
        click.echo(ctx.get_help())
        return 0
    from safe_vllm.commands import plan as planning

    let_signals_come()
    click.echo(planning.told(planning.prepared(intent_of(ctx)), ctx.obj["output"]))
    return 0


@cli.command("diagnose", short_help="Judge a log that already exists.")
@click.argument("file", required=False, type=click.Path(), metavar="[FILE]")
@option(
    "--exit-status",
    type=Number("a whole number", -math.inf, int),
    metavar="STATUS",
    help="How the last `vllm serve` ended: -11, or 139 as a shell says.",
)
@click.pass_context
def diagnose(ctx: click.Context, file: str | None, exit_status: int | None) -> int:
    """Judge an existing log: plain or gzip, from docker, kubectl or the journal. Standard input when no FILE."""
    from safe_vllm.commands import diagnose as diagnosis

    let_signals_come()
    with _progress(file) as on_progress:
        found = diagnosis.of(file, exit_status, on_progress)
    click.echo(diagnosis.told(found, ctx.obj["output"]))
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


for command in (doctor, profiles, status, forget):
    cli.add_command(command)
for name, usage in USAGES.items():
    cli.commands[name].options_metavar = usage


def _tell_of_variables(*, as_json: bool) -> None:
    """Say on stderr which variables are probably misspelt ones of ours, and of the switch what it does not know."""
    if not is_off():
        strangers = strangers_told(misspelt(os.environ, cli), as_json=as_json)
        for line in (*switch_told(os.environ, as_json=as_json), *strangers):
            complain(line)


def _tell_of_the_switch(ctx: click.Context | None) -> None:
    """Say it also where our own options are wrong: whoever meant to be rid of us is now stopped by us."""
    for line in switch_told(os.environ, as_json=False) if ctx and ctx.parent is None else ():
        complain(line)


def run(words: list[str]) -> int:
    """Return the exit status for these words. The one place where any exception ends."""
    _let_bytes_pass()
    try:
        # Switched off, we are out of the way: a bad value of another variable of ours is nobody's trouble.
        variables = {"auto_envvar_prefix": None} if is_off() else {}
        return int(cli.main(words, prog_name="safe-vllm", standalone_mode=False, **variables) or 0)
    except Trouble as trouble:
        complain(f"{trouble}")
        return int(trouble.status)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.UsageError as error:
        if is_help(error):
            click.echo(error.format_message(), err=True)
        else:
            _tell_of_the_switch(error.ctx)
            complain(told(error))
        return int(Status.USAGE)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except Exception as error:  # noqa: BLE001  the funnel: whatever arrives here is a bug of ours
        if isinstance(error, OSError) and _is_of_output(error):
            return _without_output(error)
        complain("this is a bug in safe-vllm; please report the lines below")
        traceback.print_exc()
        return int(Status.BUG)


def _let_bytes_pass() -> None:
    """Let words that are no UTF-8 be printed as the bytes that they are: few locales would."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")


def _is_of_output(error: OSError) -> bool:
    """Return whether it was click that could not write; a reader that went away it takes care of itself."""
    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    return str(last.f_globals.get("__name__", "")).startswith("click.")


def _without_output(trouble: OSError) -> int:
    """Say that the output was lost, and see to it that Python does not try once more at the end."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    complain(f"standard output cannot be written: {reason_of(trouble)}; make room, or write elsewhere")
    return UNWRITTEN
