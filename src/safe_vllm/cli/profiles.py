"""The command line of ``safe-vllm profiles``."""

from __future__ import annotations

import click

from safe_vllm.cli.plain import command_words
from safe_vllm.early import let_signals_come


@click.group("profiles", short_help="Show hardware profiles, or check one of yours.")
def profiles() -> None:
    """Show hardware profiles, or check one of yours."""
    let_signals_come()


@profiles.command("list", short_help="All profiles, and the one for this machine.")
@click.pass_context
def list_(ctx: click.Context) -> int:
    """Show all profiles, and which one is for this machine."""
    from safe_vllm.commands import profiles as catalogue

    listing = catalogue.listing(ctx.obj["profile_dir"], command_words(ctx.obj["vllm"]))
    click.echo(catalogue.listed(listing, ctx.obj["output"]))
    return 0


@profiles.command("show", short_help="All that a profile says, with what it extends.")
@click.argument("name", metavar="NAME|FILE")
@click.pass_context
def show(ctx: click.Context, name: str) -> int:
    """Show all that a profile says, together with what it extends."""
    from safe_vllm.commands import profiles as catalogue

    click.echo(catalogue.shown(name, ctx.obj["profile_dir"], ctx.obj["output"]))
    return 0


@profiles.command("check", short_help="Whether profiles are sound.")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[NAME|FILE]...")
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...]) -> int:
    """Tell everything that is wrong with profiles; without any named, with all that are found."""
    from safe_vllm.commands import profiles as catalogue

    checked = catalogue.check(files, ctx.obj["profile_dir"])
    click.echo(catalogue.told(checked, ctx.obj["output"]))
    return int(catalogue.status_of(checked))
