"""A server that is one of a group keeps its parallel shape, however it is told so, and the plan gives the reason."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from safe_vllm.machine.facts import Machine
from safe_vllm.plan.flags import read
from safe_vllm.plan.groups import addressed, group, is_ray, placed_by_ray
from safe_vllm.plan.ladder import LeftOut
from safe_vllm.plan.parallelism import less_parallel, no_expert_parallel

ALONE = "which it must not change alone"


def why(line: str, config: Mapping[str, object] | None = None, **environment: str) -> tuple[str, str]:
    """Return why neither rung that changes the shape is there."""
    words, machine = tuple(f"m -dp 4 -tp 2 -ep {line}".split()), Machine("x86_64")
    rungs = (step(words, config, environment, machine) for step in (less_parallel, no_expert_parallel))
    less, no_experts = (rung.because if isinstance(rung, LeftOut) else "" for rung in rungs)
    return less, no_experts


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("--headless", "--headless"),
        ("--head", "--headless"),
        ("--nnodes 2", "--nnodes 2"),
        ("--nnodes=4", "--nnodes 4"),
        ("-n 2", "--nnodes 2"),
        ("-n=2", "--nnodes 2"),
        ("-n2", "--nnodes 2"),
        ("--nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29501", "--nnodes 2"),
        ("--node-rank 1", "--node-rank 1"),
        ("--node_rank=3", "--node-rank 3"),
        ("-r 1", "--node-rank 1"),
        ("-r1", "--node-rank 1"),
        ("-dpn 0", "--data-parallel-rank"),
        ("-dpn=3", "--data-parallel-rank"),
        ("--data_parallel_rank 0", "--data-parallel-rank"),
        ("--data-parallel-ra=1", "--data-parallel-rank"),
        ("-dpe", "--data-parallel-external-lb"),
        ("--data-parallel-external-lb", "--data-parallel-external-lb"),
        ("--data_parallel_external_lb", "--data-parallel-external-lb"),
        ("-dpr 2", "--data-parallel-start-rank 2"),
        ("--data-parallel-start-rank=2 -dpl 2", "--data-parallel-start-rank 2"),
        ("-dpl 2", "--data-parallel-size-local 2"),
        ("--data-parallel-size-local=1", "--data-parallel-size-local 1"),
        ("-dpl 0 --data-parallel-address 10.0.0.1", "--data-parallel-size-local 0"),
        ("-dph -dpl 2", "--data-parallel-size-local 2"),
        ("--data-parallel-hybrid-lb -dpl 2 -dpr 2", "--data-parallel-start-rank 2"),
        ("-dpm -dpl 2", "--data-parallel-size-local 2"),
        ("-dpl 2 --distributed-executor-backend ray", "--data-parallel-size-local 2"),
        ("--headless -dpb ray", "--headless"),
        ("--distributed-executor-backend external_launcher", "external_launcher"),
    ],
)
def test_a_member_of_a_group_keeps_dp_ep_and_tp(line: str, because: str) -> None:
    for found in why(line):
        assert because in found
        assert ALONE in found


@pytest.mark.parametrize(
    ("config", "because"),
    [
        ({"headless": True}, "--headless"),
        ({"nnodes": 2}, "--nnodes 2"),
        ({"node-rank": 1}, "--node-rank 1"),
        ({"data-parallel-rank": 0}, "--data-parallel-rank"),
        ({"data_parallel_external_lb": True}, "--data-parallel-external-lb"),
        ({"data_parallel_size_local": 1}, "--data-parallel-size-local 1"),
        ({"data-parallel-start-rank": 2}, "--data-parallel-start-rank 2"),
        ({"distributed-executor-backend": "external_launcher"}, "external_launcher"),
    ],
)
def test_a_file_makes_it_a_member_as_well(config: Mapping[str, object], because: str) -> None:
    for found in why("", config):
        assert because in found
        assert ALONE in found


@pytest.mark.parametrize(
    "name",
    ["VLLM_DP_SIZE", "VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL", "VLLM_DP_MASTER_IP", "VLLM_DP_MASTER_PORT"],
)
def test_data_parallelism_from_the_environment_makes_it_a_member(name: str) -> None:
    for found in why("", **{name: "1"}):
        assert found == f"{name} in the environment sets data parallelism from outside"


def test_one_of_several_processes_of_torchrun_is_a_member() -> None:
    for found in why("", TORCHELASTIC_RUN_ID="none", WORLD_SIZE="8", RANK="0", LOCAL_RANK="0", MASTER_ADDR="10.0.0.1"):
        assert found == f"WORLD_SIZE 8 of torchrun makes this server one of a group, {ALONE}"


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ("", {}),
        ("--no-data-parallel-external-lb", {}),
        ("--nnodes 1 --node-rank 0 --master-addr 10.0.0.1", {}),
        ("--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 13345 -dpl 4", {}),
        ("-dpr 0 -dpl 4", {}),
        # set for every pod of a training operator, and read by vLLM only with an external launcher
        ("", {"WORLD_SIZE": "8", "RANK": "0", "MASTER_ADDR": "10.0.0.1"}),
        ("", {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "1"}),
        ("", {"VLLM_HOST_IP": "10.0.0.1"}),
    ],
)
def test_a_server_on_its_own_is_none(line: str, environment: Mapping[str, str]) -> None:
    assert why(line, **environment) == ("", "")


@pytest.mark.parametrize("line", ["-dph -dpl 4", "-dpm -dpl 4", "--data-parallel-hybrid-lb -dpl 4"])
def test_where_a_balancer_addresses_the_ranks_only_their_number_stays(line: str) -> None:
    less, no_experts = why(line)
    assert less.endswith("makes a balancer outside address each rank")
    assert no_experts == ""


@pytest.mark.parametrize(
    "line",
    [
        "-dpb ray",
        "-dpb ray -dpl 1",
        "--distributed-executor-backend ray",
        "--distributed-executor-backend=ray",
        "--distributed-executor-backend vllm.v1.executor.ray_executor_v2.RayExecutorV2",
    ],
)
def test_what_ray_places_on_its_nodes_keeps_its_number_and_may_lose_expert_parallelism(line: str) -> None:
    """One command starts all engines of a Ray cluster, so there is nobody to agree with; the GPUs are not seen here."""
    less, no_experts = why(line)
    assert less.startswith("Ray places the engines (--d")
    assert no_experts == ""


def test_the_reason_never_shows_more_of_a_value_than_that_it_is_ray() -> None:
    assert "secret" not in why("--distributed-executor-backend secret.RayExecutor")[0]


@pytest.mark.parametrize(
    ("backend", "is_it"),
    [("ray", True), ("a.b.RayExecutor", True), ("mp", False), (None, False), (False, False), ("Ray", False),
     ("a.b.MyExecutor", False), ("array", False), ("x.arrays", False)],
)  # fmt: skip
def test_ray_is_told_by_its_name_or_by_that_of_a_class(backend: str | bool | None, is_it: bool) -> None:
    assert is_ray(backend) is is_it


def test_nothing_is_said_of_a_plain_command() -> None:
    reading = read(("m",))
    assert (group(reading, {}), addressed(reading), placed_by_ray(reading)) == (None, None, None)
