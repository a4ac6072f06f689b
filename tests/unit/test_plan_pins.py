"""P3: a setting that is pinned is the operator's at every rung, in every spelling, and the plan says what it cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from safe_vllm import known
from safe_vllm.machine.facts import Gpu, Installation, Machine, ModelShape, ProfileFile
from safe_vllm.plan.build import make_plan, scene_of
from safe_vllm.plan.intent import PINS, Intent
from safe_vllm.plan.ladder import Plan, Rung
from safe_vllm.plan.profile_reading import parse

B200 = Machine(
    "x86_64",
    gpus=(Gpu("NVIDIA B200", "10.0"),) * 4,
    has_driver=True,
    installation=Installation(vllm="0.32.0", torch="2.13.0", torch_cuda="13.0", flashinfer="0.7.0.post1"),
    model=ModelShape(experts=128, weight_format="bf16", attention_heads=32, kv_heads=8, moe_intermediate_size=1024),
)
NAMES = ("as-asked", "no-autotune", "triton", "less-parallel", "no-expert-parallel")
OFF = "--no-enable-flashinfer-autotune"
WIDE = "m -dp 2 -tp 2 -ep"


def plan(
    line: str,
    *pins: str,
    vllm: str = "0.32.0",
    environment: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
    without: Collection[str] = (),
    profile: Mapping[str, object] | None = None,
    **rungs: Any,
) -> Plan:
    ladder = [{"rung": name, **rungs.get(name.replace("-", "_"), {})} for name in NAMES]
    content = {"name": "mine", "description": "mine", "ladder": ladder, **(profile or {})}
    machine = replace(B200, installation=replace(B200.installation, vllm=vllm))
    intent = Intent(tuple(line.split()), pins=frozenset(pins))
    scene = scene_of(
        intent,
        parse(ProfileFile("mine.yaml", content)),
        machine=machine,
        dialect=known.dialects().of(vllm),
        environment=environment or {},
        config=config,
    )
    return make_plan(intent, scene, "", without)


def rung(plan: Plan, name: str) -> Rung:
    return next(rung for rung in plan.ladder.rungs if rung.name == name)


def names(plan: Plan) -> list[str]:
    return [rung.name for rung in plan.ladder.rungs]


def because(plan: Plan, name: str) -> str:
    return next(left.because for left in plan.ladder.left_out if left.name == name)


@pytest.mark.parametrize(
    ("pin", "gone"),
    [
        ("moe-backend", {"triton"}),
        ("autotune", {"no-autotune"}),
        ("data-parallel-size", {"less-parallel"}),
        ("tensor-parallel-size", {"less-parallel"}),
        ("expert-parallel", {"no-expert-parallel"}),
        ("workspace", set()),
        ("caches", set()),
    ],
)
def test_p3_a_rung_that_would_change_what_is_pinned_is_left_out_with_the_reason(pin: str, gone: set[str]) -> None:
    made = plan(WIDE, pin)
    assert {left.name for left in made.ladder.left_out} == gone
    assert [because(made, name) for name in gone] == [f"it would change {pin}, which is pinned with --pin"] * len(gone)
    assert made.pins == {pin}


def test_the_rungs_below_build_on_what_is_left() -> None:
    assert rung(plan(WIDE, "autotune"), "triton").words == (*WIDE.split(), "--moe-backend", "triton")
    assert rung(plan(WIDE, "moe-backend"), "less-parallel").words == tuple(f"m -dp 1 -tp 4 -ep {OFF}".split())


def test_with_everything_pinned_only_what_was_asked_for_is_left() -> None:
    made = plan(WIDE, *PINS)
    assert names(made) == ["as-asked"]
    both = "data-parallel-size and tensor-parallel-size, which are pinned with --pin"
    assert because(made, "less-parallel") == f"it would change {both}"


@pytest.mark.parametrize(
    ("line", "config"),
    [
        ("m --moe-backend=flashinfer_trtllm", None),
        ("m --moe_back FLASHINFER_TRTLLM", None),
        ("m --kernel-config.moe_backend=flashinfer_trtllm", None),
        ('m --kernel-config {"moe_backend":"flashinfer_trtllm"}', None),
        ("m --config f.yaml", {"moe-backend": "flashinfer_trtllm"}),
    ],
)
def test_all_spellings_of_a_pinned_backend_count(line: str, config: Mapping[str, object] | None) -> None:
    assert "triton" in names(plan(line, config=config))
    assert because(plan(line, "moe-backend", config=config), "triton").startswith("it would change moe-backend")


def test_a_backend_that_no_rung_would_change_is_no_reason_to_leave_one_out() -> None:
    line = "m --moe-backend triton"
    made = plan(line, "moe-backend", triton={"max_num_batched_tokens": 2048})
    assert rung(made, "triton").words == (*line.split(), OFF, "--max-num-batched-tokens", "2048")


def test_a_rung_for_which_the_profile_names_the_operators_own_backend_stays() -> None:
    own = {"moe_backend": "marlin", "max_num_batched_tokens": 2048}
    made = plan("m --moe-backend marlin", "moe-backend", triton=own)
    assert rung(made, "triton").words == (*f"m --moe-backend marlin {OFF}".split(), "--max-num-batched-tokens", "2048")
    assert not [note for note in made.notes if "pinned" in note]


def test_the_backend_of_a_drafter_is_pinned_with_that_of_the_model() -> None:
    line = 'm --moe-backend triton --speculative-config {"method":"eagle","moe_backend":"flashinfer_trtllm"}'
    assert "triton" in names(plan(line))
    assert because(plan(line, "moe-backend"), "triton") == "it would change moe-backend, which is pinned with --pin"


def test_the_old_variables_of_flashinfers_experts_are_pinned_with_the_backend() -> None:
    old: dict[str, Any] = {"vllm": "0.15.1", "environment": {"VLLM_USE_FLASHINFER_MOE_FP16": "1"}}
    assert dict(rung(plan("m", **old), "triton").environment) == {"VLLM_USE_FLASHINFER_MOE_FP16": "0"}
    assert (
        because(plan("m", "moe-backend", **old), "triton") == "it would change moe-backend, which is pinned with --pin"
    )


def test_operators_that_are_not_tuned_count_as_autotune() -> None:
    skipping = {"skip_autotune_ops": ["flashinfer::trtllm_bf16_moe"]}
    assert rung(plan("m", no_autotune=skipping), "no-autotune").environment
    made = plan("m", "autotune", no_autotune=skipping)
    assert because(made, "no-autotune") == "it would change autotune, which is pinned with --pin"
    assert rung(made, "triton").environment == ()


def test_nothing_is_said_of_operators_that_could_not_be_skipped_where_autotune_is_pinned() -> None:
    skipping = {"vllm": "0.25.0", "no_autotune": {"skip_autotune_ops": ["flashinfer::trtllm_bf16_moe"]}}
    assert [note for note in plan("m", **skipping).notes if "all autotune is off instead" in note]
    assert not [note for note in plan("m", "autotune", **skipping).notes if "skip_autotune_ops" in note]


def test_of_a_rung_that_changes_workspace_as_well_the_rest_stays() -> None:
    caps = {"max_num_batched_tokens": 2048, "attention_workspace_mib": 1024}
    caps |= {"environment": {"TRTLLM_MOE_MAX_WORKSPACE": "8192", "NCCL_DEBUG": "INFO"}}
    whole = rung(plan("m", triton=caps), "triton")
    assert "--max-num-batched-tokens" in whole.words
    assert "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE" in dict(whole.environment)
    made = plan("m", "workspace", triton=caps)
    assert rung(made, "triton").words == ("m", OFF, "--moe-backend", "triton")
    assert rung(made, "triton").environment == (("NCCL_DEBUG", "INFO"),)
    assert made.notes[-3:] == (
        "TRTLLM_MOE_MAX_WORKSPACE of the profile is not set: workspace is pinned",
        "max_num_batched_tokens of the profile is not used at triton: workspace is pinned",
        "attention_workspace_mib of the profile is not used at triton: workspace is pinned",
    )


def test_a_rung_of_which_nothing_is_left_says_that_it_is_the_pins() -> None:
    line = f"m {OFF} --moe-backend triton"
    assert "triton" in names(plan(line, triton={"max_num_batched_tokens": 2048}))
    made = plan(line, "workspace", triton={"max_num_batched_tokens": 2048})
    assert because(made, "triton") == (
        "it would change nothing but what is pinned with --pin: same command as as-asked"
    )


def test_a_backend_that_another_rung_adds_is_dropped_and_its_own_step_stays() -> None:
    added = {"moe_backend": "cutlass"}
    assert rung(plan("m", no_autotune=added), "no-autotune").words == ("m", OFF, "--moe-backend", "cutlass")
    made = plan("m", "moe-backend", no_autotune=added)
    assert rung(made, "no-autotune").words == ("m", OFF)
    assert made.notes[-1] == "moe_backend of the profile is not used at no-autotune: moe-backend is pinned"


def test_the_profile_changes_nothing_pinned_from_the_start_either() -> None:
    profile = {"moe_backend": "flashinfer_trtllm", "environment": {"VLLM_USE_DEEP_GEMM": "0", "NCCL_DEBUG": "INFO"}}
    assert rung(plan("m", profile=profile), "as-asked").words == ("m", "--moe-backend", "flashinfer_trtllm")
    made = plan("m", "moe-backend", profile=profile)
    assert rung(made, "as-asked") == Rung("as-asked", ("m",), (("NCCL_DEBUG", "INFO"),))
    assert made.notes[-2:] == (
        "moe_backend flashinfer_trtllm of the profile is not used: moe-backend is pinned",
        "VLLM_USE_DEEP_GEMM of the profile is not set: moe-backend is pinned",
    )


def test_what_the_profile_would_not_have_set_anyway_is_not_told() -> None:
    profile = {"moe_backend": "flashinfer_trtllm", "environment": {"VLLM_USE_DEEP_GEMM": "0"}}
    made = plan("m --moe-backend cutlass", "moe-backend", profile=profile, environment={"VLLM_USE_DEEP_GEMM": "1"})
    assert not [note for note in made.notes if "pinned" in note]


@pytest.mark.parametrize(
    ("variable", "pin"),
    [
        ("VLLM_DP_SIZE", "data-parallel-size"),
        ("VLLM_CACHE_ROOT", "caches"),
        ("TRITON_CACHE_DIR", "caches"),
        ("FLASHINFER_DISABLE_MOE_AUTOTUNE", "autotune"),
        ("VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE", "workspace"),
    ],
)
def test_a_variable_of_the_profile_belongs_to_a_setting(variable: str, pin: str) -> None:
    profile = {"environment": {variable: "7"}}
    assert rung(plan("m", profile=profile), "as-asked").environment == ((variable, "7"),)
    assert rung(plan("m", pin, profile=profile), "as-asked").environment == ()
    others = [other for other in PINS if other != pin]
    assert rung(plan("m", *others, profile=profile), "as-asked").environment == ((variable, "7"),)


def test_a_pinned_backend_that_was_refused_is_not_changed_below() -> None:
    line = "m --moe-backend=flashinfer_trtllm"
    made = plan(line, "moe-backend", without={"as-asked"})
    assert rung(made, "no-autotune").words == (*line.split(), OFF)


def test_without_pins_nothing_is_said_of_them() -> None:
    made = plan(WIDE)
    assert names(made) == list(NAMES)
    assert made.pins == frozenset()
    assert not [note for note in made.notes if "pinned" in note]
