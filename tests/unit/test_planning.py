"""What a plan for a recorded machine says and does not say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safe_vllm import planning
from safe_vllm.plan.intent import Intent
from safe_vllm.preparing import prepare

B200S = {"architecture": "x86_64", "gpus": [{"name": "NVIDIA B200", "compute_capability": "10.0"}], "has_driver": True}
MODEL = {"experts": 8, "weight_format": "bf16"}


@pytest.fixture(autouse=True)
def _without_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def plan_of(place: Path, *words: str, output: str = "text", **facts: object) -> str:
    path = place / "record.json"
    path.write_text(json.dumps({**B200S, **facts}))
    intent = Intent(words, vllm=("/here/bin/vllm",), profile="b200", machine=str(path))
    return planning.told(prepare(intent), output)


def test_versions_that_a_record_leaves_out_are_not_known(tmp_path: Path) -> None:
    assert "software: vLLM not known, torch not known, CUDA not known, FlashInfer not known" in plan_of(tmp_path, "m")
    installed = {"vllm": "0.32.0", "torch": "2.13.0"}
    assert "CUDA none, FlashInfer none" in plan_of(tmp_path, "m", installation=installed)


def test_the_model_of_a_plan_is_named(tmp_path: Path) -> None:
    text = plan_of(tmp_path, "org/b", model=MODEL, model_name="org/b")
    assert "model: org/b, 8 experts, bf16 weights" in text
    other = plan_of(tmp_path, "org/b", model=MODEL, model_name="org/a")
    assert "model: org/b; its config.json is not on this machine" in other
    assert "describes the model org/a, not org/b" in other


def test_a_password_in_a_models_name_is_not_shown(tmp_path: Path) -> None:
    for output in ("text", "json"):
        name = "s3://user:hunter2@host/m"
        assert "hunter2" not in plan_of(tmp_path, name, output=output, model=MODEL, model_name=name)
        assert "hunter2" not in plan_of(tmp_path, "org/b", output=output, model=MODEL, model_name=name)


def test_the_command_for_another_machine_names_no_path_of_this_one(tmp_path: Path) -> None:
    text = plan_of(tmp_path, "m", model=MODEL)
    assert "/here/bin/vllm" not in text
    found = json.loads(plan_of(tmp_path, "m", model=MODEL, output="json"))
    assert {rung["argv"][0] for rung in found["rungs"]} == {"vllm"}


def test_a_variable_that_nobody_reads_is_not_in_the_line_to_copy(tmp_path: Path) -> None:
    text = plan_of(tmp_path, "m", model=MODEL)
    assert "+ TRTLLM_MOE_MAX_WORKSPACE=8192 (not read by the installed version)" in text
    assert not [line for line in text.splitlines() if line.startswith("  $ ") and "TRTLLM_MOE" in line]
    found = json.loads(plan_of(tmp_path, "m", model=MODEL, output="json"))
    assert "TRTLLM_MOE_MAX_WORKSPACE" in found["rungs"][-1]["env"]


def test_the_whole_of_a_plan_is_a_record_too(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_of(tmp_path, "m", output="json", model=MODEL, model_name="m"))
    again = prepare(Intent(("m",), machine=str(tmp_path / "plan.json")))
    assert (again.machine.model_name, again.machine.gpus[0].name) == ("m", "NVIDIA B200")


def test_a_config_file_that_is_not_read_is_noted(tmp_path: Path) -> None:
    note = "note: what the --config file says is not in this plan: no-such.yaml does not exist"
    assert note in plan_of(tmp_path, "m", "--config", "no-such.yaml")
    (tmp_path / "f.yaml").write_text("port: 1\n")
    assert "--config file" not in plan_of(tmp_path, "m", "--config", str(tmp_path / "f.yaml"))
