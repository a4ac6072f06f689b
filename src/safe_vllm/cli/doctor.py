"""The command line of ``safe-vllm doctor``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from safe_vllm.cli.intent import intent_of
from safe_vllm.cli.plain import Verbatim, wants_only_words
from safe_vllm.early import let_signals_come
from safe_vllm.errors import Status, Trouble

FOUND_SOMETHING = 1
OF_FILES = ("--unit", "--manifest")
"""Ours where one of them is the first word; vLLM has no such flags."""

OR_ALL = {"--unit": "", "--manifest": ", or name the directory"}
"""What else can be said instead of many files, as a shell makes of a pattern."""


@click.command("doctor", cls=Verbatim, short_help="Check this machine and what is installed; start nothing.")
@click.pass_context
def doctor(ctx: click.Context) -> int:
    """Check this machine for `vllm serve ARGS…`. Ends with 1 when something needs attention.

    `doctor --unit FILE` checks a systemd unit instead, with the drop-ins in FILE.d; repeat it for more drop-ins or
    other units. With `--unit -` it reads what `systemctl cat NAME` prints. `doctor --manifest FILE` does the same with
    Kubernetes manifests and compose files; a directory stands for the files in it. With `--manifest -` it reads what
    `helm template`, `kustomize build` or `docker compose config` prints.
    """
    for option in OF_FILES:
        names, words = _named(ctx.args, option)
        if names and words and words[0].partition("=")[0] in OF_FILES:
            hint = "check one after the other"
            raise Trouble("--unit and --manifest are not checked together", hint=hint, status=Status.USAGE)
        if names and words:
            hint = "what runs stands in the file"
            if not words[0].startswith("-"):
                hint = f"give each file its own {option}{OR_ALL[option]}; {hint}"
            raise Trouble(f"{option} takes no words for vLLM beside it: {words[0]}", hint=hint, status=Status.USAGE)
        if names:
            return _check_files(ctx, option, names)
    if wants_only_words(ctx.args):
        click.echo(ctx.get_help())
        return 0
    from safe_vllm.commands import doctor as story

    let_signals_come()
    case = story.examined(intent_of(ctx))
    findings = story.checked(case)
    click.echo(story.told(findings, case.machine, ctx.obj["output"]))
    return FOUND_SOMETHING if any(finding.counts for finding in findings) else 0


def _named(words: Sequence[str], option: str) -> tuple[list[str], list[str]]:
    """Return the files that the option names at the beginning, and the words after them."""
    names, rest = [], list(words)
    while rest and rest[0].partition("=")[0] == option:
        _, equals, name = rest.pop(0).partition("=")
        if not equals and rest:
            name = rest.pop(0)
        if not name:
            raise Trouble(f"{option} names no file", hint="give a file, or - for standard input", status=Status.USAGE)
        names.append(name)
    return names, rest


def _check_files(ctx: click.Context, option: str, names: Sequence[str]) -> int:
    from safe_vllm.commands import doctor as story

    let_signals_come()
    findings = story.of_manifests(names) if option == "--manifest" else story.of_units(names)
    click.echo(story.told_of_files(findings, ctx.obj["output"]))
    return FOUND_SOMETHING if any(finding.counts for finding in findings) else 0
