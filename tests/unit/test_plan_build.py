"""The ladder for a command, a profile and a machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from safe_vllm import known
from safe_vllm.machine.facts import Installation, Machine, ModelShape, ProfileFile, Surface
from safe_vllm.machine.profile_files import read_profiles
from safe_vllm.plan.build import make_plan, scene_of
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import COSTS, RELIEVES, RUNG_NAMES, Plan
from safe_vllm.plan.profile import Profile
from safe_vllm.plan.profile_choice import choose
from safe_vllm.plan.profile_reading import parse
from safe_vllm.verdict.evidence import SUSPECTS

GRACE = Machine(
    "aarch64",
    installation=Installation(vllm="0.23.0", torch="2.11.0", torch_cuda="12.9", flashinfer="0.6.8.post1"),
    cuda12_libraries=("/usr/local/cuda/targets/sbsa-linux/lib", "/usr/local/cuda/lib64"),
    has_driver=True,
)
OFF = "--no-enable-flashinfer-autotune"
CARD = {"FLASHINFER_DISABLE_MOE_AUTOTUNE": "1", "TRTLLM_MOE_MAX_WORKSPACE": "8192"}


def shipped(name: str) -> Profile:
    return choose(read_profiles(name, None, {}), GRACE, name)[0]


def plan(
    line: str,
    profile: str | Profile = "gb200",
    machine: Machine = GRACE,
    environment: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
    without: Collection[str] = (),
) -> Plan:
    chosen = shipped(profile) if isinstance(profile, str) else profile
    installed = machine.installation
    dialect = known.dialects().of(installed.vllm, installed.surface)
    intent = Intent(tuple(line.split()))
    scene = scene_of(intent, chosen, machine=machine, dialect=dialect, environment=environment or {}, config=config)
    return make_plan(intent, scene, "asked for", without)


def with_vllm(version: str | None) -> Machine:
    return replace(GRACE, installation=replace(GRACE.installation, vllm=version))


def commands(plan: Plan) -> dict[str, str]:
    return {rung.name: " ".join(rung.words) for rung in plan.ladder.rungs}


def left_out(plan: Plan) -> dict[str, str]:
    return {entry.name: entry.because for entry in plan.ladder.left_out}


def variables(plan: Plan, rung: str) -> dict[str, str]:
    return next(dict(entry.environment) for entry in plan.ladder.rungs if entry.name == rung)


def test_each_rung_adds_to_the_rungs_above() -> None:
    assert commands(plan("m --data-parallel-size 2 --enable-expert-parallel --moe-backend flashinfer_trtllm")) == {
        "as-asked": "m --data-parallel-size 2 --enable-expert-parallel --moe-backend flashinfer_trtllm",
        "no-autotune": f"m --data-parallel-size 2 --enable-expert-parallel --moe-backend flashinfer_trtllm {OFF}",
        "triton": f"m --data-parallel-size 2 --enable-expert-parallel --moe-backend triton {OFF}",
        "less-parallel": "m --data-parallel-size 1 --enable-expert-parallel --moe-backend triton "
        f"{OFF} --tensor-parallel-size 2",
        "no-expert-parallel": f"m --data-parallel-size 1 --moe-backend triton {OFF} --tensor-parallel-size 2",
    }


def test_a_plain_command_has_the_three_rungs_that_change_something() -> None:
    made = plan("m")
    assert commands(made) == {"as-asked": "m", "no-autotune": f"m {OFF}", "triton": f"m {OFF} --moe-backend triton"}
    assert left_out(made) == {
        "less-parallel": "data parallelism is not in use",
        "no-expert-parallel": "expert parallelism is not in use",
    }


def test_on_the_cpu_the_safe_backend_is_auto_and_only_the_operators_word_changes() -> None:
    made = plan("m --moe-backend=flashinfer_trtllm -tp 2", "cpu")
    assert commands(made)["triton"] == f"m --moe-backend=auto -tp 2 {OFF}"
    assert [rung.note for rung in made.ladder.rungs] == [None, "no effect here", None]
    assert left_out(plan("m", "cpu"))["triton"] == "it would change nothing: same command as no-autotune"


@pytest.mark.parametrize("name", ["b200", "gb200"])
def test_the_variables_of_the_write_ups_are_set_with_autotune_off_and_called_unread(name: str) -> None:
    made = plan("m", name)
    assert CARD.items() <= variables(made, "no-autotune").items()
    assert CARD.items() <= variables(made, "triton").items()
    assert not CARD.keys() & variables(made, "as-asked").keys()
    assert made.unread == frozenset(CARD)


@pytest.mark.parametrize("name", ["default", "cpu"])
def test_other_profiles_do_not_set_them(name: str) -> None:
    made = plan("m", name)
    assert made.unread == frozenset()
    assert not CARD.keys() & variables(made, "no-autotune").keys()


def test_a_variable_of_the_operator_is_never_overridden() -> None:
    made = plan("m", environment={"TRTLLM_MOE_MAX_WORKSPACE": "1", "CUDA_LIB_PATH": ""})
    assert variables(made, "triton") == {"FLASHINFER_DISABLE_MOE_AUTOTUNE": "1"}
    assert made.notes == (
        "CUDA_LIB_PATH is set in the environment and stays as it is",
        "TRTLLM_MOE_MAX_WORKSPACE is set in the environment and stays as it is",
        "TRTLLM_MOE_MAX_WORKSPACE in the environment has no effect: no released vLLM or FlashInfer reads "
        "TRTLLM_MOE_MAX_WORKSPACE",
    )


def test_the_cuda_library_path_is_set_from_the_first_rung_on() -> None:
    made = plan("m")
    for name in ("as-asked", "triton"):
        assert variables(made, name)["CUDA_LIB_PATH"] == "/usr/local/cuda/targets/sbsa-linux/lib"


@pytest.mark.parametrize(
    "machine",
    [
        replace(GRACE, cuda12_libraries=()),
        replace(GRACE, installation=Installation(vllm="0.23.0", torch_cuda="13.0")),
        replace(GRACE, installation=Installation(vllm="0.23.0")),
    ],
)
def test_the_cuda_library_path_is_not_set_where_it_does_nothing(machine: Machine) -> None:
    assert "CUDA_LIB_PATH" not in variables(plan("m", machine=machine), "as-asked")


def test_rungs_that_only_variables_nobody_reads_would_tell_apart_are_one() -> None:
    made = plan(f"m {OFF}")
    assert list(commands(made)) == ["as-asked", "triton"]
    assert left_out(made)["no-autotune"] == "autotune is off already: same command as as-asked"
    assert CARD.items() <= variables(made, "triton").items()


def test_rungs_that_a_read_variable_tells_apart_are_two() -> None:
    entry = {"rung": "no-autotune", "environment": {"VLLM_USE_FLASHINFER_MOE_FP16": "0"}}
    assert list(commands(plan(f"m {OFF}", own(ladder=[{"rung": "as-asked"}, entry])))) == ["as-asked", "no-autotune"]


def test_the_lowest_optimization_level_has_nothing_to_switch_off() -> None:
    assert list(commands(plan("m -O0"))) == ["as-asked", "triton"]


def test_a_backend_that_is_in_use_already_is_no_step() -> None:
    assert left_out(plan("m --moe-backend triton"))["triton"] == "it would change nothing: same command as no-autotune"


def test_a_dense_model_has_no_rungs_about_experts() -> None:
    dense = replace(GRACE, model=ModelShape(attention_heads=4, experts=0))
    made = plan("m -dp 2 -tp 2", machine=dense)
    assert list(commands(made)) == ["as-asked", "no-autotune"]
    assert set(left_out(made).values()) == {"the model has no experts"}


@pytest.mark.parametrize("model", [ModelShape(attention_heads=4), ModelShape(experts=8), None])
def test_a_model_that_may_have_experts_keeps_them(model: ModelShape | None) -> None:
    assert "triton" in commands(plan("m", machine=replace(GRACE, model=model)))


def test_what_an_older_vllm_does_not_know_is_left_out_with_the_reason() -> None:
    assert left_out(plan("m", machine=with_vllm("0.16.0")))["triton"] == (
        "--moe-backend came with vLLM 0.17, and 0.16.0 is installed"
    )
    oldest = plan("m -dp 2", machine=with_vllm("0.15.1"))
    assert list(commands(oldest)) == ["as-asked", "less-parallel"]
    assert "came with vLLM 0.16" in left_out(oldest)["no-autotune"]
    assert "autotune cannot be switched off" in oldest.notes[0]


@pytest.mark.parametrize("version", ["0.17.1", "0.32.0+cpu", "0.22.1rc1.dev255+g4dcd10eb0", "1.0"])
def test_newer_versions_have_all_rungs(version: str) -> None:
    assert list(commands(plan("m", machine=with_vllm(version)))) == ["as-asked", "no-autotune", "triton"]


@pytest.mark.parametrize("version", [None, "dev"])
def test_an_unknown_version_is_taken_for_the_newest_and_said_so(version: str | None) -> None:
    made = plan("m", machine=with_vllm(version))
    assert "triton" in commands(made)
    assert made.notes == ("vLLM's version is unknown; taken for the newest",)


def test_what_the_installed_source_lacks_is_left_out() -> None:
    surface = Surface(flags=frozenset({"--moe-backend"}), moe_backends=("auto", "triton"))
    made = plan("m", machine=replace(GRACE, installation=replace(GRACE.installation, surface=surface)))
    assert list(commands(made)) == ["as-asked", "triton"]
    assert left_out(made)["no-autotune"] == "the installed vLLM 0.23.0 has no --enable-flashinfer-autotune"
    assert "it lacks --enable-flashinfer-autotune" in made.notes[0]


def test_a_variable_is_unread_where_the_installed_versions_do_not_read_it() -> None:
    profile = own(environment={"VLLM_USE_FLASHINFER_MOE_FP16": "0"})
    assert plan("m", profile).unread == frozenset()
    assert plan("m", profile, with_vllm("0.24.0")).unread == {"VLLM_USE_FLASHINFER_MOE_FP16"}


def test_what_kept_the_gpus_hidden_is_noted() -> None:
    assert plan("m", machine=replace(GRACE, gpu_note="NVML failed: x")).notes == ("NVML failed: x",)


def own(**more: Any) -> Profile:
    content = {"name": "own", "description": "d", "ladder": [{"rung": "as-asked"}], **more}
    return parse(ProfileFile("own.yaml", content))


def test_a_profile_may_ask_for_a_backend_where_the_operator_did_not() -> None:
    profile = own(moe_backend="flashinfer_trtllm", cuda_lib_path="unset", environment={"A": "b"})
    assert commands(plan("m", profile)) == {"as-asked": "m --moe-backend flashinfer_trtllm"}
    assert commands(plan("m --moe-backend triton", profile)) == {"as-asked": "m --moe-backend triton"}
    assert variables(plan("m", profile), "as-asked") == {"A": "b"}
    old = plan("m", profile, with_vllm("0.16.0"))
    assert commands(old) == {"as-asked": "m"}
    assert "is not used: --moe-backend came with vLLM 0.17" in old.notes[0]


def test_the_config_file_counts() -> None:
    made = plan("--config f.yaml", config={"model": "m", "moe-backend": "triton", "data-parallel-size": 2})
    assert commands(made) == {
        "as-asked": "--config f.yaml",
        "no-autotune": f"--config f.yaml {OFF}",
        "less-parallel": f"--config f.yaml {OFF} --data-parallel-size 1 --tensor-parallel-size 2",
    }


WIDE = "m --data-parallel-size 2 --enable-expert-parallel --moe-backend flashinfer_trtllm"


def test_below_a_refused_rung_its_own_change_is_not_made() -> None:
    assert commands(plan(WIDE, "b200", without={"triton"})) == {
        **{name: command for name, command in commands(plan(WIDE, "b200")).items() if "parallel" not in name},
        "less-parallel": "m --data-parallel-size 1 --enable-expert-parallel --moe-backend flashinfer_trtllm "
        f"{OFF} --tensor-parallel-size 2",
        "no-expert-parallel": "m --data-parallel-size 1 --moe-backend flashinfer_trtllm "
        f"{OFF} --tensor-parallel-size 2",
    }


def test_a_refused_rung_takes_its_variables_with_it() -> None:
    assert not CARD.keys() & variables(plan("m", without={"no-autotune"}), "triton").keys()


def test_several_refused_rungs_are_all_left_out_below() -> None:
    made = plan(WIDE, without={"no-autotune", "triton"})
    assert commands(made)["less-parallel"].split() == [
        *"m --data-parallel-size 1 --enable-expert-parallel --moe-backend flashinfer_trtllm".split(),
        *"--tensor-parallel-size 2".split(),
    ]


@pytest.mark.parametrize("line", ["m --moe-backend=flashinfer_trtllm", "m --kernel-config.moe_backend=marlin"])
def test_a_backend_of_the_operator_that_was_refused_becomes_auto_below(line: str) -> None:
    made = commands(plan(line, without={"as-asked"}))
    assert made["as-asked"] == line
    assert made["no-autotune"] == f"{line.partition('=')[0]}=auto {OFF}"


def test_a_backend_of_the_profile_that_was_refused_is_not_asked_for_below() -> None:
    profile = own(moe_backend="flashinfer_trtllm", ladder=[{"rung": "as-asked"}, {"rung": "no-autotune"}])
    made = commands(plan("m", profile, without={"as-asked"}))
    assert made == {"as-asked": "m --moe-backend flashinfer_trtllm", "no-autotune": f"m {OFF}"}


def test_a_command_that_was_run_above_the_refused_rung_is_not_run_again() -> None:
    """Without autotune off, the rung ``triton`` is what was asked for."""
    made = plan("m --moe-backend triton", without={"no-autotune"})
    assert list(commands(made)) == ["as-asked", "no-autotune"]
    assert left_out(made)["triton"] == "it would change nothing: same command as as-asked"


def test_autotune_is_off_by_default_in_one_release() -> None:
    made = plan("m", machine=with_vllm("0.21.0"))
    assert left_out(made)["no-autotune"] == "autotune is off already: same command as as-asked"
    assert list(commands(plan("m -O3", machine=with_vllm("0.21.0")))) == ["as-asked", "no-autotune", "triton"]
    assert list(commands(plan("m -O1", machine=with_vllm("0.22.0")))) == ["as-asked", "no-autotune", "triton"]


def test_every_rung_answers_suspects_that_the_verdict_knows() -> None:
    assert tuple(RELIEVES) == tuple(COSTS) == RUNG_NAMES
    assert frozenset().union(*RELIEVES.values()) <= SUSPECTS
    assert all(RELIEVES[name] for name in RUNG_NAMES[1:])
