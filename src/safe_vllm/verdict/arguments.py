"""What vLLM was started with, as its own line of arguments tells: a few settings, and no word of it is evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safe_vllm.verdict.evidence import Arguments, Evidence

_KEYS = "data_parallel_size|enable_expert_parallel|moe_backend|enable_flashinfer_autotune"
# 'key': value in the newer line, key=value in the older one and in the configurations that it quotes
_SETTING = re.compile(rf"\b({_KEYS})['\"]?(?:: ?|=)['\"]?(\w+)")
_CPU = re.compile(r"\bdevice_config=cpu\b")


def arguments(evidence: Sequence[Evidence]) -> Arguments | None:
    """Return what the last line of arguments tells; ``None`` where there is none, or only its beginning was kept."""
    text = next((found.text for found in reversed(evidence) if found.signature == "arguments"), "").rstrip()
    if not text.endswith(("}", ")")):
        return None
    told = dict(_SETTING.findall(text))
    return Arguments(
        data_parallel=told.get("data_parallel_size", "1") not in ("0", "1", "None"),
        expert_parallel=told.get("enable_expert_parallel") == "True",
        moe_backend=told.get("moe_backend", "auto"),
        autotune=told.get("enable_flashinfer_autotune", "").lower() != "false",
    )


def is_on_cpu(evidence: Sequence[Evidence]) -> bool:
    """Return whether the engine said that it computes on the CPU."""
    return any(found.signature == "engine-configuration" and _CPU.search(found.text) for found in evidence)
