"""The command itself: flags that vLLM does not have, and files that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.errors import nearest
from safe_vllm.plan.flags import end_of_options
from safe_vllm.plan.model_name import name_in
from safe_vllm.plan.secrets import without_secrets
from safe_vllm.plan.strangers import strangers

ALIKE = 0.75
FILES = {".service": ("unit", "--unit"), ".yaml": ("manifest", "--manifest"), ".yml": ("manifest", "--manifest")}
"""Names that no model has: what such a file is, and the option that it was meant for."""
OF_FILES = tuple(dict.fromkeys(option for _, option in FILES.values()))
"""``doctor`` takes them as its first words; vLLM has none that is like them."""


def files(case: Case) -> Iterator[Finding]:
    """Look for a unit or a manifest that is taken for the model, as its option is misspelt or was left out."""
    slips = _slips(case)
    for word, option in slips.items():
        why = "it is handed to vLLM, which ends at it; this machine was checked, and no file"
        what = f"{word} is no option of vLLM; did you mean `safe-vllm doctor {option} FILE`?"
        yield Finding("command", "problem", what, why, f"safe-vllm doctor {option} FILE, before any other word")
    name = name_in(case.words, case.config) or ""
    kind, option = next((meant for ending, meant in FILES.items() if name.endswith(ending)), ("", ""))
    if kind and not slips:
        what = f"{without_secrets(name)} looks like a {kind}, and was taken for the model"
        why = "this machine was checked, and not what is in the file"
        yield Finding("command", "problem", what, why, f"safe-vllm doctor {option} FILE")


def _slips(case: Case) -> dict[str, str]:
    """Return the words that were meant for one of our options, with that option."""
    known = case.dialect.flags or ()
    names = (word.partition("=")[0] for word in case.words[: end_of_options(case.words)] if word.startswith("--"))
    near = {name: nearest(name, OF_FILES, ALIKE) for name in names if not any(flag.startswith(name) for flag in known)}
    return {name: option for name, option in near.items() if option}


def flags(case: Case) -> Iterator[Finding]:
    """Look for flags that the installed vLLM will refuse."""
    slips = _slips(case)
    words = tuple(word for word in case.words if word.partition("=")[0] not in slips)
    for sentence in strangers(words, case.dialect):
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
