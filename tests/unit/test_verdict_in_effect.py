"""The advice that is left once it is known what was in effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safe_vllm import known
from safe_vllm.plan.running import Running
from safe_vllm.verdict.advice import MOST_SHOWN, advised
from safe_vllm.verdict.evidence import Setup, Verdict
from safe_vllm.verdict.in_effect import advised_with

DEATH = Verdict(
    "illegal-memory-access",
    "retry-safer",
    "autotune",
    "a fault",
    "autotune",
    "FLASHINFER_TRTLLM",
    setup=Setup(vllm="0.32.0", flashinfer="0.6.16"),
)


def left(*words: str, verdict: Verdict = DEATH, is_mxfp4: bool = False, **environment: str) -> str:
    running = Running(words, environment)
    return "\n".join(advised_with(verdict, known.advice(), running, is_mxfp4=is_mxfp4).advice)


def test_where_nothing_is_in_effect_all_of_it_is_left_but_what_to_leave_out() -> None:
    everything = [one for one in advised(DEATH, known.advice()).advised if not one.leaves_out]
    assert left() == "\n".join(one.text for one in everything)


@pytest.mark.parametrize(
    ("words", "environment", "gone"),
    [
        (("--moe-backend", "triton"), {}, "--moe-backend triton"),
        ((), {"VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS": "flashinfer::trtllm_bf16_moe"}, "AUTOTUNE_SKIP_OPS"),
        (("--no-enable-flashinfer-autotune",), {}, "--no-enable-flashinfer-autotune"),
    ],
)
def test_what_is_in_effect_is_not_advised(words: tuple[str, ...], environment: dict[str, str], gone: str) -> None:
    assert gone in left()
    assert gone not in left(*words, **environment)


def test_what_is_left_out_makes_room_for_more() -> None:
    older = replace(DEATH, setup=Setup("0.26.0", "0.6.12"))
    before, after = left(verdict=older), left("--moe-backend", "triton", verdict=older)
    assert len(before.splitlines()) == len(after.splitlines()) == MOST_SHOWN
    assert set(after.splitlines()) - set(before.splitlines())


def test_the_backend_that_the_command_names_counts_where_the_output_is_vague() -> None:
    vague = replace(DEATH, backend="FlashInfer")
    assert "flashinfer_trtllm crashed" not in left(verdict=vague)
    assert "flashinfer_trtllm crashed" in left("--moe-backend", "flashinfer_trtllm", verdict=vague)
    mxfp4 = replace(DEATH, fault="hang", setup=Setup("0.32.0", "0.6.16", None, "10.3"), backend=None)
    assert "TRT-LLM's MXFP4" in left("--moe-backend", "flashinfer_trtllm", verdict=mxfp4, is_mxfp4=True)
    assert "TRT-LLM's MXFP4" not in left("--moe-backend", "flashinfer_trtllm", verdict=mxfp4)


def test_what_the_output_says_of_the_backend_stays_in_the_verdict() -> None:
    running = Running(("--moe-backend", "flashinfer_trtllm"), {})
    assert advised_with(DEATH, known.advice(), running, is_mxfp4=True).backend == "FLASHINFER_TRTLLM"
