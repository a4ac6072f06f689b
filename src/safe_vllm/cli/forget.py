"""The command line of ``safe-vllm forget``."""

from __future__ import annotations

import click

from safe_vllm.early import let_signals_come


@click.command("forget", short_help="Drop what was remembered.")
@click.argument("fingerprints", nargs=-1, metavar="[FINGERPRINT]...")
@click.pass_context
def forget(ctx: click.Context, fingerprints: tuple[str, ...]) -> int:
    """Drop what broke and what held: of these fingerprints, or their beginnings, or of all when none is named."""
    from safe_vllm.commands import forget as forgetting

    let_signals_come()
    done = forgetting.forget(ctx.obj["state_dir"], fingerprints)
    click.echo(forgetting.told(done, ctx.obj["output"]))
    forgetting.raise_for_failures(done)
    return 0
