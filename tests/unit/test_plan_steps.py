"""What the rungs do with weights, drafters, old variables and caps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from safe_vllm import known
from safe_vllm.machine.facts import Gpu, Installation, Machine, ModelShape, ProfileFile
from safe_vllm.plan.build import make_plan, scene_of
from safe_vllm.plan.costs import costs
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import COSTS, Plan, Rung
from safe_vllm.plan.profile_reading import parse

B200 = Machine(
    "x86_64",
    gpus=(Gpu("NVIDIA B200", "10.0"),),
    has_driver=True,
    installation=Installation(vllm="0.32.0", torch="2.13.0", torch_cuda="13.0", flashinfer="0.7.0.post1"),
    model=ModelShape(experts=128, weight_format="bf16"),
)
MIB = 1024 * 1024


def plan(
    words: tuple[str, ...],
    machine: Machine = B200,
    environment: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
    **rungs: object,
) -> Plan:
    names = ("as-asked", "no-autotune", "triton", "less-parallel", "no-expert-parallel")
    ladder = [{"rung": name, **rungs.get(name.replace("-", "_"), {})} for name in names]  # type: ignore[dict-item]
    profile = parse(ProfileFile("mine.yaml", {"name": "mine", "description": "mine", "ladder": ladder}))
    dialect = known.dialects().of(machine.installation.vllm)
    intent = Intent(words)
    scene = scene_of(intent, profile, machine=machine, dialect=dialect, environment=environment or {}, config=config)
    return make_plan(intent, scene, "", known_bad=known.known_bad())


def rung(plan: Plan, name: str) -> Rung:
    return next(rung for rung in plan.ladder.rungs if rung.name == name)


def because(plan: Plan, name: str) -> str:
    return next(left.because for left in plan.ladder.left_out if left.name == name)


def with_model(weight_format: str | None, capability: str = "10.0", vllm: str = "0.32.0") -> Machine:
    shape = ModelShape(experts=128, weight_format=weight_format)  # type: ignore[arg-type]
    installed = replace(B200.installation, vllm=vllm)
    return replace(B200, gpus=(Gpu("a GPU", capability),), installation=installed, model=shape)


@pytest.mark.parametrize(
    ("weight_format", "capability", "vllm", "backend"),
    [
        ("bf16", "10.0", "0.32.0", "triton"),
        ("fp8", "9.0", "0.23.0", "triton"),
        ("nvfp4", "10.0", "0.32.0", "cutlass"),
        ("nvfp4", "9.0", "0.32.0", "marlin"),
        ("mxfp4", "9.0", "0.23.0", "triton"),
        ("int4", "9.0", "0.32.0", "marlin"),
        ("int8", "9.0", "0.32.0", "triton"),
        (None, "10.0", "0.32.0", "triton"),
    ],
)
def test_the_safe_backend_is_the_one_for_the_weights(
    weight_format: str | None, capability: str, vllm: str, backend: str
) -> None:
    found = plan(("m",), with_model(weight_format, capability, vllm))
    assert rung(found, "triton").words[-2:] == ("--moe-backend", backend)


def test_where_no_backend_is_safe_the_rung_is_left_out() -> None:
    found = plan(("m",), with_model("mxfp8", "10.0", "0.18.0"))
    assert because(found, "triton") == (
        "no MoE backend without FlashInfer takes mxfp8 weights on compute capability 10.0 in this version of vLLM"
    )


def test_a_backend_of_the_profile_that_vllm_does_not_take_leaves_the_rung_out() -> None:
    found = plan(("m",), triton={"moe_backend": "batched_triton"}, machine=with_model("bf16", vllm="0.23.0"))
    assert because(found, "triton").startswith("--moe-backend batched_triton is none of those that vLLM takes: auto, ")


def test_a_model_that_is_not_here_is_judged_by_its_name() -> None:
    found = plan(("nvidia/Qwen3.5-397B-A17B-NVFP4",), replace(B200, model=None))
    assert rung(found, "triton").words[-1] == "cutlass"
    assert any("by its name taken for a model with nvfp4 experts" in note for note in found.notes)


def test_a_drafter_of_quantised_weights_gets_the_backend_of_unquantised_ones_in_the_operators_own_spelling() -> None:
    asked = ("m", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}', "--seed", "1")
    words = rung(plan(asked, with_model("nvfp4")), "triton").words
    assert json.loads(words[2]) == {"method": "mtp", "num_speculative_tokens": 1, "moe_backend": "triton"}
    assert words[3:] == ("--seed", "1", "--no-enable-flashinfer-autotune", "--moe-backend", "cutlass")


def test_a_drafter_spelled_in_dots_keeps_its_dots() -> None:
    asked = ("m", "--speculative-config.method=deepseek_mtp")
    words = rung(plan(asked, with_model("nvfp4")), "triton").words
    assert words[-1] == "--speculative-config.moe_backend=triton"


def test_a_drafter_named_by_a_flag_of_its_own_gets_one_key() -> None:
    words = rung(plan(("m", "--spec-method", "mtp"), with_model("nvfp4")), "triton").words
    assert words[-1] == "--speculative-config.moe_backend=triton"


def test_a_drafter_of_the_config_file_keeps_its_other_keys() -> None:
    config = {"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}}
    words = rung(plan(("m", "--config", "c.yaml"), with_model("nvfp4"), config=config), "triton").words
    assert words[-2] == "--speculative-config"
    assert json.loads(words[-1]) == {"method": "mtp", "num_speculative_tokens": 2, "moe_backend": "triton"}


def test_a_drafter_that_runs_flashinfers_experts_leaves_them() -> None:
    asked = ("m", "--speculative-config", '{"method": "eagle", "moe_backend": "flashinfer_trtllm"}')
    words = rung(plan(asked), "triton").words
    assert json.loads(words[2])["moe_backend"] == "triton"


@pytest.mark.parametrize(
    ("speculation", "machine"),
    [
        ('{"method": "mtp"}', B200),  # it inherits Triton
        ('{"method": "ngram"}', with_model("nvfp4")),  # it has no experts
        ('{"method": "mtp", "moe_backend": "marlin"}', with_model("nvfp4")),  # the operator's own word
        ('{"method": "mtp"}', with_model("nvfp4", vllm="0.18.0")),  # there is no such key yet
    ],
)
def test_a_drafter_that_is_well_off_is_left_alone(speculation: str, machine: Machine) -> None:
    assert rung(plan(("m", "--speculative-config", speculation), machine), "triton").words[2] == speculation


def test_single_operators_may_be_skipped_instead_of_all_tuning() -> None:
    found = plan(("m",), no_autotune={"skip_autotune_ops": ["flashinfer::trtllm_bf16_moe", "bf16_gemm"]})
    step = rung(found, "no-autotune")
    assert step.words == ("m",)
    assert dict(step.environment) == {"VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS": "flashinfer::trtllm_bf16_moe,bf16_gemm"}


@pytest.mark.parametrize(
    ("machine", "environment"),
    [
        (with_model("bf16", vllm="0.25.0"), {}),
        (replace(B200, installation=replace(B200.installation, flashinfer="0.6.12")), {}),
        (B200, {"VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS": "fp4_gemm"}),  # the operator's own list stays
    ],
)
def test_where_operators_cannot_be_skipped_all_tuning_is_off(machine: Machine, environment: dict[str, str]) -> None:
    found = plan(("m",), machine, environment, no_autotune={"skip_autotune_ops": ["bf16_gemm"]})
    assert rung(found, "no-autotune").words == ("m", "--no-enable-flashinfer-autotune")
    said = "skip_autotune_ops of the profile cannot be used, and all autotune is off instead: "
    assert [note for note in found.notes if note.startswith(said)]
    assert costs(rung(found, "no-autotune")) == COSTS["no-autotune"]


def test_a_rung_says_what_its_own_change_costs() -> None:
    skipping = plan(("m",), no_autotune={"skip_autotune_ops": ["bf16_gemm"]})
    assert "not tuned" in str(costs(rung(skipping, "no-autotune")))
    assert not any("skip_autotune_ops" in note for note in skipping.notes)
    idle = plan(("m",), no_autotune={"note": "no effect here"})
    assert costs(rung(idle, "no-autotune")) is None
    assert costs(rung(idle, "triton")) == COSTS["triton"]
    assert costs(rung(idle, "triton"), on_cpu=True) is None


def test_the_rung_triton_says_so_where_it_asks_for_another_backend() -> None:
    found = rung(plan(("m",), with_model("nvfp4")), "triton")
    assert found.note == "cutlass here: the safe backend for nvfp4 weights on this GPU"
    assert rung(plan(("m",), with_model("bf16")), "triton").note is None
    mine = rung(plan(("m",), with_model("bf16"), triton={"moe_backend": "marlin"}), "triton")
    assert mine.note == "marlin here, as the profile says"


@pytest.mark.parametrize(
    ("words", "cap", "expected"),
    [
        ((), 2048, ("--max-num-batched-tokens", "2048")),
        ((), 16, ("--max-num-batched-tokens", "1024")),  # no less than the most sequences
        (("--max-num-seqs", "64"), 16, ("--max-num-batched-tokens", "64")),
        (
            ("--max-num-seqs", "64", "--no-enable-chunked-prefill", "--max-model-len", "4096"),
            16,
            ("--max-num-batched-tokens", "4096"),
        ),
    ],
)
def test_tokens_are_capped_no_lower_than_vllm_takes(
    words: tuple[str, ...], cap: int, expected: tuple[str, ...]
) -> None:
    found = plan(("m", *words), no_autotune={"max_num_batched_tokens": cap})
    assert rung(found, "no-autotune").words[-2:] == expected


def test_fewer_tokens_than_the_cap_stay() -> None:
    found = plan(("m", "--max-num-batched-tokens", "512"), no_autotune={"max_num_batched_tokens": 2048})
    assert rung(found, "no-autotune").words[:3] == ("m", "--max-num-batched-tokens", "512")


@pytest.mark.parametrize(("mib", "expected"), [(512, 512 * MIB), (100, 394 * MIB)])
def test_the_attention_workspace_is_never_below_vllms_own(mib: int, expected: int) -> None:
    found = plan(("m",), no_autotune={"attention_workspace_mib": mib})
    assert dict(rung(found, "no-autotune").environment) == {"VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": str(expected)}


def test_a_workspace_that_the_version_does_not_read_is_not_set() -> None:
    old = with_model("bf16", vllm="0.11.0")
    found = plan(("m",), old, as_asked={"attention_workspace_mib": 512})
    assert found.ladder.rungs[0].environment == ()


def test_before_there_was_a_flag_the_operators_own_variables_are_switched_off() -> None:
    asked = {"VLLM_USE_FLASHINFER_MOE_FP16": "1", "VLLM_USE_FLASHINFER_MOE_FP8": "0"}
    found = plan(("m",), with_model("bf16", vllm="0.15.1"), asked)
    assert dict(rung(found, "triton").environment) == {"VLLM_USE_FLASHINFER_MOE_FP16": "0"}
    assert rung(found, "triton").words == ("m",)


def test_before_there_was_a_flag_and_nothing_was_asked_for_the_rung_is_left_out() -> None:
    assert because(plan(("m",), with_model("bf16", vllm="0.15.1")), "triton").startswith("--moe-backend came with")


def test_a_launch_that_is_known_to_fail_starts_further_down_with_what_the_report_used() -> None:
    found = plan(("m",), with_model("mxfp4", "10.3"))
    assert found.ladder.rungs[found.entry].name == "triton"
    assert found.ladder.rungs[found.entry].words[-1] == "marlin"
    assert found.entry_because is not None and "vllm#58031" in found.entry_because


def test_what_the_operator_avoids_already_starts_at_the_top() -> None:
    assert plan(("m", "--moe-backend", "marlin"), with_model("mxfp4", "10.3")).entry == 0
    assert plan(("m", "--no-enable-flashinfer-autotune"), with_model("mxfp4", "10.3")).entry == 0


def test_variables_without_effect_are_named_with_the_reason() -> None:
    notes = plan(("m",), environment={"VLLM_USE_FLASHINFER_MOE_FP16": "1", "TRTLLM_MOE_MAX_WORKSPACE": "1"}).notes
    assert [note.partition(" ")[0] for note in notes if "has no effect" in note] == [
        "TRTLLM_MOE_MAX_WORKSPACE",
        "VLLM_USE_FLASHINFER_MOE_FP16",
    ]


def test_what_auto_resolves_to_is_told() -> None:
    assert "MoE backend auto is flashinfer_trtllm here (bf16 experts, compute capability 10.0)" in plan(("m",)).notes


def installed(**changes: str | None) -> Machine:
    return replace(B200, installation=replace(B200.installation, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("capability", "reason"),
    [
        ("8.9", "vLLM tunes FlashInfer from compute capability 9.0 on, and this GPU has 8.9"),
        ("8.0", "vLLM tunes FlashInfer from compute capability 9.0 on, and this GPU has 8.0"),
        ("9.0", None),
        ("10.0", None),
        ("12.1", None),
        ("odd", None),
    ],
)
def test_where_vllm_never_tunes_there_is_no_rung_without_tuning(capability: str, reason: str | None) -> None:
    made = plan(("m",), with_model("bf16", capability))
    assert {left.name: left.because for left in made.ladder.left_out}.get("no-autotune") == reason


def test_without_flashinfer_nothing_is_tuned_and_what_auto_is_is_not_known() -> None:
    made = plan(("m",), installed(flashinfer=None))
    assert because(made, "no-autotune") == "FlashInfer is not installed, so nothing is tuned"
    assert not [note for note in made.notes if "MoE backend auto" in note]
    # a build for the CPU has no use for it, and an installation that was not found may have it
    assert rung(plan(("m",), installed(flashinfer=None, torch_cuda=None)), "no-autotune")
    assert rung(plan(("m",), installed(flashinfer=None, vllm=None)), "no-autotune")


def test_a_rung_that_asks_for_what_auto_is_says_so_beside_the_profiles_note() -> None:
    same = "MoE backend auto is triton here already, as a rule"
    hopper = with_model("bf16", "9.0")
    assert rung(plan(("m",), hopper), "triton").note == same
    assert rung(plan(("m",), hopper, triton={"note": "careful"}), "triton").note == f"careful; {same}"
    assert rung(plan(("m", "--moe-backend", "flashinfer_cutlass"), hopper), "triton").note is None
    assert rung(plan(("m",)), "triton").note is None


@pytest.mark.parametrize(
    ("words", "vllm", "capability", "auto"),
    [
        ((), "0.23.0", "10.0", "flashinfer_trtllm"),
        (("--enable-eplb",), "0.23.0", "10.0", None),
        (("--enable-eplb",), "0.33.0", "10.3", None),
        (("--no-enable-eplb",), "0.33.0", "10.3", "flashinfer_trtllm"),
        (("--enable-lora",), "0.23.0", "10.0", "triton"),
        (("--enable-lora",), "0.25.1", "12.0", "triton"),
        (("--enable-lora",), "0.26.0", "10.0", None),
        (("--enable-lora",), "0.32.0", "12.0", "triton"),
        (("--enable-lora", "--enable-eplb"), "0.19.1", "10.0", "triton"),
    ],
)
def test_balanced_experts_and_adapters_change_what_auto_is(
    words: tuple[str, ...], vllm: str, capability: str, auto: str | None
) -> None:
    made = plan(("m", *words), with_model("bf16", capability, vllm))
    told = [note.split()[4] for note in made.notes if note.startswith("MoE backend auto is ")]
    assert told == ([auto] if auto else [])


@pytest.mark.parametrize(
    ("environment", "entry"),
    [
        ({}, 0),
        ({"VLLM_DP_SIZE": "1"}, 0),
        ({"VLLM_DP_SIZE": "2"}, 1),
        ({"VLLM_DP_RANK": "0"}, 1),
        ({"VLLM_DP_RANK": "0", "VLLM_DP_SIZE": "1"}, 0),
        ({"VLLM_DP_MASTER_PORT": "1"}, 0),
    ],
)
def test_data_parallelism_of_the_environment_counts_for_what_is_known(environment: dict[str, str], entry: int) -> None:
    machine = replace(B200, installation=replace(B200.installation, vllm="0.23.0", flashinfer="0.6.12"))
    assert plan(("m", "-ep"), machine, environment).entry == entry


def test_the_rung_to_start_with_gives_the_report_for_its_reason() -> None:
    machine = replace(B200, installation=replace(B200.installation, vllm="0.23.0", flashinfer="0.6.12"))
    made = plan(("m", "-ep", "-dp", "2"), machine, no_autotune={"because": "the profile's"})
    start = made.ladder.rungs[made.entry]
    assert (start.name, start.because) == ("no-autotune", "it avoids a known GPU core dump in MoE autotune")
    assert start.links == (
        "https://github.com/vllm-project/vllm/issues/46083",
        "https://github.com/vllm-project/vllm/pull/45002",
    )
    unknown = plan(("m",), machine, no_autotune={"because": "the profile's"})
    assert rung(unknown, "no-autotune").because == "the profile's"


def test_a_backend_that_a_report_chose_has_the_report_for_its_reason() -> None:
    machine = with_model("mxfp4", "10.3")
    made = plan(("m",), machine, triton={"because": "the profile's"})
    assert rung(made, "triton").words[-1] == "marlin"
    assert rung(made, "triton").because == "it avoids a known MoE autotune that takes hours"
    assert rung(made, "triton").links == ("https://github.com/vllm-project/vllm/issues/58031",)


def test_the_flag_says_what_the_weights_are_where_the_files_are_not_here() -> None:
    machine = replace(B200, model=None)
    made = plan(("org/Qwen3-30B-A3B", "--quantization", "modelopt_fp4"), machine)
    assert rung(made, "triton").words[-1] == "cutlass"
    assert any("with nvfp4 experts" in note for note in made.notes)
