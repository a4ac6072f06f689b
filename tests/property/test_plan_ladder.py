"""Whatever the version, the machine and the command: a ladder holds only what the dialect knows, and nothing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from safe_vllm import known
from safe_vllm.machine import recorded
from safe_vllm.machine.facts import Machine, ModelShape, ProfileFile
from safe_vllm.machine.profile_files import read_profiles
from safe_vllm.plan.build import make_plan, scene_of
from safe_vllm.plan.flags import read, scan
from safe_vllm.plan.grammar import FLAGS, MOE_BACKEND, SAFETY_FLAGS
from safe_vllm.plan.intent import PINS, Intent
from safe_vllm.plan.json_flag import json_setting
from safe_vllm.plan.ladder import AS_ASKED, RUNG_NAMES, TRITON, Plan
from safe_vllm.plan.profile import Profile
from safe_vllm.plan.profile_reading import parse
from safe_vllm.plan.remembered import Broken, Held, Remembered
from safe_vllm.plan.settings import autotune, drafter_backend, moe_backend

PROFILES = [parse(file) for file in read_profiles(None, None, {})]
MACHINES = [recorded.read(str(path)) for path in sorted((Path(__file__).parents[1] / "golden/machines").glob("*.json"))]
VERSIONS = st.sampled_from(
    [None, "0.40.0", *(f"0.{minor}.0" for minor in range(11, 34)), "0.22.1rc1.dev255+g4dcd10eb0"]
)
FLASHINFER = st.sampled_from([None, "0.5.3", "0.6.5", "0.6.12", "0.6.16.post3", "0.7.2.post1"])
MODELS = st.none() | st.builds(
    ModelShape,
    attention_heads=st.sampled_from([None, 7, 16, 32]),
    kv_heads=st.sampled_from([None, 2, 8]),
    experts=st.sampled_from([None, 0, 128]),
    moe_intermediate_size=st.sampled_from([None, 512, 768, 1536]),
    weight_format=st.sampled_from([None, "bf16", "fp8", "nvfp4", "mxfp4", "mxfp8", "int4", "int8"]),
    block_size=st.sampled_from([None, 128]),
)
WORDS = st.lists(
    st.sampled_from(
        [
            ("-dp", "2"), ("-dp=4",), ("--data-parallel-size", "8"), ("-tp", "2"), ("-ep",), ("-dpl", "2"),
            ("--moe-backend", "flashinfer_trtllm"), ("--kernel-config", '{"moe_backend": "flashinfer_cutlass"}'),
            ("--kernel-config.enable_flashinfer_autotune=True",), ("-O0",), ("-O3",),
            ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}'),
            ("--speculative-config.method", "deepseek_mtp", "--speculative-config.moe_backend=flashinfer_trtllm"),
            ("--enable-eplb",), ("--headless",), ("--nnodes", "2"), ("--enable-dbo",),
            ("--max-num-batched-tokens", "512"), ("-cc.cache_dir=/data/graphs",), ("-dpr", "0"),
            ("--api-key", "secret"), ("--served-model-name", "x"),
        ]
    ),
    max_size=5,
    unique=True,
).map(lambda parts: ("org/model", *(word for part in parts for word in part)))  # fmt: skip


ENVIRONMENTS = st.dictionaries(
    st.sampled_from(
        ["VLLM_USE_FLASHINFER_MOE_FP16", "VLLM_USE_FLASHINFER_MOE_FP8", "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS", "HOME"]
    ),
    st.sampled_from(["1", "0"]),
)
OF_SETTINGS = {
    "moe-backend": ("VLLM_USE_FLASHINFER_MOE_FP16", "VLLM_USE_FLASHINFER_MOE_FP8", "VLLM_USE_DEEP_GEMM"),
    "autotune": ("VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS", "FLASHINFER_DISABLE_MOE_AUTOTUNE"),
    "workspace": ("VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE", "TRTLLM_MOE_MAX_WORKSPACE"),
    "caches": ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "DG_JIT_CACHE_DIR"),
}
"""Variables that belong to a setting, some of which the profiles below set."""
GREEDY = [
    parse(ProfileFile("greedy.yaml", {"name": "greedy", "description": "sets all that it can", **content}))
    for content in (
        {
            "moe_backend": "flashinfer_trtllm",
            "environment": {"VLLM_USE_DEEP_GEMM": "0", "VLLM_CACHE_ROOT": "/data", "NCCL_DEBUG": "INFO"},
            "ladder": [
                {"rung": "as-asked"},
                {
                    "rung": "no-autotune",
                    "skip_autotune_ops": ["fp4_gemm"],
                    "environment": {"TRTLLM_MOE_MAX_WORKSPACE": "1"},
                },
                {"rung": "triton", "max_num_batched_tokens": 1024, "attention_workspace_mib": 1024},
                {"rung": "less-parallel", "moe_backend": "safe", "environment": {"TRITON_CACHE_DIR": "/data/t"}},
                {"rung": "no-expert-parallel", "environment": {"FLASHINFER_DISABLE_MOE_AUTOTUNE": "1"}},
            ],
        },
    )
]
REMEMBERED = st.builds(
    Remembered,
    st.lists(st.sampled_from([*RUNG_NAMES, "none"]), unique=True).map(
        lambda names: tuple(Broken(name, "hang", "moe", "serving", 1e9) for name in names)
    ),
    st.none()
    | st.builds(Held, st.sampled_from([*RUNG_NAMES, "none"]), st.just(2e9), caches=st.sampled_from([None, "/o"])),
)


class Pinned(NamedTuple):
    plan: Plan
    words: tuple[str, ...]
    environment: dict[str, str]
    off_at: tuple[str, ...]


@st.composite
def pinned_plans(draw: st.DrawFn) -> Pinned:
    machine = draw(st.sampled_from(MACHINES))
    found = replace(machine.installation, vllm=draw(VERSIONS), flashinfer=draw(FLASHINFER), surface=None)
    machine = replace(machine, installation=found, model=draw(MODELS))
    words, environment = draw(WORDS), draw(ENVIRONMENTS)
    dialect = known.dialects().of(machine.installation.vllm)
    intent = Intent(words, pins=frozenset(draw(st.sets(st.sampled_from(PINS), min_size=1))))
    without = draw(st.sets(st.sampled_from(RUNG_NAMES), max_size=2))
    profile = draw(st.sampled_from([*PROFILES, *GREEDY, *GREEDY, *GREEDY]))
    scene = scene_of(intent, profile, machine=machine, dialect=dialect, environment=environment)
    plan = make_plan(intent, scene, "", without, known_bad=known.known_bad(), remembered=draw(REMEMBERED))
    return Pinned(plan, words, environment, dialect.levels_without_autotune)


def setting(
    pin: str, words: Sequence[str], environment: Mapping[str, str], off_at: Sequence[str]
) -> tuple[object, ...]:
    """Return what a setting is, in words and in variables."""
    reading = read(words)
    by_words: dict[str, tuple[object, ...]] = {
        "moe-backend": (moe_backend(words).value, drafter_backend(words)),
        "autotune": (autotune(words, None, off_at).value,),
        "workspace": (reading.number("--max-num-batched-tokens"),),
        "data-parallel-size": (
            reading.number("--data-parallel-size"),
            reading.number("--data-parallel-size-local"),
            reading.number("--data-parallel-start-rank"),
        ),
        "tensor-parallel-size": (reading.number("--tensor-parallel-size"),),
        "expert-parallel": (reading.setting("--enable-expert-parallel").value,),
        "caches": (json_setting(reading, "--compilation-config", "cache_dir"),),
    }
    return (*by_words[pin], *(environment.get(name) for name in OF_SETTINGS.get(pin, ())))


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, tuple[str, ...], Machine]:
    machine = draw(st.sampled_from(MACHINES))
    found = replace(machine.installation, vllm=draw(VERSIONS), flashinfer=draw(FLASHINFER), surface=None)
    machine = replace(machine, installation=found, model=draw(MODELS))
    words, profile = draw(WORDS), draw(st.sampled_from(PROFILES))
    return planned(words, profile, machine), words, machine


def planned(words: tuple[str, ...], profile: Profile, machine: Machine) -> Plan:
    intent, dialect = Intent(words), known.dialects().of(machine.installation.vllm)
    scene = scene_of(intent, profile, machine=machine, dialect=dialect, environment={})
    return make_plan(intent, scene, "", known_bad=known.known_bad())


def added(words: Sequence[str], asked: Sequence[str]) -> list[str]:
    """Return the flags that are spelled more often than they were asked for."""
    names = [place.flag.name for place in scan(asked)]
    found = []
    for place in scan(words):
        if place.flag.name in names:
            names.remove(place.flag.name)
        else:
            found.append(place.flag.name)
    return found


def others(line: Sequence[str]) -> list[str]:
    """Return the words that spell no safety setting."""
    covered = {
        at for place in scan(line) if place.flag.name in SAFETY_FLAGS for at in range(place.at, place.at + place.size)
    }
    return [word for at, word in enumerate(line) if at not in covered]


@given(plans())
def test_nothing_is_added_that_the_dialect_does_not_know(drawn: tuple[Plan, tuple[str, ...], Machine]) -> None:
    plan, words, machine = drawn
    dialect = known.dialects().of(machine.installation.vllm)
    asked = moe_backend(words).value
    for rung in plan.ladder.rungs:
        assert all(dialect.has(flag) for flag in added(rung.words, words))
        backend = moe_backend(rung.words).value
        assert backend in (*dialect.moe_backends, asked)
        if rung.name == TRITON and backend != asked and MOE_BACKEND in FLAGS:
            assert not str(backend).startswith("flashinfer")


@given(plans())
def test_no_two_rungs_run_the_same_and_all_keep_the_order_of_the_ladder(
    drawn: tuple[Plan, tuple[str, ...], Machine],
) -> None:
    plan, _, _ = drawn
    names = [rung.name for rung in plan.ladder.rungs]
    assert names == sorted(names, key=RUNG_NAMES.index)
    assert len({(rung.words, rung.environment) for rung in plan.ladder.rungs}) == len(names)
    assert {*names, *(left.name for left in plan.ladder.left_out)} == set(RUNG_NAMES)
    assert 0 <= plan.entry < len(names)
    assert bool(plan.entry) is bool(plan.entry_because)


@given(plans())
def test_every_word_that_is_no_safety_setting_survives_in_order(drawn: tuple[Plan, tuple[str, ...], Machine]) -> None:
    plan, words, _ = drawn
    assert all(others(rung.words) == others(words) for rung in plan.ladder.rungs)


@given(plans())
def test_no_rung_needs_other_gpus_than_were_asked_for(drawn: tuple[Plan, tuple[str, ...], Machine]) -> None:
    plan, words, _ = drawn

    def ranks(line: Sequence[str]) -> int:
        reading = read(line)
        return (reading.number("--data-parallel-size") or 1) * (reading.number("--tensor-parallel-size") or 1)

    assert all(ranks(rung.words) == ranks(words) for rung in plan.ladder.rungs)


@given(pinned_plans())
@settings(max_examples=300)
def test_a_pinned_setting_is_the_operators_at_every_rung(drawn: Pinned) -> None:
    for rung in drawn.plan.ladder.rungs:
        around = {**drawn.environment, **dict(rung.environment)}
        for pin in drawn.plan.pins:
            asked = setting(pin, drawn.words, drawn.environment, drawn.off_at)
            assert setting(pin, rung.words, around, drawn.off_at) == asked, (pin, rung)


@given(pinned_plans())
def test_with_pins_and_memory_all_other_words_survive_and_no_two_rungs_are_the_same(
    drawn: Pinned,
) -> None:
    plan = drawn.plan
    assert all(others(rung.words) == others(drawn.words) for rung in plan.ladder.rungs)
    names = [rung.name for rung in plan.ladder.rungs]
    assert names[0] == AS_ASKED
    assert names == sorted(names, key=RUNG_NAMES.index)
    assert len({(rung.words, rung.environment) for rung in plan.ladder.rungs}) == len(names)


@given(pinned_plans())
def test_a_launch_starts_at_a_rung_that_there_is_and_says_why_where_that_is_not_the_first(drawn: Pinned) -> None:
    plan = drawn.plan
    assert 0 <= plan.entry < len(plan.ladder.rungs)
    assert plan.entry == 0 or plan.entry_because
    assert not plan.forgets or plan.entry_because
    assert not (plan.caches and "caches" in plan.pins)
