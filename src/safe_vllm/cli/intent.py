"""What the operator asked for, of our options and vLLM's words: the same for every command that plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from safe_vllm.cli.plain import command_words
from safe_vllm.plan.intent import Intent

LIMITS = {"max_attempts": "max_attempts"} | {
    f"{name}_s": name for name in ("stop_timeout", "fault_grace", "backoff", "proving_window", "start_timeout")
}
"""The names of limits, and of the options that set them."""


def intent_of(ctx: click.Context) -> Intent:
    """Return what the options before the subcommand, and the words behind it, ask for."""
    options: Mapping[str, Any] = ctx.obj
    return Intent(
        words=tuple(ctx.args),
        vllm=command_words(options["vllm"]),
        profile=options["profile"],
        profile_dir=options["profile_dir"],
        pins=frozenset(options["pin"]),
        start_at=options["start_at"],
        observes_only=options["observe_only"],
        state_dir=options["state_dir"],
        remember_for_days=options["remember_for"],
        machine=options["machine"],
        wants_canary=not options["no_canary"],
        output=options["output"],
        events=options["events"],
        status_address=options["status_address"],
        asked={name: options[option] for name, option in LIMITS.items() if _was_given(ctx, option)},
    )


def _was_given(ctx: click.Context, name: str) -> bool:
    """Whether an option was given, by word or by variable: what was not is the profile's to say."""
    source = ctx.find_root().get_parameter_source(name)
    return source in (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)
