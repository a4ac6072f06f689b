"""The format of a model's weights as its quantisation settings tell it: of the experts where there are any.

What vLLM makes of the settings:
https://github.com/vllm-project/vllm/tree/v0.32.0/vllm/model_executor/layers/quantization
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from safe_vllm.machine.modules import TooComplex, covers, few, layers_of
from safe_vllm.machine.schemes import (
    MXFP4,
    MXFP8,
    NVFP4,
    UNKNOWN,
    UNQUANTISED,
    Settings,
    Weights,
    agreed,
    block,
    compressed,
    group_size,
    inner,
    quark,
    strings,
)

ONLINE: Mapping[str, Weights] = {
    "fp8": ("fp8", None),
    "ptpc_fp8": ("fp8", None),
    "fp8_per_tensor": ("fp8", None),
    "fp8_per_channel": ("fp8", None),
    "fp8_per_block": ("fp8", 128),
    "experts_int8": ("int8", None),
    "int8_per_channel_weight_only": ("int8", None),
    "nvfp4_per_token": NVFP4,
    "mxfp4": MXFP4,
    "mxfp8": MXFP8,
}
"""What ``--quantization`` makes of weights that are not quantised:
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/config/quantization.py
"""

OTHER_LOADERS = ("bitsandbytes", "gguf")
"""Load formats that bring a weight format of their own."""

ALGORITHMS: Mapping[str, Weights] = {
    "FP8": ("fp8", None),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", None),
    "FP8_PB_WO": ("fp8", 128),
    "FP8_BLOCK_SCALES": ("fp8", 128),
    "NVFP4": NVFP4,
    "W4A16_NVFP4": NVFP4,
    "MXFP8": MXFP8,
}
"""ModelOpt's names: https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/model_executor/layers/quantization/modelopt.py"""

DATA_TYPES: Mapping[tuple[str, int], Weights] = {
    ("int", 4): ("int4", None),
    ("mx_fp", 4): MXFP4,
    ("mx_fp", 8): MXFP8,
    ("nv_fp", 4): NVFP4,
    ("fp", 8): ("fp8", None),
}
"""AutoRound's, by their beginning."""

IGNORED = ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules", "exclude", "exclude_layers")
"""Where tools put the patterns of modules that they leave alone."""

Reader = Callable[[Settings, Sequence[str]], Weights]


@dataclass(frozen=True)
class Checkpoint:
    """What the files of a model say about its weights."""

    config: Settings
    """The configuration of the language model."""
    quantization: Settings | None = None
    """The settings that vLLM uses; ``None``: not quantised."""
    separate: Settings | None = None
    """ModelOpt's ``hf_quant_config.json``."""
    has_experts: bool = True
    layers: int = 1


def weights(checkpoint: Checkpoint, asked: str | None = None, load_format: str | None = None) -> Weights:
    """Return format and block size. ``asked``: the value of ``--quantization``, which quantises plain weights."""
    if load_format in OTHER_LOADERS:
        return UNKNOWN
    if checkpoint.quantization is None:
        return ONLINE.get(asked, UNKNOWN) if asked else UNQUANTISED
    try:
        return _told(checkpoint)
    except TooComplex:
        return UNKNOWN


def _told(checkpoint: Checkpoint) -> Weights:
    """Return what the settings of a quantised model say. Raises TooComplex."""
    settings = _flat(checkpoint)
    if _has_deepseeks_fp4_experts(checkpoint.config):
        return NVFP4 if str(settings.get("moe_quant_algo")).upper() == "NVFP4" else MXFP4
    layers = layers_of(checkpoint.has_experts, checkpoint.layers)
    ignored = few(_ignored(settings))
    if sum(any(covers(entry, layer) for entry in ignored) for layer in layers) * 2 > len(layers):
        return UNQUANTISED
    method = str(settings.get("quant_method") or inner(settings, "producer").get("name"))
    method = method.lower().replace("_", "-").removeprefix("intel/")
    read = next((read for name, read in METHODS.items() if method.startswith(name)), None)
    return read(settings, layers) if read else UNKNOWN


