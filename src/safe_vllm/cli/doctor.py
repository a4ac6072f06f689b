"""The command line of ``safe-vllm doctor``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from safe_vllm.cli.plain import Verbatim, command_words, wants_only_words
from safe_vllm.early import let_signals_come
from safe_vllm.errors import Status, Trouble
from safe_vllm.plan.intent import Intent

FOUND_SOMETHING = 1
UNIT = "--unit"
"""Ours where it is the first word; vLLM has no such flag."""


@click.command("doctor", cls=Verbatim, short_help="Check this machine and what is installed; start nothing.")
@click.pass_context
def doctor(ctx: click.Context) -> int:
    """Check this machine for `vllm serve ARGS…`. Ends with 1 when something needs attention.

    `doctor --unit FILE` checks a systemd unit instead, with the drop-ins in FILE.d; repeat it for others. With
    `--unit -` it reads what `systemctl cat NAME` prints.
    """
    units, words = _units(ctx.args)
    if units and not words:
        return _check_units(ctx, units)
    if units:
        hint = "what a unit runs stands in it"
        raise Trouble(f"--unit takes no words for vLLM beside it: {words[0]}", hint=hint, status=Status.USAGE)
    if wants_only_words(ctx.args):
        click.echo(ctx.get_help())
        return 0
    from safe_vllm import doctor as story

    let_signals_come()
    options = ctx.obj
    intent = Intent(
        words=tuple(ctx.args),
        vllm=command_words(options["vllm"]),
        profile=options["profile"],
        profile_dir=options["profile_dir"],
        machine=options["machine"],
    )
    case = story.examined(intent)
    findings = story.checked(case)
    click.echo(story.told(findings, case.machine, options["output"]))
    return FOUND_SOMETHING if any(finding.counts for finding in findings) else 0


def _units(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files that ``--unit`` names at the beginning, and the words after them."""
    names, rest = [], list(words)
    while rest and rest[0].partition("=")[0] == UNIT:
        _, equals, name = rest.pop(0).partition("=")
        if not equals and rest:
            name = rest.pop(0)
        if not name:
            raise Trouble("--unit names no file", hint="give a unit file, or - for standard input", status=Status.USAGE)
        names.append(name)
    return names, rest


def _check_units(ctx: click.Context, names: Sequence[str]) -> int:
    from safe_vllm import doctor as story

    let_signals_come()
    findings = story.of_units(names)
    click.echo(story.told_of_units(findings, ctx.obj["output"]))
    return FOUND_SOMETHING if any(finding.counts for finding in findings) else 0
