"""The command line of ``safe-vllm status``."""

from __future__ import annotations

import click

from safe_vllm.early import let_signals_come


@click.command("status", short_help="What runs, what was remembered, and the reports.")
@click.argument("incident", required=False, metavar="[INCIDENT]")
@click.pass_context
def status(ctx: click.Context, incident: str | None) -> int:
    """Tell what runs, at which rung and since when, what was remembered, and which reports there are.

    With an INCIDENT, the beginning of its name, or its path: show that report.
    """
    from safe_vllm.commands import status as reporting

    let_signals_come()
    where, output = ctx.obj["state_dir"], ctx.obj["output"]
    if incident is not None:
        click.echo(reporting.report(where, incident, output))
    else:
        click.echo(reporting.told(reporting.places(where), output))
    return 0