def _has_deepseeks_fp4_experts(config: Settings) -> bool:
    """Return what vLLM's models/deepseek_v4/quant_config.py would: the settings speak of the other layers alone."""
    is_v4 = str(config.get("model_type")).startswith("deepseek_v4")
    return is_v4 and config.get("expert_dtype", "fp4") == "fp4"


def _flat(checkpoint: Checkpoint) -> Settings:
    """Return all settings in one mapping. ModelOpt has had them inside another, or a part of them in another file."""
    by_layer = inner(inner(checkpoint.separate or {}, "quantization"), "quantized_layers")
    settings = checkpoint.quantization or {}
    return {"quantized_layers": by_layer, **inner(settings, "quantization"), **settings}


def _ignored(settings: Settings) -> list[str]:
    """Return the patterns of modules that are not quantised."""
    found = [entry for key in IGNORED for entry in strings(settings, key)]
    found += [f"re:{key[2:]}" for key in inner(settings, "dynamic") if key.startswith("-:")]  # GPTQModel's
    extra = inner(settings, "extra_config")  # AutoRound's, where an expression may match anywhere in the name
    whole = [name for name in extra if inner(extra, name).get("bits") in (16, 32)]
    return [*found, *(f"re:.*{name}" if re.search(r"[*+?^$()\[\]|\\]", name) else name for name in whole)]


def _fp8(settings: Settings, _layers: Sequence[str]) -> Weights:
    return MXFP4 if settings.get("store_dtype") == "mxfp4" else ("fp8", block(settings, "weight_block_size"))


def _fixed(result: Weights) -> Reader:
    return lambda _settings, _layers: result


def _integer(settings: Settings, _layers: Sequence[str]) -> Weights:
    """Read GPTQ and AWQ, under 16-bit activations; what takes those with 8 bits is not known."""
    is_known = settings.get("bits", settings.get("w_bit")) == 4
    return ("int4", group_size(settings)) if is_known else UNKNOWN


def _auto_round(settings: Settings, _layers: Sequence[str]) -> Weights:
    kind, bits = str(settings.get("data_type", "int")), settings.get("bits")
    fits = (each for (start, size), each in DATA_TYPES.items() if kind.startswith(start) and bits == size)
    found, size = next(fits, UNKNOWN)
    return found, (block(settings, "group_size") or group_size(settings, size)) if found else None


def _modelopt(settings: Settings, layers: Sequence[str]) -> Weights:
    if str(settings.get("quant_algo")).upper() != "MIXED_PRECISION":
        return _algorithm(settings)
    by_layer = inner(settings, "quantized_layers")
    part = r"\.experts(\.|$)" if ".experts" in layers[0] else r"\.(mlp|feed_forward|mixer)\."
    return (
        agreed(_algorithm(inner(by_layer, name)) for name in by_layer if re.search(part, name)) if by_layer else UNKNOWN
    )


def _algorithm(settings: Settings) -> Weights:
    found, size = ALGORITHMS.get(str(settings.get("quant_algo")).upper(), UNKNOWN)
    return found, group_size(settings, size) if size else None


METHODS: Mapping[str, Reader] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fp8,
    "deepseek-v4-fp8": _fp8,
    "mxfp4": _fixed(MXFP4),
    "gpt-oss-mxfp4": _fixed(MXFP4),
    "mxfp8": _fixed(MXFP8),
    "gptq": _integer,
    "auto-gptq": _integer,
    "awq": _integer,
    "auto-awq": _integer,
    "auto-round": _auto_round,
    "inc": _auto_round,
    "compressed-tensors": compressed,
    "modelopt": _modelopt,
    "quark": quark,
}
"""By the beginning of ``quant_method``. Of every other method it is not known what takes its weights."""
