"""Names of the modules inside a model, as the patterns of quantisation tools match them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

ROOTS = ("model.layers", "model.language_model.layers", "language_model.model.layers", "backbone.layers", "layers")
EXPERTS = (
    "mlp.experts",
    "mlp.experts.0.gate_proj",
    "mlp.experts.0.up_proj",
    "block_sparse_moe.experts",
    "block_sparse_moe.experts.0.w1",
    "feed_forward.experts",
    "feed_forward.experts.0.gate_proj",
    "mixer.experts",
    "mixer.experts.0.up_proj",
    "ffn.experts",
    "ffn.experts.0.w1",
)
DENSE = ("mlp.gate_proj", "mlp.down_proj", "mlp.gate_up_proj", "feed_forward.w1", "mixer.up_proj")
"""How models call the same thing; which of the names a model uses cannot be told from its configuration."""

ONE_LAYER = re.compile(r"layers\\?\.(\d+)(?:\\?\.|$)")
"""Lists with an entry for every layer are long: most of it needs no closer look."""

LONGEST = 200
MOST_REPEATS = 4
"""Of an expression. Each one more multiplies the time that a failing search may take by the length of a name."""
ESCAPED = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
"""What stands for one character, whatever it looks like."""
REPEATS = re.compile(r"[*+]|\{\d*,?\d*\}")
OPTIONAL = re.compile(r"(?<![(*+?}])\?")
MOST_OPTIONAL = 8
MOST_SEARCHES = 50
"""How many expressions with several repeats are searched for at all."""
REPEATED_GROUP = re.compile(r"\)[*+{]")

WINDOW = 8
"""Layers in the middle that stand for all: the first and the last are often treated otherwise."""


class TooComplex(ValueError):
    """A pattern whose search could take for ever; Python cannot be stopped in it."""


def layers_of(has_experts: bool, count: int) -> list[str]:
    """Return what the experts (or dense layers) of some layers may be called: one text per layer, one name a line."""
    first = max(0, (count - WINDOW) // 2)
    parts = EXPERTS if has_experts else DENSE
    return [
        "\n".join(f"{root}.{layer}.{part}" for root in ROOTS for part in parts)
        for layer in range(first, min(first + WINDOW, max(count, 1)))
    ]


def covers(pattern: str, layer: str) -> bool:
    """Return whether a pattern means one of the names: ``re:`` and an expression, wildcards, or a part of the name.

    Raises TooComplex.
    """
    if _only_layer(pattern) not in layer:
        return False
    expression = _expression(pattern)
    return expression is not None and expression.search(layer) is not None


@lru_cache(maxsize=4096)
def _only_layer(pattern: str) -> str:
    """Return what the only layer that a pattern means has in its names; empty: it may mean several."""
    named = ONE_LAYER.search(pattern)
    return f".{named[1]}." if named else ""


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str] | None:
    if pattern.startswith("re:"):
        text = f"^(?:{_simple(pattern[3:])})"
    elif "*" in pattern or "?" in pattern:
        text = f"^{re.escape(_simple(re.sub(r'[*]+', '*', pattern)))}$".replace(r"\*", ".*").replace(r"\?", ".")
    else:
        text = rf"(?:^|\.){re.escape(pattern)}(?:\.|$)"
    try:
        return re.compile(text, re.MULTILINE)
    except re.error:
        return None


def _simple(text: str) -> str:
    """Return the text of an expression or of wildcards, if no search for it can take long. Raises TooComplex."""
    plain = ESCAPED.sub("_", text)
    # A repeated group is safe only where there is one way to read what it has read: no choice and no repeat within.
    is_nested = REPEATED_GROUP.search(plain) is not None
    is_long = len(text) > LONGEST or len(OPTIONAL.findall(plain)) > MOST_OPTIONAL
    if is_long or is_nested or _repeats(text) > MOST_REPEATS:
        raise TooComplex(text[:LONGEST])
    return text


def few(patterns: Sequence[str]) -> Sequence[str]:
    """Return these patterns, if they are not too many to search for. Raises TooComplex."""
    if sum(_repeats(pattern) > 2 for pattern in set(patterns)) > MOST_SEARCHES:
        raise TooComplex(f"{len(patterns)} patterns")
    return patterns


def _repeats(text: str) -> int:
    return len(REPEATS.findall(ESCAPED.sub("_", text)))
