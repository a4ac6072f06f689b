"""What Ray says when a worker, a node or the cluster is gone, in the words of Ray 2.60 and of older reports."""

from __future__ import annotations

import pytest
from test_phrasings import ADDRESS, BEGUN, ENGINE, NO_START, SERVING, STOPPED, engine, judged

from safe_vllm.verdict.lines import clean, parse

GUESSES = (
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code "
    "2. End of "
    "file. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray "
    "stop --force was called, or (3) the worker crashed unexpectedly due to SIGSEGV or another unexpected "
    "error. If the "
    "process was killed by the kernel OOM killer (verifiable by checking for OOM in dmesg of the OOMing node), "
    "consider "
    "enabling resource isolation via --enable-resource-isolation to prevent node deaths by resource contention."
)
OLDER_GUESSES = (
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code "
    "2. End of "
    "file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory "
    "usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected "
    "errors."
)
RAYLET = (
    "\x1b[33m(raylet)\x1b[0m A worker died or was killed while executing a task by an unexpected system error. To "
    "troubleshoot the problem, check the logs for the dead worker. Lease ID: 00 Worker ID: 18 Node ID: b4 Worker IP "
    f"address: 192.0.2.2 Worker port: 40577 Worker PID: 23978 {GUESSES}\n"
)
DIED = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: "
    "RayWorkerProc\n"
    f"\tpid: 23978\n\tip: 192.0.2.2\nThe actor is dead because its worker process has died. {GUESSES}\n"
)
OLDER_DIED = (
    "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n"
    f"The actor is dead because its worker process has died. {OLDER_GUESSES}\n"
)
MARKED_DEAD = (
    "\x1b[33m(raylet)\x1b[0m The node with node id: 6a1f and address: 192.0.2.3 and node name: 192.0.2.3 has "
    "been marked "
    "dead because the detector has missed too many heartbeats from it. This can happen when a \t(1) raylet crashes "
    "unexpectedly (OOM, etc.) \t(2) raylet has lagging heartbeats due to slow network or busy workload.\n"
)
NODE_DIED = "ray.exceptions.ActorDiedError: The actor died because its node has died. Node Id: 6a1f\n"


def worker(text: str, level: str = "ERROR") -> str:
    """Return a record of a worker as Ray brings it to the driver."""
    return f"\x1b[36m(RayWorkerProc pid=23978, ip=192.0.2.2)\x1b[0m {level} 11-30 09:50:01 [worker.py:2] {text}\n"


def bare(*lines: str) -> str:
    """Return what native code of a worker writes, as Ray brings it."""
    return "".join(f"\x1b[36m(RayWorkerProc pid=23978)\x1b[0m {line}\n" for line in lines)


CRASH = bare(
    "*** SIGSEGV received at time=1796057313 on cpu 1 ***",
    "PC: @     0x7ff77db85ad8  (unknown)  (unknown)",
    "[2026-11-30 16:48:33,159 E 23978 23978] logging.cc:474: *** SIGSEGV received at time=1796057313 on cpu 1 ***",
    "Fatal Python error: Segmentation fault",
)


@pytest.mark.parametrize(
    "died", [DIED, OLDER_DIED, engine("RayWorkerProc rank=1 died unexpectedly, shutting down executor.")]
)
@pytest.mark.parametrize("begun", [BEGUN + ENGINE, SERVING])
def test_a_fault_in_a_workers_own_lines_is_the_cause_and_the_actors_death_repeats_it(begun: str, died: str) -> None:
    verdict = judged((begun + worker(ADDRESS) + RAYLET + died).encode(), 1)
    assert (verdict.fault, verdict.action) == ("illegal-memory-access", "retry-safer")
    assert verdict.evidence[0].process == "RayWorkerProc"
    assert {line.kind for line in verdict.evidence[1:]} == {"echo"}


def test_a_crash_of_a_worker_is_one_of_the_engine_though_the_raylet_speaks_first() -> None:
    verdict = judged((SERVING + RAYLET + CRASH + DIED).encode(), 1)
    assert (verdict.fault, verdict.action) == ("engine-signal", "retry-safer")
    assert verdict.evidence[0].text.endswith("*** SIGSEGV received at time=1796057313 on cpu 1 ***")


