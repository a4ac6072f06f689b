"""Data parallelism becomes tensor parallelism on the same GPUs, or the rung is left out with a reason."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from safe_vllm.machine.facts import Gpu, Machine, ModelShape
from safe_vllm.plan.ladder import LeftOut
from safe_vllm.plan.parallelism import less_parallel, no_expert_parallel


def machine(model: ModelShape | None = None, gpus: int = 0, is_slice: bool = False) -> Machine:
    return Machine("x86_64", model=model, gpus=(Gpu("NVIDIA H200", "9.0", is_slice=is_slice),) * gpus)


def lowered(
    line: str,
    model: ModelShape | None = None,
    config: Mapping[str, object] | None = None,
    gpus: int = 0,
    **environment: str,
) -> str:
    result = less_parallel(tuple(line.split()), config, environment, machine(model, gpus))
    return result.because if isinstance(result, LeftOut) else " ".join(result)


def without_experts(
    line: str, model: ModelShape | None = None, config: Mapping[str, object] | None = None, **environment: str
) -> str:
    result = no_expert_parallel(tuple(line.split()), config, environment, machine(model))
    return result.because if isinstance(result, LeftOut) else " ".join(result)


def heads(attention: int, kv: int | None = None) -> ModelShape:
    return ModelShape(attention_heads=attention, kv_heads=kv or attention)


@pytest.mark.parametrize(
    ("before", "model", "after"),
    [
        ("m -dp 2 -ep", None, "m -dp 1 -ep --tensor-parallel-size 2"),
        ("m -dp 2 -tp 4", None, "m -dp 1 -tp 8"),
        ("m --data_parallel_size=4 -tp=2", heads(64), "m --data_parallel_size=1 -tp=8"),
        ("m -dp 4 -tp 2", heads(4), "m -dp 2 -tp 4"),
        ("m -dp 8", heads(28), "m -dp 2 --tensor-parallel-size 4"),
        ("m -dp 2 -pp 2", None, "m -dp 1 -pp 2 --tensor-parallel-size 2"),
        ("m -dp 3 -tp 2", heads(9), "m -dp 2 -tp 3"),
    ],
)
def test_data_parallelism_is_lowered_as_far_as_the_heads_divide(
    before: str, model: ModelShape | None, after: str
) -> None:
    assert lowered(before, model) == after


@pytest.mark.parametrize(
    ("kv", "after"),
    [(8, "m -dp 1 -tp 8"), (4, "m -dp 1 -tp 8"), (1, "m -dp 1 -tp 8"), (12, "m -dp 2 -tp 4"), (16, "m -dp 1 -tp 8")],
)
def test_kv_heads_are_divided_or_each_given_to_equally_many_gpus(kv: int, after: str) -> None:
    assert lowered("m -dp 4 -tp 2", heads(48, kv)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("m -dp 2 -tp 2 -dcp 2", "m -dp 1 -tp 4 -dcp 2"),
        ("m -dp 2 -tp 2 -pcp 2 -dcp 2", "m -dp 1 -tp 4 -pcp 2 -dcp 2"),
        ("m -dp 2 -tp 2 -pcp 2", "m -dp 1 -tp 4 -pcp 2"),
    ],
)
def test_context_parallelism_that_still_divides_is_kept(before: str, after: str) -> None:
    assert lowered(before) == after


@pytest.mark.parametrize(
    ("line", "because"),
    [
        (
            "m -dp 3 -tp 2 -dcp 2",
            "9 attention heads and --decode-context-parallel-size 2 cannot be split over 6 GPUs any further",
        ),
        (
            "m -dp 3 -tp 1 -pcp 2 -dcp 2",
            "m -dp 1 -tp 3 -pcp 2 -dcp 2",
        ),
        (
            "m -dp 3 -tp 3 -pcp 2 -dcp 6",
            "9 attention heads and --decode-context-parallel-size 6 cannot be split over 9 GPUs any further",
        ),
    ],
)
def test_context_parallelism_bounds_the_split(line: str, because: str) -> None:
    assert lowered(line, heads(9)) == because


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("m -dp 2 -dpl 2", "m -dp 1 -dpl 1 --tensor-parallel-size 2"),
        ("m -dp 2 --data_parallel_size_local=2 -tp 1", "m -dp 1 --data_parallel_size_local=1 -tp 2"),
        ("m -dp 2 -tp 1 -dpl 2 -dpr 0 --port 1", "m -dp 1 -tp 2 -dpl 1 --port 1"),
        ("m -dp 2 -tp 1 -dpr=0", "m -dp 1 -tp 2"),
        ("-dp 2 -tp 1 -dpl 2 -dpr 0 m", "-dp 1 -tp 2 -dpr 0 m"),
        ("-dp 2 -tp 1 -dpr 0 m", "-dp 1 -tp 2 -dpr 0 m"),
    ],
)
def test_ranks_that_all_run_here_are_counted_anew(before: str, after: str) -> None:
    """A start rank beside one local engine is to vLLM a balancer outside, which one engine may not have."""
    assert lowered(before) == after


def test_the_start_rank_stays_where_several_engines_do() -> None:
    assert lowered("m -dp 4 -tp 2 -dpl 4 -dpr 0", heads(4)) == "m -dp 2 -tp 4 -dpl 2 -dpr 0"


@pytest.mark.parametrize(
    ("config", "before", "after"),
    [
        (
            {"data-parallel-size-local": 2},
            "m -dp 2 -tp 1",
            "m -dp 1 -tp 2 --data-parallel-size-local 1",
        ),
        ({"data-parallel-start-rank": 0}, "m -dp 2 -tp 1 -dpl 2", "m -dp 1 -tp 2"),
        (
            {"data-parallel-start-rank": 0, "data-parallel-size-local": 2},
            "m -dp 2 -tp 1",
            "--data-parallel-start-rank and --data-parallel-size-local cannot be taken out of the command",
        ),
        (
            {"data-parallel-size": 2, "tensor_parallel_size": 2},
            "m",
            "m --data-parallel-size 1 --tensor-parallel-size 4",
        ),
    ],
)
def test_what_a_file_says_is_overridden_where_it_can_be(config: dict[str, object], before: str, after: str) -> None:
    assert lowered(before, config=config) == after


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("m", "data parallelism is not in use"),
        ("m -tp 8", "data parallelism is not in use"),
        ("m -dp two", "the parallel sizes are not plain numbers"),
        ("m -dp 2 -dcp x", "the parallel sizes are not plain numbers"),
        ("m -dp 0", "the parallel sizes are not plain numbers"),
        ("m -dp 2 --distributed-executor-backend ray", "Ray"),
        ("m -dp 2 -dpb ray", "Ray"),
        ("m -dp 2 -dpb ray -dpl 1", "Ray"),
        ("m -dp 2 -dpl 2 -dph", "--data-parallel-hybrid-lb makes a balancer outside address each rank"),
        ("m -dp 2 -dpl 2 -dpm", "--data-parallel-multi-port-external-lb makes a balancer outside address each rank"),
        ("m -dp 2 --enable-elastic-ep", "--enable-elastic-ep needs data parallelism"),
        ("m -dp 2 --moe-backend aiter_mega_moe", "the MoE backend aiter_mega_moe needs data parallelism"),
    ],
)
def test_data_parallelism_stays_where_it_must(line: str, because: str) -> None:
    assert because in lowered(line)


GROUPS = [
    ("--nnodes 2", "--nnodes 2"),
    ("-n 2", "--nnodes 2"),
    ("-n2", "--nnodes 2"),
    ("--headless", "--headless"),
    ("-dpl 1", "--data-parallel-size-local 1"),
    ("-dpl 0", "--data-parallel-size-local 0"),
    ("-dpl 2 -dpr 2", "--data-parallel-start-rank 2"),
    ("-dpr 1", "--data-parallel-start-rank 1"),
    ("-dpn 0", "--data-parallel-rank"),
    ("-dph -dpl 1", "--data-parallel-size-local 1"),
    ("-dpe", "--data-parallel-external-lb"),
    ("-dpm -dpl 1", "--data-parallel-size-local 1"),
    ("--distributed-executor-backend external_launcher", "external_launcher"),
]


@pytest.mark.parametrize(("flags", "because"), GROUPS)
def test_a_member_of_a_group_keeps_its_parallelism(flags: str, because: str) -> None:
    for found in (lowered(f"m -dp 4 {flags}"), without_experts(f"m -dp 4 -ep {flags}")):
        assert because in found
        assert "one of a group, which it must not change alone" in found


def test_that_some_engines_run_elsewhere_is_said() -> None:
    assert lowered("m -dp 4 -dpl 2") == (
        "--data-parallel-size-local 2 makes this server one of a group, which it must not change alone: "
        "not all of the 4 engines run here"
    )


def test_data_parallelism_from_the_environment_is_left_alone() -> None:
    assert "VLLM_DP_SIZE" in lowered("m -dp 2", VLLM_DP_SIZE="2")
    assert "VLLM_DP_RANK" in without_experts("m -tp 2 -ep", VLLM_DP_RANK="0")


@pytest.mark.parametrize(
    "line",
    [
        "m -dp 2 --no-data-parallel-hybrid-lb",
        "m -dp 2 --distributed-executor-backend mp",
        "m -dp 2 --nnodes 1 --node-rank 0",
        "m -dp 2 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 13345",
        "m -dp 2 -dpl 2",
    ],
)
def test_flags_of_a_single_node_do_not_stop_it(line: str) -> None:
    assert lowered(line).startswith("m -dp 1")


@pytest.mark.parametrize(
    "flags",
    [
        "-ep --enable-eplb",
        "-ep --all2all-backend deepep_low_latency --enable-dbo",
        "-ep --moe-backend flashinfer_moe_ep_cutedsl",
        "--api-server-count 4",
    ],
)
def test_what_works_without_data_parallelism_stays(flags: str) -> None:
    assert lowered(f"m -dp 2 -tp 1 {flags}") == f"m -dp 1 -tp 2 {flags}"


def test_heads_that_do_not_divide_leave_the_rung_out() -> None:
    assert lowered("m -dp 2 -tp 2", heads(6)) == "6 attention heads cannot be split over 4 GPUs any further"
    assert lowered("m -dp 4", heads(3)) == "3 attention heads cannot be split over 4 GPUs any further"
    assert lowered("m -dp 2 -tp 2", heads(8, 3)) == (
        "8 attention heads with 3 KV heads cannot be split over 4 GPUs any further"
    )


def test_more_gpus_than_there_are_leave_the_rung_out() -> None:
    assert lowered("m -dp 2 -tp 2 -pp 2", gpus=4) == "8 GPUs are asked for, and this machine shows 4"
    assert lowered("m -dp 2 -tp 2 -pp 2", gpus=8) == "m -dp 1 -tp 4 -pp 2"


def test_slices_of_gpus_leave_the_rung_out() -> None:
    result = less_parallel(("m", "-dp", "2"), None, {}, machine(gpus=2, is_slice=True))
    assert result == LeftOut("less-parallel", "tensor parallelism does not reach over MIG slices")


def test_expert_parallelism_is_switched_off() -> None:
    width = ModelShape(moe_intermediate_size=64)
    assert without_experts("m -tp 2 --enable-expert-parallel --port 1", width) == "m -tp 2 --port 1"
    assert without_experts("m -tp 2", config={"enable-expert-parallel": True}) == "m -tp 2 --no-enable-expert-parallel"


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("m -tp 2", "expert parallelism is not in use"),
        ("m -ep", "expert parallelism does nothing on a single GPU"),
        ("m -ep -pp 2", "expert parallelism does nothing on a single GPU"),
        ("m -ep -tp two", "the parallel sizes are not plain numbers"),
        ("m -tp 3 -ep", "experts of width 64 cannot be split over 3 GPUs"),
        ("m -tp 2 -dp 3 -ep", "experts of width 64 cannot be split over 6 GPUs"),
        ("m -tp 2 -pcp 3 -ep", "experts of width 64 cannot be split over 6 GPUs"),
        ("m -tp 2 -ep --enable-eplb", "--enable-eplb needs expert parallelism"),
        ("m -tp 2 -ep --enable-elastic-ep", "--enable-elastic-ep needs expert parallelism"),
        (
            "m -tp 2 -ep --moe-backend deep_gemm_mega_moe",
            "the MoE backend deep_gemm_mega_moe needs expert parallelism",
        ),
        (
            "m -dp 2 -ep --all2all-backend deepep_low_latency",
            "--all2all-backend deepep_low_latency needs expert parallelism as long as there is data parallelism",
        ),
    ],
)
def test_expert_parallelism_stays_where_it_must(line: str, because: str) -> None:
    assert without_experts(line, ModelShape(moe_intermediate_size=64)) == because


@pytest.mark.parametrize(
    ("tensor", "model", "is_split"),
    [
        (8, ModelShape(moe_intermediate_size=2048, weight_format="fp8", block_size=128), True),
        (8, ModelShape(moe_intermediate_size=768, weight_format="fp8", block_size=128), False),
        (2, ModelShape(moe_intermediate_size=768, weight_format="fp8", block_size=128), True),
        (8, ModelShape(moe_intermediate_size=768, weight_format="bf16"), True),
        (8, ModelShape(moe_intermediate_size=2880, weight_format="mxfp4", block_size=32), True),
        (8, ModelShape(weight_format="fp8", block_size=128), True),
    ],
)
def test_each_share_of_an_expert_holds_whole_blocks(tensor: int, model: ModelShape, is_split: bool) -> None:
    line = f"m -tp {tensor}"
    unsplit = "8 shares of experts of width 768 are no multiples of 128, the block that shares a scale"
    assert without_experts(f"{line} -ep", model) == (line if is_split else unsplit)


@pytest.mark.parametrize(
    "line",
    [
        "m -tp 2 --distributed-executor-backend ray",
        "m -dp 4 -dpl 1 -dpb ray",
        "m -dp 2 -dpl 2 -dpm",
        "m -dp 1 -tp 2 --all2all-backend deepep_low_latency",
        "m -dp 2 --all2all-backend allgather_reducescatter",
    ],
)
def test_what_places_or_addresses_the_engines_does_not_keep_expert_parallelism_on(line: str) -> None:
    assert without_experts(f"{line} -ep") == line
