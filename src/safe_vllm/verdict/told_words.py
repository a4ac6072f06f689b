"""The command that vLLM was started with, as words, from its own line of arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from safe_vllm.verdict.arguments import arguments
from safe_vllm.verdict.evidence import Evidence

_PAIR = re.compile(r"\s*['\"]?(\w+)['\"]?\s*[:=]\s*(.*)", re.DOTALL)
_OPENS, _CLOSES = "([{", ")]}"


def told_words(evidence: Sequence[Evidence]) -> tuple[str, ...] | None:
    """Return the words for the arguments that the last such line tells; ``None`` where there is none, or not all of it.

    The newer line holds what is not the default, the older one everything. What a configuration holds is a word of its
    own only where a rung changes it.
    """
    told = arguments(evidence)
    if told is None:
        return None
    text = next(found.text for found in reversed(evidence) if found.signature == "arguments").rstrip()
    words = [word for pair in _pairs(text) for word in _words(*pair)]
    words += ["--no-enable-flashinfer-autotune"] if not told.autotune else []
    return tuple(words + (["--moe-backend", told.moe_backend] if told.moe_backend != "auto" else []))


def _words(name: str, value: str) -> tuple[str, ...]:
    flag = name.replace("_", "-")
    if value == "None":
        return ()
    if value in ("True", "False"):
        return (f"--{flag}" if value == "True" else f"--no-{flag}",)
    return (f"--{flag}", value.strip("'\""))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values between the outermost brackets of the line."""
    whole = text.partition("args: ")[2].removeprefix("Namespace")
    for piece in _pieces(whole[1:-1]):
        if pair := _PAIR.fullmatch(piece):
            yield pair[1], pair[2]


def _pieces(text: str) -> Iterator[str]:
    """Yield what commas part, but for those within quotes or brackets."""
    depth, quote, begin, at = 0, "", 0, 0
    while at < len(text):
        sign = text[at]
        if quote:
            at += sign == "\\"  # whatever follows stands for itself
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "," and not depth:
            yield text[begin:at]
            begin = at + 1
        else:
            depth += (sign in _OPENS) - (sign in _CLOSES)
        at += 1
    yield text[begin:]
