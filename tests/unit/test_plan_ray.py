"""With Ray, the variables of a rung reach the workers by what the installed vLLM offers, or the plan says that not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from safe_vllm import known
from safe_vllm.machine.facts import Gpu, Installation, Machine, Surface
from safe_vllm.plan.build import make_plan, scene_of
from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.fresh_caches import with_fresh_caches
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Plan, Rung
from safe_vllm.plan.profile import Profile, RungEntry
from safe_vllm.plan.ray import reaching

ASKS = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
PREFIXES = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
V2 = "VLLM_USE_RAY_V2_EXECUTOR_BACKEND"
EXECUTOR = "m --distributed-executor-backend ray"
ENGINES = "m -dpb ray"
SET = (("CUDA_LIB_PATH", "/cuda"), ("VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE", "1"), ("FLASHINFER_X", "1"))
TWO = "CUDA_LIB_PATH,FLASHINFER_X"


def dialect(version: str | None, variables: frozenset[str] | None = None) -> Dialect:
    return known.dialects().of(version, Surface(variables=variables))


def asked(
    line: str,
    version: str | None = "0.17.1",
    environment: Mapping[str, str] | None = None,
    variables: tuple[tuple[str, str], ...] = SET,
    config: Mapping[str, object] | None = None,
) -> str | None:
    """Return which variables vLLM is asked to hand over; everything else of the rung must be as it was."""
    before = Rung("as-asked", tuple(line.split()), variables, "a note")
    after = reaching(before, environment or {}, dialect(version), config)
    ours = dict(after.environment)
    value = ours.pop(ASKS, None)
    unasked = {name: text for name, text in variables if name != ASKS}
    assert ours == unasked
    assert replace(after, environment=variables) == before
    return value


def plan_of(
    line: str,
    version: str | None,
    environment: Mapping[str, str] | None = None,
    ours: Mapping[str, str] | None = None,
    kept_back: Collection[str] = (),
    pins: frozenset[str] = frozenset(),
    gpus: int = 0,
) -> Plan:
    names = dict(SET) if ours is None else dict(ours)
    profile = Profile("p", "a profile", environment=names, cuda_lib_path="unset", ladder=(RungEntry("as-asked"),))
    machine = Machine("x86_64", gpus=(Gpu("NVIDIA H200", "9.0"),) * gpus, installation=Installation(vllm=version))
    intent = Intent(tuple(line.split()), pins=pins)
    scene = scene_of(
        intent,
        profile,
        machine=machine,
        dialect=dialect(version),
        environment=environment or {},
        kept_from_ray=kept_back,
    )
    return make_plan(intent, scene, "it fits")


def told(*arguments: object, **more: object) -> list[str]:
    """Return what the plan says of Ray."""
    return [note for note in plan_of(*arguments, **more).notes if "Ray" in note]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        EXECUTOR,
        "m --distributed_executor_backend=ray",
        "m --distributed-e ray",
        "m --distributed-executor-backend vllm.v1.executor.ray_executor.RayDistributedExecutor",
        ENGINES,
        "m -dpb=ray",
        "m --data-parallel-backend ray",
        "m --data_parallel_backend=ray",
        "m --data-parallel-b ray -dp 4",
        "m -dpb mp -dpb ray",
    ],
)
def test_every_spelling_of_ray_counts(line: str) -> None:
    assert asked(line) == TWO


@pytest.mark.parametrize(
    "key", ["distributed-executor-backend", "distributed_executor_backend", "data-parallel-backend"]
)
def test_ray_in_a_config_file_counts_unless_the_command_line_says_otherwise(key: str) -> None:
    assert asked("m", config={key: "ray"}) == TWO
    assert asked(f"m --{key} mp", config={key: "ray"}) is None


@pytest.mark.parametrize(
    "line",
    ["m", "m -dp 2 -tp 2", "m --distributed-executor-backend mp", "m -dpb mp", "m -dpb ray -dpb mp", "m -- -dpb ray",
     "ray", "m --served-model-name ray"],
)  # fmt: skip
@pytest.mark.parametrize("version", ["0.16.0", "0.17.1", "0.33.0"])
def test_without_ray_nothing_changes_and_nothing_is_said(line: str, version: str) -> None:
    assert asked(line, version) is None
    assert told(line, version) == []
    assert all(ASKS not in dict(rung.environment) for rung in plan_of(line, version).ladder.rungs)


EVERY = [f"0.{minor}.0" for minor in range(11, 34)] + ["0.17.1", "0.32.1", None]


def minor(version: str | None) -> int:
    return int(version.split(".")[1]) if version else 33


@pytest.mark.parametrize("version", EVERY)
def test_engines_of_ray_are_asked_for_from_0_17_on(version: str | None) -> None:
    assert asked(ENGINES, version) == (TWO if minor(version) >= 17 else None)


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("switch", [None, "0", "1"])
def test_an_executor_that_hands_over_everything_is_not_asked(version: str | None, switch: str | None) -> None:
    """RayExecutorV2 came with 0.20, became the one that is taken with 0.21, and is the only one from 0.33 on."""
    is_v2 = {None: minor(version) >= 21, "1": minor(version) >= 20, "0": minor(version) >= 33}[switch]
    environment = {V2: switch} if switch else {}
    assert asked(EXECUTOR, version, environment) == (None if is_v2 or minor(version) < 17 else TWO)


def test_a_class_is_taken_at_its_name() -> None:
    at = "m --distributed-executor-backend vllm.v1.executor."
    assert asked(f"{at}ray_executor_v2.RayExecutorV2", "0.20.0") is None
    assert asked(f"{at}ray_executor.RayDistributedExecutor", "0.32.0") == TWO
    assert asked(f"{at}multiproc_executor.MultiprocExecutor", "0.20.0") is None


@pytest.mark.parametrize(
    ("theirs", "value"),
    [
        ("MINE", f"MINE,{TWO}"),
        ("MINE, OTHER ,", f"MINE, OTHER,{TWO}"),
        (" CUDA_LIB_PATH", " CUDA_LIB_PATH,FLASHINFER_X"),
        ("", TWO),
        (",", TWO),
        ("FLASHINFER_X,CUDA_LIB_PATH", None),
        ("CUDA_LIB", f"CUDA_LIB,{TWO}"),
    ],
)
def test_what_the_operator_asks_for_comes_first_and_stays(theirs: str, value: str | None) -> None:
    assert asked(ENGINES, environment={ASKS: theirs}) == value


def test_what_a_beginning_of_the_operators_covers_is_not_asked_for_again() -> None:
    assert asked(ENGINES, environment={PREFIXES: "FLASH, CUDA_"}) is None
    assert asked(ENGINES, environment={PREFIXES: "FLASHINFER_"}) == "CUDA_LIB_PATH"


@pytest.mark.parametrize(
    ("name", "version", "is_asked"),
    [
        ("VLLM_ANYTHING", "0.17.0", False),
        ("NCCL_DEBUG", "0.17.0", False),
        ("HF_HOME", "0.33.0", False),
        ("PYTHONHASHSEED", "0.17.0", False),
        ("FLASH_ATTENTION_X", "0.26.0", True),
        ("FLASH_ATTENTION_X", "0.27.0", False),
        ("TRTLLM_MOE_MAX_WORKSPACE", "0.33.0", True),
        ("CUDA_VISIBLE_DEVICES", "0.33.0", False),
        ("VLLM_HOST_IP", "0.33.0", False),
    ],
)
def test_only_what_vllm_does_not_hand_over_by_itself_is_asked_for(name: str, version: str, is_asked: bool) -> None:
    assert asked(ENGINES, version, variables=((name, "1"),)) == (name if is_asked else None)


def test_a_rung_without_variables_asks_for_nothing() -> None:
    assert asked(ENGINES, variables=()) is None


def test_asking_twice_changes_nothing_and_more_is_added_behind() -> None:
    once = reaching(Rung("as-asked", tuple(ENGINES.split()), SET), {ASKS: "MINE"}, dialect("0.33.0"))
    assert reaching(once, {ASKS: "MINE"}, dialect("0.33.0")) == once
    more = replace(once, environment=(*once.environment, ("TRITON_CACHE_DIR", "/t")))
    again = dict(reaching(more, {ASKS: "MINE"}, dialect("0.33.0")).environment)
    assert again[ASKS] == f"MINE,{TWO},TRITON_CACHE_DIR"


def test_a_build_whose_source_lacks_the_means_is_not_asked() -> None:
    rung = Rung("as-asked", tuple(ENGINES.split()), SET)
    assert reaching(rung, {}, dialect("0.17.1", frozenset({"VLLM_CACHE_ROOT"}))) == rung


@pytest.mark.parametrize("line", [EXECUTOR, ENGINES])
def test_fresh_caches_reach_the_workers_too(line: str) -> None:
    made = dict(with_fresh_caches(Rung("as-asked", tuple(line.split())), "/ours", {}, dialect("0.17.1")).environment)
    assert set(made[ASKS].split(",")) == {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
    assert {made["TRITON_CACHE_DIR"], made["VLLM_CACHE_ROOT"]} == {"/ours/triton", "/ours/vllm"}


def test_every_rung_of_a_plan_asks_for_what_it_sets() -> None:
    entries = (RungEntry("as-asked"), RungEntry("no-autotune", environment={"FLASHINFER_DISABLE_MOE_AUTOTUNE": "1"}))
    profile = Profile("p", "a profile", environment={"FLASHINFER_X": "1"}, cuda_lib_path="unset", ladder=entries)
    machine = Machine("x86_64", installation=Installation(vllm="0.33.0"))
    intent = Intent(tuple(ENGINES.split()))
    scene = scene_of(intent, profile, machine=machine, dialect=dialect("0.33.0"), environment={ASKS: "MINE"})
    first, second = make_plan(intent, scene, "it fits").ladder.rungs
    assert dict(first.environment)[ASKS] == "MINE,FLASHINFER_X"
    assert dict(second.environment)[ASKS] == "MINE,FLASHINFER_X,FLASHINFER_DISABLE_MOE_AUTOTUNE"


@pytest.mark.parametrize("line", [EXECUTOR, ENGINES])
def test_the_plan_says_what_an_old_release_cannot_hand_over(line: str) -> None:
    assert told(line, "0.16.0") == [
        "vLLM 0.16.0 cannot hand CUDA_LIB_PATH and FLASHINFER_X to Ray's workers: where Ray runs already, set them on "
        "each node before Ray is started",
        "where Ray runs already, fresh caches do not reach its workers: vLLM 0.16.0 cannot hand on "
        "TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR",
    ]


def test_of_a_single_variable_the_plan_speaks_in_the_singular() -> None:
    found = told(ENGINES, "0.11.0", ours={"FLASHINFER_X": "1"}, pins=frozenset({"caches"}))
    assert found == [
        "vLLM 0.11.0 cannot hand FLASHINFER_X to Ray's workers: where Ray runs already, set it on each node before Ray "
        "is started"
    ]


def test_what_vllm_registers_is_handed_over_by_old_releases_as_well() -> None:
    assert told(ENGINES, "0.11.0", ours={"VLLM_USE_DEEP_GEMM": "0"}, pins=frozenset({"caches"})) == []


@pytest.mark.parametrize("version", ["0.16.0", "0.33.0"])
def test_what_nobody_reads_is_not_missed(version: str) -> None:
    assert told(EXECUTOR, version, ours={"TRTLLM_MOE_MAX_WORKSPACE": "1"}, pins=frozenset({"caches"})) == []


def test_where_all_is_asked_for_there_is_nothing_to_say() -> None:
    assert told(ENGINES, "0.17.1") == []
    assert told(EXECUTOR, "0.19.1") == []


@pytest.mark.parametrize(("line", "version"), [(EXECUTOR, "0.33.0"), (EXECUTOR, "0.21.0"), (ENGINES, "0.33.0")])
def test_that_a_value_of_a_node_stands_is_said_where_it_does(line: str, version: str) -> None:
    pins = frozenset({"caches"})
    assert told(line, version, ours={"FLASHINFER_X": "1"}, pins=pins) == [
        "Ray's workers get FLASHINFER_X only where their node has not set it already"
    ]
    assert told(f"{line} --distributed-executor-backend mp", "0.33.0", ours={"FLASHINFER_X": "1"}) == []


@pytest.mark.parametrize(("line", "version"), [(EXECUTOR, "0.33.0"), (EXECUTOR, "0.21.0"), (ENGINES, "0.33.0")])
def test_a_cache_that_a_worker_has_chosen_by_itself_before_is_not_called_fresh(line: str, version: str) -> None:
    """Importing vLLM sets TORCHINDUCTOR_CACHE_DIR, and RayExecutorV2 hands over its variables after that."""
    lost = (
        f"where Ray runs already, fresh caches do not reach its workers: vLLM {version} cannot hand on "
        "TORCHINDUCTOR_CACHE_DIR"
    )
    assert told(line, version, ours={}) == [lost]
    assert told(f"{line} --distributed-executor-backend mp", version, ours={}) == []
    assert told(line, version, ours={}, environment={V2: "0"}) == ([lost] if version == "0.33.0" else [])


def test_a_variable_of_a_rung_that_a_worker_sets_before_is_lost() -> None:
    assert told(EXECUTOR, "0.33.0", ours={"TORCHINDUCTOR_CACHE_DIR": "/x"}) == [
        "vLLM 0.33.0 cannot hand TORCHINDUCTOR_CACHE_DIR to Ray's workers: where Ray runs already, set it on each node "
        "before Ray is started"
    ]


def test_what_the_operators_file_excludes_is_said_and_nothing_else_of_it() -> None:
    kept_back = ["A", "B", "ELSE", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"]
    assert told(EXECUTOR, "0.33.0", ours={"A": "1", "B": "1"}, kept_back=kept_back) == [
        "Ray's workers do not get A, B, TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR: "
        "ray_non_carry_over_env_vars.json excludes them"
    ]
    assert told("m", "0.33.0", kept_back=["CUDA_LIB_PATH"]) == []


@pytest.mark.parametrize("version", ["0.16.0", "0.17.1", "0.33.0"])
@pytest.mark.parametrize("line", [EXECUTOR, ENGINES])
def test_what_each_worker_has_of_its_own_is_said_once(line: str, version: str) -> None:
    assert told(line, version, ours={"CUDA_VISIBLE_DEVICES": "0"}, pins=frozenset({"caches"})) == [
        "Ray's workers do not get CUDA_VISIBLE_DEVICES: each has its own"
    ]


def test_the_first_release_takes_ray_by_itself_for_more_gpus_than_there_are() -> None:
    ours, pins = {"FLASHINFER_X": "1"}, frozenset({"caches"})
    assert len(told("m -tp 4", "0.11.0", ours=ours, pins=pins, gpus=2)) == 1
    assert told("m -tp 2 -dp 2", "0.11.0", ours=ours, pins=pins, gpus=2) == []
    assert told("m -tp 4", "0.11.0", ours=ours, pins=pins) == []
    assert told("m -tp 4 --distributed-executor-backend mp", "0.11.0", ours=ours, pins=pins, gpus=2) == []
    assert told("m -tp 4", "0.11.1", ours=ours, pins=pins, gpus=2) == []


def test_the_means_are_told_as_read_and_never_as_unread() -> None:
    for version in ("0.17.1", "0.33.0"):
        assert plan_of(ENGINES, version).unread.isdisjoint({ASKS, "CUDA_LIB_PATH"})


def test_every_fact_about_ray_has_a_link_into_a_release() -> None:
    ray = known.dialects().table.ray
    for entry in (*ray.copies, *ray.whole, ray.by_size):
        assert entry.link.startswith("https://github.com/vllm-project/vllm/blob/v0.")
