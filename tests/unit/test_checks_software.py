"""What the check-up says about vLLM, FlashInfer, torch, the driver, and what is known to fail with them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases import B200, MACHINE, case, found, levels, told

from safe_vllm.checks import flashinfer, software
from safe_vllm.checks.known_faults import known_faults
from safe_vllm.commands import doctor
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Ladder, Plan, Rung
from safe_vllm.preparing import prepare


def test_a_missing_vllm_is_a_problem_and_an_unknown_version_a_warning() -> None:
    [(level, text)] = told(software.vllm, case(no_vllm="no command 'vllm' was found"))
    assert (level, text.startswith("no command 'vllm' was found")) == ("problem", True)
    assert levels(software.vllm, case(installed={"vllm": None})) == ["warning"]
    assert told(software.vllm, case()) == [("ok", "0.23.0 (/opt/venv/bin/python3) |  | ")]


@pytest.mark.parametrize(
    ("version", "expected"), [("0.23.0", ["ok"]), ("0.15.1", ["warning"]), ("0.99.0", ["note"]), (None, [])]
)
def test_what_is_not_certain_about_the_flags_is_told(version: str | None, expected: list[str]) -> None:
    assert levels(software.dialect, case(installed={"vllm": version})) == expected


@pytest.mark.parametrize(
    ("driver", "torch", "level"),
    [
        ("13.0", "13.0", "ok"),
        ("13.1", "13.0", "ok"),
        ("13.0", "12.8", "ok"),
        ("12.4", "12.8", "note"),
        ("12.9", "13.0", "problem"),
        ("9.2", "12.8", "problem"),
    ],
)
def test_a_driver_of_an_older_major_release_is_a_problem(driver: str, torch: str, level: str) -> None:
    what = case(machine=replace(MACHINE, driver_cuda=driver), installed={"torch_cuda": torch})
    assert levels(software.cuda, what) == [level]


def test_a_build_without_cuda_on_a_machine_with_gpus_is_a_warning() -> None:
    cpu: dict[str, Any] = {"torch_cuda": None, "torch": "2.11.0+cpu"}
    assert levels(software.cuda, case(installed=cpu)) == ["warning"]
    assert levels(software.cuda, case(machine=replace(MACHINE, gpus=()), installed=cpu)) == []
    assert levels(software.cuda, case(installed={**cpu, "torch_rocm": "7.0"})) == []
    assert levels(software.cuda, case(machine=replace(MACHINE, driver_cuda=None))) == []


def test_a_profile_that_cannot_be_used_is_a_problem() -> None:
    assert told(software.planned, case(no_plan="x.yaml:2: wrong"))[0][0] == "problem"
    plan = Plan("b200", "the GPU is NVIDIA B200", Ladder((Rung("as-asked", ()), Rung("triton", ()))))
    [(level, text)] = told(software.planned, case(plan=plan))
    assert (level, text) == ("ok", "b200 (the GPU is NVIDIA B200): as-asked → triton |  | ")


def test_versions_that_vllm_does_not_ask_for_are_warnings() -> None:
    assert levels(flashinfer.pins, case()) == ["ok"]
    wrong = found(flashinfer.pins, case(installed={"flashinfer": "0.6.14", "torch": "2.10.0+cu130"}))
    assert [finding.do for finding in wrong] == [
        "pip install flashinfer-python==0.6.12",
        "pip install torch==2.11.0",
    ]


def test_the_metadata_of_the_installed_vllm_goes_before_the_table() -> None:
    wanted = {"pins": {"flashinfer-python": "0.6.14"}}
    assert levels(flashinfer.pins, case(state=wanted)) == ["warning"]
    assert levels(flashinfer.pins, case(state=wanted, installed={"flashinfer": "0.6.14"})) == ["ok"]


@pytest.mark.parametrize("version", ["0.23.1.dev5", "0.22.0", None])
def test_of_a_release_that_is_not_in_the_table_nothing_is_said(version: str | None) -> None:
    assert levels(flashinfer.pins, case(installed={"vllm": version})) == []


def test_parts_of_flashinfer_that_do_not_match_are_a_problem() -> None:
    assert levels(flashinfer.parts, case()) == ["ok"]
    assert levels(flashinfer.parts, case(installed={"flashinfer_cubin": None})) == []
    built = case(installed={"flashinfer_jit_cache": "0.6.12+cu130"})
    assert levels(flashinfer.parts, built) == ["ok"]
    [finding] = found(flashinfer.parts, case(installed={"flashinfer_cubin": "0.6.13"}))
    assert (finding.level, finding.what) == ("problem", "flashinfer-cubin 0.6.13 beside flashinfer-python 0.6.12")
    unchecked = case(installed={"flashinfer_cubin": "0.6.13"}, environment={"FLASHINFER_DISABLE_VERSION_CHECK": "1"})
    assert levels(flashinfer.parts, unchecked) == ["warning"]


@pytest.mark.parametrize(
    ("vllm", "cubin", "nvcc", "ninja", "level"),
    [
        ("0.23.0", "0.6.12", None, None, "ok"),
        ("0.23.0", None, "/bin/nvcc", None, "ok"),
        ("0.23.0", None, None, "/bin/ninja", "warning"),
        ("0.32.0", "0.6.12", "/bin/nvcc", None, "warning"),
        ("0.32.0", None, "/bin/nvcc", "/bin/ninja", "ok"),
    ],
)
def test_flashinfer_needs_a_compiler_or_compiled_kernels(
    vllm: str, cubin: str | None, nvcc: str | None, ninja: str | None, level: str
) -> None:
    what = case(installed={"vllm": vllm, "flashinfer_cubin": cubin}, state={"nvcc": nvcc, "ninja": ninja})
    assert levels(flashinfer.usable, what) == [level]


def test_without_flashinfer_or_cuda_there_is_nothing_to_warn_about() -> None:
    assert levels(flashinfer.usable, case(installed={"flashinfer": None})) == ["note"]
    assert levels(flashinfer.usable, case(installed={"torch_cuda": None})) == []


def test_a_flashinfer_that_vllm_asks_for_and_that_is_not_there_is_a_warning() -> None:
    asked = {"pins": {"flashinfer-python": "0.6.12", "torch": "2.11.0"}}
    [(level, text)] = told(flashinfer.usable, case(installed={"flashinfer": None}, state=asked))
    assert level == "warning"
    assert text.startswith("not installed, and vLLM 0.23.0 asks for 0.6.12 | ")
    assert text.endswith("pip install flashinfer-python==0.6.12")


RECORDED = Path(__file__).parents[1] / "golden" / "machines" / "gb200-4-flashinfer-0.6.12.json"
QWEN = "Qwen/Qwen3-30B-A3B"


def known(*words: str, profile: str | None = None, **options: Any) -> tuple[str, str, str, str]:
    """Return what is said of known faults where bf16 experts are known to fail, for these words and options."""
    what = doctor.examined(Intent(words, machine=str(RECORDED), profile=profile, **options))
    [finding] = found(known_faults, what)
    return finding.level, finding.what, finding.why, finding.do


def test_a_known_fault_that_the_launch_avoids_is_a_note() -> None:
    level, what, why, do = known(QWEN)
    assert (level, what.partition(":")[0]) == ("note", "starts at triton, not at the top")
    assert "illegal memory access in MoE autotune (vllm#46861)" in why
    assert do == "upgrade: fixed in FlashInfer 0.6.16 and vLLM 0.27"
    assert known(QWEN, start_at="triton")[0] == "note"
    assert known(QWEN, pins=frozenset({"moe-backend"}))[0] == "note"


@pytest.mark.parametrize("words", [("--moe-backend", "triton"), ("--no-enable-flashinfer-autotune",)])
def test_a_known_fault_that_the_operators_own_words_avoid_is_none(words: tuple[str, ...]) -> None:
    assert known(QWEN, *words)[:2] == ("ok", "none for this command")


def test_a_known_fault_that_the_profile_avoids_is_none(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ndescription: d\nmoe_backend: triton\nladder:\n- rung: as-asked\n- rung: no-autotune\n"
    )
    assert known(QWEN, profile=str(tmp_path / "mine.yaml"))[:2] == ("ok", "none for this command")
    assert known(QWEN, profile=str(tmp_path / "mine.yaml"), observes_only=True)[0] == "warning"


@pytest.mark.parametrize(
    ("options", "because"),
    [
        ({"observes_only": True}, "--observe-only changes nothing"),
        ({"start_at": "as-asked"}, "starts at as-asked: --start-at asks for it"),
        ({"pins": frozenset({"moe-backend", "autotune"})}, "triton, which would avoid it, is left out: it would"),
    ],
)
def test_a_known_fault_that_the_launch_meets_is_a_warning_that_says_why(options: dict[str, Any], because: str) -> None:
    level, what, why, do = known(QWEN, **options)
    assert (level, why[: len(because)]) == ("warning", because)
    assert "illegal memory access in MoE autotune (vllm#46861)" in what
    assert do == "let it start at triton, or upgrade: fixed in FlashInfer 0.6.16 and vLLM 0.27"


def remembered(place: Path, *, held: str | None = None, broke: str | None = None) -> None:
    """Keep in a state directory what a launch of the same words on the same machine would."""
    memory = prepare(Intent((QWEN,), machine=str(RECORDED), state_dir=str(place))).memory
    now = time.time()
    assert (memory.note_broken(broke, "cuda-launch", "moe", "autotune", now) if broke else ()) == ()
    assert (memory.note_held(held, now) if held else ()) == ()


def test_a_check_up_speaks_of_the_launch_that_remembers_as_the_plan_does(tmp_path: Path) -> None:
    remembered(tmp_path, held="as-asked")
    intent = Intent((QWEN,), machine=str(RECORDED), state_dir=str(tmp_path))
    assert doctor.examined(intent).plan == prepare(intent).plan
    level, what, why, do = known(QWEN, state_dir=str(tmp_path))
    assert (level, what.partition(", ")[0]) == ("note", "a launch starts at as-asked")
    assert why == "as-asked held here before, so that fault may not come"
    assert do == "nothing while it holds; upgrade: fixed in FlashInfer 0.6.16 and vLLM 0.27"
    assert known(QWEN, state_dir=str(tmp_path), remember_for_days=0.0)[1].startswith("starts at triton")
    assert known(QWEN, state_dir=str(tmp_path), observes_only=True)[0] == "warning"


def test_a_check_up_tells_what_broke_and_changes_nothing(tmp_path: Path) -> None:
    remembered(tmp_path, broke="triton")
    before = sorted(tmp_path.rglob("*"))
    assert "has died here, last triton on " in known(QWEN, state_dir=str(tmp_path))[1]
    assert known(QWEN, state_dir=str(tmp_path / "absent" / "too"))[0] == "note"
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_wrong_with_the_state_directory_is_a_note(tmp_path: Path) -> None:
    remembered(tmp_path, held="as-asked")
    [record] = (tmp_path / "remembered").glob("*.json")
    record.write_text("{")
    what = doctor.examined(Intent((QWEN,), machine=str(RECORDED), state_dir=str(tmp_path)))
    [finding] = [each for each in doctor.checked(what) if each.name == "remembered"]
    assert (finding.level, finding.what) == ("note", f"{record}: it is damaged, so it is not believed")
    assert (finding.why, finding.do) != ("", "")
    (tmp_path / "file").write_text("")
    what = doctor.examined(Intent((QWEN,), machine=str(RECORDED), state_dir=str(tmp_path / "file")))
    [finding] = [each for each in doctor.checked(what) if each.name == "remembered"]
    assert "cannot be made: " in finding.what


def test_without_a_plan_nothing_is_said_of_known_faults() -> None:
    assert levels(known_faults, case("m", no_plan="a profile is wrong")) == []


def test_without_a_command_what_some_command_would_meet_here_is_a_note() -> None:
    [finding] = found(known_faults, case())
    assert (finding.level, finding.do) == ("note", "upgrade: fixed in FlashInfer 0.6.16 and vLLM 0.27")
    assert finding.what.endswith("for flashinfer_trtllm bf16 with data and expert parallelism")
    grace = replace(MACHINE, architecture="aarch64", gpus=(replace(B200, name="NVIDIA GB200"),))
    assert len(found(known_faults, case(machine=grace))) == 2
    assert levels(known_faults, case(installed={"flashinfer": "0.6.16"})) == ["ok"]
    assert levels(known_faults, case(machine=replace(MACHINE, gpus=()))) == ["ok"]
