"""What vLLM was started with, as its own line tells, and which rungs would change something."""

from __future__ import annotations

import pytest

from safe_vllm.announce.rungs import CHANGES, fitting, without_effect
from safe_vllm.plan.ladder import LESS_PARALLEL, NO_AUTOTUNE, NO_EXPERT_PARALLEL, RELIEVES, TRITON
from safe_vllm.verdict.arguments import arguments, is_on_cpu
from safe_vllm.verdict.evidence import Arguments, Evidence

NEW = "(APIServer pid=1) INFO 11-30 09:51:12 [api_utils.py:286] non-default args: "


def of(text: str) -> Arguments | None:
    return arguments([Evidence(1, text, "marker", "arguments")])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{NEW}{{'model': 'm'}}", Arguments()),
        (f"{NEW}{{'model': 'm', 'data_parallel_size': 1}}", Arguments()),
        (f"{NEW}{{'model': 'm', 'data_parallel_size_local': 2}}", Arguments()),
        (f"{NEW}{{'data_parallel_size': 4, 'enable_expert_parallel': True}}", Arguments(True, True)),
        (f"{NEW}{{'moe_backend': 'triton'}}", Arguments(moe_backend="triton")),
        (f"{NEW}{{'enable_flashinfer_autotune': False}}", Arguments(autotune=False)),
        (
            f"{NEW}{{'kernel_config': KernelConfig(enable_flashinfer_autotune=False, moe_backend='triton')}}",
            Arguments(moe_backend="triton", autotune=False),
        ),
        ("INFO 1-1 args: Namespace(data_parallel_size=2, enable_expert_parallel=False)", Arguments(True)),
    ],
)
def test_the_settings_that_rungs_change_are_read(text: str, expected: Arguments) -> None:
    assert of(text) == expected


def test_a_line_that_was_cut_tells_nothing_and_so_does_none() -> None:
    assert of(f"{NEW}{{'model': 'm', 'data_para") is None
    assert arguments([]) is None


def test_of_several_lines_the_last_counts() -> None:
    lines = [f"{NEW}{{'data_parallel_size': 4}}", f"{NEW}{{'model': 'm'}}"]
    assert arguments([Evidence(1, text, "marker", "arguments") for text in lines]) == Arguments()


def test_an_engine_on_the_cpu_is_known_by_its_configuration() -> None:
    said = "Initializing a V1 LLM engine with config: device_config=cpu, seed=0"
    assert is_on_cpu([Evidence(1, said, "marker", "engine-configuration")])
    assert not is_on_cpu([Evidence(1, said.replace("cpu", "cuda"), "marker", "engine-configuration")])
    assert not is_on_cpu([Evidence(1, said, "marker", "arguments")])


@pytest.mark.parametrize(
    ("known", "on_cpu", "useless"),
    [
        (None, False, set()),
        (None, True, {NO_AUTOTUNE, TRITON}),
        (Arguments(), False, {LESS_PARALLEL, NO_EXPERT_PARALLEL}),
        (Arguments(True, True, "triton", False), False, {NO_AUTOTUNE, TRITON}),
        (Arguments(True, True), False, set()),
    ],
)
def test_a_rung_that_changes_nothing_is_known(known: Arguments | None, on_cpu: bool, useless: set[str]) -> None:
    assert without_effect(known, is_on_cpu=on_cpu) == useless


def test_rungs_that_answer_the_suspect_come_alone_and_others_where_none_of_these_fits() -> None:
    assert fitting("unknown", RELIEVES, frozenset()) == list(CHANGES)
    assert fitting("parallel", RELIEVES, frozenset({LESS_PARALLEL})) == [NO_EXPERT_PARALLEL]
    assert fitting("parallel", RELIEVES, frozenset({LESS_PARALLEL, NO_EXPERT_PARALLEL})) == [NO_AUTOTUNE, TRITON]
