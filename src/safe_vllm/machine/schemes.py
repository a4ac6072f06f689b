"""Quantisation settings that give one scheme to some layers and another to others: compressed-tensors, Quark.

What vLLM makes of them:
https://github.com/vllm-project/vllm/tree/v0.32.0/vllm/model_executor/layers/quantization/compressed_tensors
https://github.com/vllm-project/vllm/tree/v0.32.0/vllm/model_executor/layers/quantization/quark
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from safe_vllm.machine.facts import WeightFormat
from safe_vllm.machine.modules import covers, few

Settings = Mapping[str, Any]
"""As they are in a JSON file that somebody else wrote: nothing about their types is certain."""

Weights = tuple[WeightFormat | None, int | None]
"""The format, and how many values along the width of an expert share a scale."""

UNKNOWN: Weights = (None, None)
UNQUANTISED: Weights = ("bf16", None)
NVFP4: Weights = ("nvfp4", 16)
MXFP4: Weights = ("mxfp4", 32)
MXFP8: Weights = ("mxfp8", 32)
FOUR_BIT_FLOATS: Mapping[int | None, Weights] = {16: NVFP4, 32: MXFP4}
"""By the number of values that share a scale."""

PACKED: Mapping[str, Weights] = {
    "nvfp4-pack-quantized": NVFP4,
    "mxfp4-pack-quantized": MXFP4,
    "mxfp8-quantized": MXFP8,
}
"""Formats of compressed-tensors that say everything:
https://github.com/vllm-project/compressed-tensors/blob/main/src/compressed_tensors/config/base.py
"""


def compressed(settings: Settings, layers: Sequence[str]) -> Weights:
    """Return what the groups that target these layers agree on."""
    groups = [group for group in inner(settings, "config_groups").values() if isinstance(group, dict)]
    if not groups:
        return PACKED.get(str(settings.get("format")), UNKNOWN)
    few([target for group in groups for target in strings(group, "targets")])
    chosen = [_group_of(layer, groups) for layer in layers]
    return agreed(_scheme(group, str(group.get("format") or settings.get("format"))) for group in chosen if group)


def quark(settings: Settings, layers: Sequence[str]) -> Weights:
    """Return what the schemes for these layers agree on."""
    named = inner(settings, "layer_quant_config")
    every = inner(settings, "global_quant_config")
    few([*named])
    chosen = [next((inner(named, name) for name in named if covers(name, layer)), every) for layer in layers]
    return agreed(map(_quark_scheme, chosen))


def agreed(found: Iterable[Weights]) -> Weights:
    """Return the one that all are; none at all means that nothing is quantised."""
    kinds = set(found)
    if not kinds:
        return UNQUANTISED
    return kinds.pop() if len(kinds) == 1 else UNKNOWN


def inner(settings: Settings, key: str) -> Settings:
    """Return a mapping within a mapping; an empty one where there is none."""
    value = settings.get(key)
    return value if isinstance(value, dict) else {}


def strings(settings: Settings, key: str) -> list[str]:
    """Return the strings of a list."""
    value = settings.get(key)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def block(settings: Settings, key: str) -> int | None:
    """Return the longer side of the blocks whose values share a scale."""
    value = settings.get(key)
    sizes = [each for each in value if type(each) is int] if isinstance(value, list) else []
    return max(sizes, default=None)


def group_size(settings: Settings, otherwise: int | None = None) -> int | None:
    """Return how many values share a scale; -1 stands for a whole row."""
    size = settings.get("group_size", settings.get("q_group_size"))
    return size if type(size) is int and size > 0 else otherwise


def _group_of(layer: str, groups: Sequence[Settings]) -> Settings | None:
    """Return the group that names the layer, or the one for every layer of its kind."""
    named = [group for group in groups if any(covers(target, layer) for target in strings(group, "targets"))]
    every = [group for group in groups if not group.get("targets") or any(map(_is_class, strings(group, "targets")))]
    return next(iter([*named, *every]), None)


def _is_class(target: str) -> bool:
    return target[:1].isupper() and target.isalnum()


def _scheme(group: Settings, form: str) -> Weights:
    """Return what one group of compressed-tensors says."""
    values, inputs = inner(group, "weights"), inner(group, "input_activations")
    kind, bits, size = values.get("type", "int"), values.get("num_bits"), group_size(values)
    if form in PACKED:
        return PACKED[form]
    if (kind, bits) == ("float", 4):
        return FOUR_BIT_FLOATS.get(size, UNKNOWN)
    if (kind, bits) == ("float", 8):
        is_shared_exponent = size == MXFP8[1] and "uint8" in str(values.get("scale_dtype"))
        return MXFP8 if is_shared_exponent else ("fp8", block(values, "block_structure"))
    if (kind, bits) == ("int", 4) and not inputs:
        return "int4", size
    is_int8 = (kind, bits) == ("int", 8) and bool(inputs) and inputs.get("type", "int") == "int"
    return ("int8", None) if is_int8 else UNKNOWN


def _quark_scheme(scheme: Settings) -> Weights:
    """Return what one scheme of Quark says. A list is a quantisation in steps, the first of which are the values."""
    weight = scheme.get("weight")
    steps = [step for step in (weight if isinstance(weight, list) else [weight]) if isinstance(step, dict)]
    first: Settings = steps[0] if steps else {}
    kind, size, has_inputs = str(first.get("dtype")), group_size(first), bool(scheme.get("input_tensors"))
    if kind.startswith("fp4"):
        return FOUR_BIT_FLOATS.get(size, UNKNOWN)
    if len(steps) == 1 and kind.startswith("fp8"):
        return MXFP8 if size == MXFP8[1] else ("fp8", block(first, "block_size"))
    if len(steps) == 1 and kind in ("int4", "uint4") and not has_inputs:
        return "int4", size
    return ("int8", None) if len(steps) == 1 and kind == "int8" and has_inputs else UNKNOWN
