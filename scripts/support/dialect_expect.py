"""What must be true of every rung, in the words of the vLLM that read it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Answer = Mapping[str, Any]
Values = Mapping[str, Any]
DEPENDENT = ("data_parallel", "enable_eplb", "enable_dbo", "all2all_backend", "api_server_count", "enable_elastic_ep")
"""Beginnings of what less parallelism may take along."""
TOKENS = "max_num_batched_tokens"
MOE_SWITCHES = "VLLM_USE_FLASHINFER_MOE_"
SKIPPED_OPERATORS = "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS"


def mismatches(
    rung: str, ladder: Sequence[str], asked: Answer, answer: Answer, environment: Mapping[str, str], is_cpu: bool
) -> Iterator[str]:
    """Yield how a rung differs from what its name says. ``asked``: what vLLM makes of the operator's own words."""
    if "error" in answer:
        yield f"refused ({answer['stage']}): {answer['error']}"
        return
    before, now = asked["values"], answer["values"]
    reached = set(ladder[: ladder.index(rung) + 1])
    is_without = is_cpu or any(name.startswith(MOE_SWITCHES) and environment[name] == "0" for name in environment)
    yield from _of_backend(reached, before, now, is_without)
    yield from _of_autotune(reached, before, now, SKIPPED_OPERATORS in environment)
    yield from _of_parallelism(reached, before, now)
    yield from _of_all_else(reached, asked, answer)


def _of_backend(reached: set[str], before: Values, now: Values, auto_is_safe: bool) -> Iterator[str]:
    backend = now["moe_backend"]
    if "triton" not in reached:
        if backend != before["moe_backend"] and before["moe_backend"] != "auto":
            yield f"moe_backend is {backend}, and was {before['moe_backend']}"
        return
    for name, value in (("moe_backend", backend), ("draft_moe_backend", now["draft_moe_backend"])):
        if value is not None and ("flashinfer" in value or (value == "auto" and not auto_is_safe)):
            yield f"{name} is {value} from triton on"


def _of_autotune(reached: set[str], before: Values, now: Values, skips_operators: bool) -> Iterator[str]:
    if "no-autotune" not in reached:
        if now["autotune"] != before["autotune"]:
            yield f"autotune is {now['autotune']}, and was {before['autotune']}"
    elif now["autotune"] is not False and not skips_operators:
        yield f"autotune is {now['autotune']} from no-autotune on"


def _of_parallelism(reached: set[str], before: Values, now: Values) -> Iterator[str]:
    ranks = [values["data_parallel"] * values["tensor_parallel"] for values in (before, now)]
    if ranks[0] != ranks[1]:
        yield f"data x tensor parallelism is {ranks[1]}, and was {ranks[0]}"
    if "less-parallel" in reached and now["data_parallel"] >= before["data_parallel"]:
        yield f"data parallelism is {now['data_parallel']} from less-parallel on, and was {before['data_parallel']}"
    if "less-parallel" not in reached and now["data_parallel"] != before["data_parallel"]:
        yield f"data parallelism is {now['data_parallel']}, and was {before['data_parallel']}"
    expected = before["expert_parallel"] and "no-expert-parallel" not in reached
    if now["expert_parallel"] is not expected:
        yield f"expert parallelism is {now['expert_parallel']}"


def _of_all_else(reached: set[str], asked: Answer, answer: Answer) -> Iterator[str]:
    # How many tokens fit a step follows from the all-to-all kernels, unless it was said.
    follows = "less-parallel" in reached and TOKENS not in asked["others"]
    for name in ("model", "level", "quantization", "kernel_config", *([] if follows else [TOKENS])):
        if answer["values"][name] != asked["values"][name]:
            yield f"{name} is {answer['values'][name]}, and was {asked['values'][name]}"
    said, kept = asked["others"], answer["others"]
    for name in sorted(said.keys() | kept.keys()):
        may_go = name.startswith(DEPENDENT) and "less-parallel" in reached
        if said.get(name) != kept.get(name) and not may_go:
            yield f"{name} is {kept.get(name)}, and was {said.get(name)}"


def is_in_order(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether all ``wanted`` words are among ``words``, in their order."""
    rest = iter(words)
    return all(word in rest for word in wanted)
