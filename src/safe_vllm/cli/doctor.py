"""The command line of ``safe-vllm doctor``."""

from __future__ import annotations

import click

from safe_vllm.cli.plain import Verbatim, command_words, wants_only_words
from safe_vllm.early import let_signals_come
from safe_vllm.plan.intent import Intent

FOUND_SOMETHING = 1


@click.command("doctor", cls=Verbatim, short_help="Check this machine and what is installed; start nothing.")
@click.pass_context
def doctor(ctx: click.Context) -> int:
    """Check this machine for `vllm serve ARGS…`. Ends with 1 when something needs attention."""
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
