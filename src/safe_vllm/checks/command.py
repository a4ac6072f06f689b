"""The command itself: flags that vLLM does not have, and files that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.plan.secrets import without_secrets
from safe_vllm.plan.strangers import strangers


def flags(case: Case) -> Iterator[Finding]:
    """Look for flags that the installed vLLM will refuse."""
    for sentence in strangers(case.words, case.dialect):
        why = "vLLM ends with status 2 at a flag that it does not know, after all its imports"
        yield Finding("command", "problem", sentence, why, "correct it, or put our own options before the subcommand")


def model(case: Case) -> Iterator[Finding]:
    """Look for the model, where the command names a path."""
    if path := case.state.lost_model:
        why = "vLLM takes what is no directory for a name on the hub, and ends"
        yield Finding(
            "model", "problem", f"{without_secrets(path)} does not exist", why, "correct the path, or mount it"
        )


def config(case: Case) -> Iterator[Finding]:
    """Look for the file that --config names."""
    if trouble := case.state.config_trouble:
        why = "vLLM ends where it cannot read it either, and what it says cannot be checked"
        yield Finding("config", "problem", without_secrets(trouble), why, "correct the path or the file")