@pytest.mark.parametrize("died", [RAYLET + DIED, OLDER_DIED])
def test_what_ray_guesses_of_a_worker_that_left_no_word_is_not_believed(died: str) -> None:
    assert judged((SERVING + died).encode(), 1).action == "retry-same"
    for begun in (BEGUN + ENGINE, SERVING):
        verdict = judged((begun + died).encode(), 1)
        assert verdict.fault == "unknown"
        assert verdict.evidence[0].signature.startswith("death-")


@pytest.mark.parametrize(
    "said",
    [
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "ray.exceptions.OutOfMemoryError: 1 worker(s) were killed due to the node running low on memory. Memory "
        "on the node "
        "(IP: 192.0.2.2, ID: 53) was 2.88GB used / 23.54GB limit (0.122529)",
        "(raylet) [2026-01-02 10:10:10,123 E 3001 3001] (raylet) node_manager.cc:3041: 2 Workers (tasks / "
        "actors) killed due "
        "to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: ab, IP: 192.0.2.2)",
        "The actor is dead because its worker process has died. 1 worker(s) were killed due to the node running low on "
        "memory. Memory on the node (IP: 192.0.2.2, ID: 53) was 2.88GB used / 23.54GB limit (0.122529)",
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit type: "
        "NODE_OUT_OF_MEMORY Worker exit detail: Task was killed due to the node running low on memory.",
    ],
)
def test_ray_may_kill_a_worker_for_memory_and_then_says_so(said: str) -> None:
    starting = judged((BEGUN + ENGINE + f"{said}\n" + DIED).encode(), 1)
    serving = judged((SERVING + f"{said}\n" + DIED).encode(), 1)
    assert {starting.fault, serving.fault} == {"host-oom"}
    assert (starting.action, serving.action) == ("stop", "retry-same")


def test_workers_that_crashed_for_other_reasons_had_enough_memory() -> None:
    said = (
        "(raylet) node_manager.cc:3041: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 "
        "Workers crashed "
        "due to other reasons at node (ID: ab, IP: 192.0.2.2) over the last time period.\n"
    )
    verdict = judged((SERVING + said).encode(), 1)
    assert (verdict.fault, verdict.evidence[0].signature) == ("unknown", "death-of-a-ray-worker")


@pytest.mark.parametrize(
    "said",
    [
        MARKED_DEAD + NODE_DIED,
        NODE_DIED,
        "ray.exceptions.LocalRayletDiedError: The task's local raylet died. Check raylet.out for more information.\n",
        "(raylet) Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the "
        "user or "
        "system OOM killer, (2) Invalid memory access from Raylet causing SIGSEGV or SIGBUS, (3) Other termination "
        "signals. Last 20 lines of the Raylet logs:\n",
        "[2026-11-30 16:51:16,340 E 27868 28042] rpc_client.h:204: Failed to connect to GCS within 60 seconds. "
        "GCS may have "
        "been killed. It's either GCS is terminated by `ray stop` or is killed unexpectedly.\n",
    ],
)
def test_a_node_that_is_gone_is_no_fault_of_a_kernel(said: str) -> None:
    verdict = judged((SERVING + said).encode(), 1)
    assert (verdict.fault, verdict.action) == ("unknown", "retry-same")
    assert verdict.evidence[0].signature == "death-of-a-ray-node"


def test_a_node_that_is_gone_does_not_hide_the_fault_that_came_before() -> None:
    assert judged((SERVING + worker(ADDRESS) + MARKED_DEAD + NODE_DIED).encode(), 1).fault == "illegal-memory-access"


