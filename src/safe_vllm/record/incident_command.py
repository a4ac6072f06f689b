"""What a report says of a command: the line to paste, the variables that matter, and what was asked for."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping

from safe_vllm.plan.command import Command
from safe_vllm.plan.edit import Config, Words
from safe_vllm.plan.flags import read
from safe_vllm.plan.grammar import DATA_PARALLEL, EXPERT_PARALLEL, PIPELINE_PARALLEL, TENSOR_PARALLEL
from safe_vllm.plan.ladder import Rung
from safe_vllm.plan.model_name import name_in
from safe_vllm.plan.settings import autotune, moe_backend
from safe_vllm.plan.shape_flags import option
from safe_vllm.plan.veil import Veil
from safe_vllm.record.incident import Setting, Variable

PREFIXES = (
    "VLLM_ FLASHINFER_ TRTLLM_ CUDA_ CUBLAS_ CUDNN_ NCCL_ NVIDIA_ NVSHMEM_ UCX_ TORCH PYTORCH_ TRITON_ OMP_ HF_ "
    "TRANSFORMERS_ SAFE_VLLM_"
).split()
NAMES = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "RAY_ADDRESS", "VIRTUAL_ENV", "XDG_CACHE_HOME"})
"""Variables that matter, with those that begin so."""
NAMES_ALONE = ("HF_", "TRANSFORMERS_")
"""Of these the value is not told: it says more of the operator than of the fault."""
NOT_VLLMS = ("SAFE_VLLM_",)
"""These do not belong to the command: vLLM does not read them."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
PLAIN = ("--quantization", "--attention-backend", "--all2all-backend")
UNSAID = {"--revision": "not given, so the newest", "--dtype": "not given, so that of the model"}
"""Flags, and what leaving them out means."""
SIZES = {TENSOR_PARALLEL: "TP", DATA_PARALLEL: "DP", PIPELINE_PARALLEL: "PP"}


def command_line(rung: Rung, command: Command, veil: Veil) -> str:
    """Return a command as a line for a shell: the variables that matter to vLLM, and every word."""
    ours = dict(rung.environment)
    names = [name for name in command.environment if name in ours or _is_vllms(name)]
    words = [f"{name}={shlex.quote(veil.variable(name, command.environment[name]))}" for name in sorted(names)]
    return " ".join([*words, shlex.join(veil.words(command.argv))])


def _is_vllms(name: str) -> bool:
    return _matters(name) and not name.startswith((*NAMES_ALONE, *NOT_VLLMS))


def _matters(name: str) -> bool:
    return name in NAMES or name.startswith(tuple(PREFIXES))


def variables(environment: Mapping[str, str], unread: Collection[str], veil: Veil) -> Iterator[Variable]:
    """Yield the variables that matter."""
    for name in sorted(filter(_matters, environment)):
        is_told = not name.startswith(NAMES_ALONE)
        yield Variable(name, veil.variable(name, environment[name]) if is_told else None, name in unread)


def settings(words: Words, environment: Mapping[str, str], config: Config, veil: Veil) -> Iterator[Setting]:
    """Yield model, parallelism, backends and GPUs, as the command asks for them."""
    if model := name_in(words, config):
        yield Setting("model", " ".join(veil.words([model])))
    for name in (*UNSAID, *PLAIN):
        if (value := option(words, name, config) or UNSAID.get(name)) is not None:
            yield Setting(name, veil.text(value))
    reading = read(words, config)
    sizes = [f"{short} {reading.setting(name).value}" for name, short in SIZES.items()]
    experts = "on" if reading.setting(EXPERT_PARALLEL).value else "off"
    yield Setting("parallelism", f"{', '.join(sizes)}, expert parallelism {experts}")
    yield Setting("MoE backend asked for", str(moe_backend(words, config).value))
    tuning = autotune(words, config).value
    yield Setting("FlashInfer autotune", "left to vLLM" if tuning is None else "on" if tuning else "off")
    yield Setting(VISIBLE, environment.get(VISIBLE) or "not set, so vLLM sees all GPUs")
