"""Data parallelism becomes tensor parallelism on the same GPUs, or the rung is left out with a reason."""

from __future__ import annotations

import pytest

from safe_vllm.machine.facts import ModelShape
from safe_vllm.plan.ladder import LeftOut
from safe_vllm.plan.parallelism import less_parallel, no_expert_parallel


def lowered(line: str, heads: int | None = None, **environment: str) -> str:
    result = less_parallel(tuple(line.split()), None, environment, ModelShape(attention_heads=heads))
    return result.because if isinstance(result, LeftOut) else " ".join(result)


def without_experts(line: str, width: int | None = None, **environment: str) -> str:
    result = no_expert_parallel(tuple(line.split()), None, environment, ModelShape(moe_intermediate_size=width))
    return result.because if isinstance(result, LeftOut) else " ".join(result)


@pytest.mark.parametrize(
    ("before", "heads", "after"),
    [
        ("m -dp 2 -ep", None, "m -dp 1 -ep --tensor-parallel-size 2"),
        ("m -dp 2 -tp 4", None, "m -dp 1 -tp 8"),
        ("m --data_parallel_size=4 -tp=2", 64, "m --data_parallel_size=1 -tp=8"),
        ("m -dp 4 -tp 2", 4, "m -dp 2 -tp 4"),
        ("m -dp 8", 28, "m -dp 2 --tensor-parallel-size 4"),
        ("m -dp 2 -pp 2", None, "m -dp 1 -pp 2 --tensor-parallel-size 2"),
    ],
)
def test_data_parallelism_is_lowered_as_far_as_the_heads_divide(before: str, heads: int | None, after: str) -> None:
    assert lowered(before, heads) == after


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("m", "data parallelism is not in use"),
        ("m -tp 8", "data parallelism is not in use"),
        ("m -dp two", "the parallel sizes are not plain numbers"),
        ("m -dp 2 --nnodes 2", "--nnodes"),
        ("m -dp 2 -n 2", "--nnodes"),
        ("m -dp 2 -n2", "--nnodes"),
        ("m -dp 2 --headless", "--headless"),
        ("m -dp 2 -dpl 1", "--data-parallel-size-local"),
        ("m -dp 2 -dpr 1", "--data-parallel-start-rank"),
        ("m -dp 2 -dpn 0", "--data-parallel-rank"),
        ("m -dp 2 -dph", "--data-parallel-hybrid-lb"),
        ("m -dp 2 -dpe", "--data-parallel-external-lb"),
        ("m -dp 2 -dpm", "--data-parallel-multi-port-external-lb"),
        ("m -dp 2 --distributed-executor-backend external_launcher", "external_launcher"),
        ("m -dp 2 --distributed-executor-backend ray", "Ray"),
        ("m -dp 2 -dpb ray", "Ray"),
        ("m -dp 2 --enable-elastic-ep", "--enable-elastic-ep needs data parallelism"),
    ],
)
def test_a_member_of_a_group_keeps_its_parallelism(line: str, because: str) -> None:
    assert because in lowered(line)


def test_heads_that_do_not_divide_leave_the_rung_out() -> None:
    assert lowered("m -dp 2 -tp 2", heads=6) == "6 attention heads cannot be split over 4 GPUs any further"
    assert lowered("m -dp 4", heads=3) == "3 attention heads cannot be split over 4 GPUs any further"


def test_data_parallelism_from_the_environment_is_left_alone() -> None:
    assert "VLLM_DP_SIZE" in lowered("m -dp 2", VLLM_DP_SIZE="2")
    assert "VLLM_DP_RANK" in without_experts("m -tp 2 -ep", VLLM_DP_RANK="0")


@pytest.mark.parametrize("line", ["m -dp 2 --no-data-parallel-hybrid-lb", "m -dp 2 --distributed-executor-backend mp"])
def test_flags_that_say_there_is_no_group_do_not_stop_it(line: str) -> None:
    assert lowered(line).startswith("m -dp 1")


def test_expert_parallelism_is_switched_off() -> None:
    assert without_experts("m -tp 2 --enable-expert-parallel --port 1", width=64) == "m -tp 2 --port 1"


@pytest.mark.parametrize(
    ("line", "width", "because"),
    [
        ("m -tp 2", None, "expert parallelism is not in use"),
        ("m -ep", None, "expert parallelism does nothing on a single GPU"),
        ("m -tp 3 -ep", 64, "experts of width 64 cannot be split over 3 GPUs"),
        ("m -tp 2 -dp 3 -ep", 64, "experts of width 64 cannot be split over 6 GPUs"),
        ("m -tp 2 -ep --enable-eplb", None, "--enable-eplb needs expert parallelism"),
        ("m -tp 2 -ep --enable-elastic-ep", None, "--enable-elastic-ep needs expert parallelism"),
        ("m -tp 2 -ep --headless", None, "--headless"),
    ],
)
def test_expert_parallelism_stays_where_it_must(line: str, width: int | None, because: str) -> None:
    assert because in without_experts(line, width)


def test_ray_does_not_keep_expert_parallelism_on() -> None:
    line = "m -tp 2 --distributed-executor-backend ray"
    assert without_experts(f"{line} -ep") == line