@pytest.mark.parametrize(
    "said",
    [
        "ValueError: Cannot provide a placement group requiring 16 GPUs (placement_group_specs=[{'GPU': 1.0}]) "
        "within 1800 seconds.",
        "ValueError: Cannot provide a placement group of placement_group_specs=[{'GPU': 1.0}] within 1800 "
        "seconds. See `ray status`",
        "ValueError: Not enough resources to allocate 4 DP ranks on DP master node 192.0.2.2, possible to fit 2 "
        "DP ranks",
        "ValueError: Not enough resources to allocate 8 placement groups, only created 4 placement groups. "
        "Available resources: {}",
        "ValueError: Not enough total available nodes (1) and devices per node (8) to satisfy required world size 16",
        "AssertionError: No nodes with resources found in Ray cluster.",
        "AssertionError: No GPU found in Ray cluster.",
        "ValueError: Placement group bundle cannot have more than 1 GPU.",
        "RuntimeError: driver node id 6a is not included in a placement group 7b. Node id -> bundles {}. You "
        "don't have enough "
        "GPUs available in a current node. Check `ray status`",
        "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to by "
        "setting `--address`",
        "[2026-11-30 10:00:00,340 E 27868 28042] gcs_rpc_client.h:179: Failed to connect to GCS at address "
        "192.0.2.9:6379 within 5 seconds.",
        "ray.exceptions.RpcError: Timed out while waiting for GCS to become available.",
        "RuntimeError: Version mismatch: The cluster was started with:",
    ],
)  # fmt: skip
def test_a_cluster_without_room_or_out_of_reach_is_not_asked_again(said: str) -> None:
    verdict = judged((BEGUN + ENGINE + NO_START + f"{said}\n").encode(), 1)
    assert (verdict.fault, verdict.action) == ("bad-config", "stop")
    assert verdict.evidence[0].signature.startswith("ray-")


def test_a_start_that_waits_for_what_no_node_has_is_no_hang() -> None:
    waits = (
        "(autoscaler +41s) Error: No available node types can fulfill resource request {'node:198.51.100.33': "
        "0.001, 'GPU': "
        "1.0}. Add suitable node types to this cluster to resolve this issue.\n"
    )
    assert judged((BEGUN + ENGINE + waits).encode(), 1).fault == "bad-config"


def test_a_worker_that_does_not_answer_in_time_hangs() -> None:
    said = engine(
        "ray.exceptions.RayChannelTimeoutError: System error: If the execution is expected to take a long time, "
        "increase "
        "RAY_CGRAPH_get_timeout which is currently 300 seconds. Otherwise, this may indicate that the execution "
        "is hanging."
    )
    verdict = judged((SERVING + said).encode(), 0)
    assert (verdict.fault, verdict.action) == ("hang", "retry-same")


@pytest.mark.parametrize(
    ("name", "said", "fault"),
    [
        ("RuntimeError", f"RuntimeError: {ADDRESS}", "illegal-memory-access"),
        ("ValueError", "ValueError: No available memory for the cache blocks.", "kv-cache"),
        ("OutOfMemoryError", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu-oom"),
    ],
)
def test_what_a_task_of_ray_raised_is_named_behind_its_traceback(name: str, said: str, fault: str) -> None:
    log = (
        f"ray.exceptions.RayTaskError({name}): \x1b[36mray::RayWorkerWrapper.execute_method()\x1b[39m (pid=26260, "
        "ip=192.0.2.2, actor_id=10, repr=<vllm.v1.executor.ray_utils.RayWorkerWrapper object at 0x7f>)\n"
        f'  File "/x/vllm/worker/worker_base.py", line 620, in execute_method\n    raise e\n{said}\n'
    )
    assert judged((BEGUN + ENGINE + NO_START + log).encode(), 1).fault == fault


@pytest.mark.parametrize(
    "remark",
    [
        "\x1b[32m [repeated 7x across cluster]\x1b[0m",
        "\x1b[32m [repeated 3x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log "
        "deduplication, or see https://docs.ray.io/en/master/ray-observability/user-guides/configure-logging.html"
        "#log-deduplication for more options.)\x1b[0m",
        " [repeated 7x across cluster]",
    ],
)
def test_a_line_that_several_workers_wrote_is_read_as_that_of_one(remark: str) -> None:
    """Here a signature that ends with the line: what Ray adds must not come between."""
    line = worker("MemoryError").rstrip("\n") + remark
    assert judged((BEGUN + ENGINE + line + "\n").encode(), 1).fault == "gpu-oom"
    assert parse(clean(line.encode())).message == "MemoryError"


def test_what_only_quotes_the_remark_stays_whole() -> None:
    assert clean(b"a [repeated 7x across cluster] b") == "a [repeated 7x across cluster] b"


def test_workers_that_end_with_their_owner_did_not_fail() -> None:
    ended = (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "The actor is dead because its owner has died. Owner Id: 01 Owner Ip address: 192.0.2.2 Owner worker "
        "exit type: "
        "INTENDED_USER_EXIT\n"
    )
    assert judged((SERVING + STOPPED + ended).encode(), 0).fault == "stopped"
