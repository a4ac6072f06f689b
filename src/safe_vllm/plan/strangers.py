"""Flags among vLLM's words that the installed vLLM does not have: ours in the wrong place, and misspelled ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from safe_vllm.errors import nearest
from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.edit import Words
from safe_vllm.plan.flags import end_of_options, is_flag_like

OURS = frozenset(
    {
        "--profile",
        "--profile-dir",
        "--machine",
        "--pin",
        "--start-at",
        "--status-address",
        "--observe-only",
        "--no-canary",
        "--state-dir",
        "--remember-for",
        "--events",
        "--vllm",
        "--output",
        "--max-attempts",
        "--stop-timeout",
        "--fault-grace",
        "--backoff",
        "--proving-window",
        "--start-timeout",
    }
)
"""The options of safe-vllm that are not vLLM's as well, as ``--help`` and ``--version`` are."""
OF_EVERY_PARSER = ("--help", "--version")


def strangers(words: Words, dialect: Dialect) -> Iterator[str]:
    """Yield one sentence for each flag that vLLM will not know as it was meant. The words stay as they are."""
    known = dialect.flags
    for name in dict.fromkeys(_names(words)):
        if name in OURS and not (name in known if known is not None else dialect.has(name)):
            yield f"{name} is an option of safe-vllm and stands before the subcommand; here it is handed to vLLM"
        elif known is not None and not _is_known(name, known):
            yield f"{name} is no option of vLLM {dialect.version or ''}".rstrip() + _nearest(name, known)


def _names(words: Words) -> Iterator[str]:
    """Yield the long forms without values, keys and underscores."""
    is_value = False
    for word in words[: end_of_options(words)]:
        name, equals, _ = word.partition("=")
        head, dot, _ = name.partition(".")
        if not is_value and head.startswith("--") and is_flag_like(word) and " " not in head:
            yield head.replace("_", "-")
        # a dotted flag takes the next word, whatever that looks like
        is_value = not is_value and word.startswith("-") and bool(dot) and not equals


def _is_known(name: str, known: Collection[str]) -> bool:
    """Whether it is a flag, the beginning of one, or what switches one off."""
    twin = f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name
    return any(flag.startswith((name, twin)) for flag in (*known, *OF_EVERY_PARSER))


def _nearest(name: str, known: Collection[str]) -> str:
    no, bare = ("--no-", f"--{name[5:]}") if name.startswith("--no-") else ("--", name)
    long = [flag for flag in known if flag.startswith("--") and "." not in flag]
    if near := nearest(bare, long, least=0.75):
        return f"; did you mean {no}{near[2:]}?"
    ours = nearest(name, [*OURS], least=0.75)
    return f"; did you mean {ours}, an option of safe-vllm, before the subcommand?" if ours else ""
