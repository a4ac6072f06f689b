"""Names of the modules inside a model, as the patterns of quantisation tools match them."""

from __future__ import annotations

import re
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

WINDOW = 8
"""Layers in the middle that stand for all: the first and the last are often treated otherwise."""


def layers_of(has_experts: bool, count: int) -> list[str]:
    """Return what the experts (or dense layers) of some layers may be called: one text per layer, one name a line."""
    first = max(0, (count - WINDOW) // 2)
    parts = EXPERTS if has_experts else DENSE
    return [
        "\n".join(f"{root}.{layer}.{part}" for root in ROOTS for part in parts)
        for layer in range(first, min(first + WINDOW, max(count, 1)))
    ]


def covers(pattern: str, layer: str) -> bool:
    """Return whether a pattern means one of the names: ``re:`` and an expression, wildcards, or a part of the name."""
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
        text = f"^(?:{pattern[3:]})"
    elif "*" in pattern or "?" in pattern:
        text = f"^{re.escape(pattern)}$".replace(r"\*", ".*").replace(r"\?", ".")
    else:
        text = rf"(?:^|\.){re.escape(pattern)}(?:\.|$)"
    try:
        return re.compile(text, re.MULTILINE)
    except re.error:
        return None
