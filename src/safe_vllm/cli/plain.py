"""Words that are vLLM's: how they are kept as they are, and how we become vLLM."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click

from safe_vllm.cli.switch import is_off
from safe_vllm.early import let_signals_come
from safe_vllm.errors import Status, Trouble, nearest, reason_of

ALIKE = 0.75
"""From here on a subcommand is taken for a misspelt one of ours; vLLM gets it all the same."""

OFF = "SAFE_VLLM_OFF: plain vLLM, unsupervised"
"""What a service manager is told, that would wait for our word."""


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
        return super().get_command(ctx, cmd_name) or Verbatim(cmd_name, callback=hand_over)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command by its exact name."""
        return args[0], self.get_command(ctx, args[0]), args[1:]


@click.pass_context
def hand_over(ctx: click.Context) -> None:
    """Become `vllm OTHER…`. What was probably meant for us is told: vLLM cannot know."""
    name = str(ctx.info_name)
    if not is_off():
        if "/" in name:  # not shown: a URL may hold a password
            hint = "say `safe-vllm serve MODEL …`"
            raise Trouble("the first word looks like a model and is no command", hint=hint, status=Status.USAGE)
        launcher = ctx.find_root().command
        ours = launcher.list_commands(ctx) if isinstance(launcher, Launcher) else []
        if near := nearest(name.lower(), ours, ALIKE):
            complain(f"{name!r} is no command of ours and goes to vLLM; did you mean `safe-vllm {near}`?")
    become(ctx.obj["vllm"], [str(ctx.info_name), *ctx.args])


def complain(text: str) -> None:
    """Say one line of ours on stderr; whoever cannot hear it must not end us."""
    with suppress(OSError):
        print(f"safe-vllm: {text}", file=sys.stderr)  # noqa: T201


def wants_only_words(words: Sequence[str]) -> bool:
    """Return whether vLLM would print its help or version and end."""
    options = words[: words.index("--")] if "--" in words else words
    return any(word in ("-h", "-v", "--help", "--version") or word.startswith("--help=") for word in options)


def command_words(text: str) -> tuple[str, ...]:
    """Return the words of a command as a shell would split it."""
    import shlex

    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise Trouble(f"--vllm {text!r}: {error}", hint="quote it as a shell would", status=Status.USAGE) from error


def become(vllm: str, words: Sequence[str]) -> NoReturn:
    """Become vLLM; nothing of us is left."""
    from safe_vllm.attempt.child import inherited_environment
    from safe_vllm.machine import executable

    environment = inherited_environment()
    command = executable.find(command_words(vllm), environment)
    if is_off() and "NOTIFY_SOCKET" in environment:
        from safe_vllm.announce.systemd import take_leave

        environment = take_leave(environment, OFF)
    let_signals_come()
    try:
        os.execve(command[0], [*command, *words], environment)
    except OSError as error:
        text, hint = f"{command[0]} cannot be executed: {reason_of(error)}", "see its permissions and first line"
        raise Trouble(text, hint=hint, status=Status.NOT_EXECUTABLE) from error
