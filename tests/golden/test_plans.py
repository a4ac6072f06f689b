"""Plans for recorded machines read as they did: ``UPDATE_GOLDEN=1 pytest tests/golden/test_plans.py`` writes
them anew."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from safe_vllm.commands import plan as planning
from safe_vllm.machine import recorded
from safe_vllm.plan.intent import Intent
from safe_vllm.preparing import prepare

HERE = Path(__file__).parent
MACHINES = sorted((HERE / "machines").glob("*.json"))
GRACE = (
    "Qwen/Qwen3.6-35B-A3B --moe-backend flashinfer_trtllm --tensor-parallel-size 1 --data-parallel-size 1 "
    "--enable-prefix-caching --max-num-batched-tokens 32768 --max-num-seqs 1024 --enable-auto-tool-choice "
    "--tool-call-parser qwen3_coder --reasoning-parser qwen3"
)
DATA_AND_EXPERTS = "Qwen/Qwen3.5-35B-A3B --data-parallel-size 2 --enable-expert-parallel"
PLAIN = "org/model -tp 1"
COMMANDS = {
    **{path.stem: (path.stem, PLAIN) for path in MACHINES},
    "report-46861-with-flashinfer-0.6.12": ("gb200-4-flashinfer-0.6.12", GRACE),
    "report-46861-with-flashinfer-0.6.16": ("gb200-4-flashinfer-0.6.16", GRACE),
    "report-46083-with-flashinfer-0.6.12": ("b200-2", DATA_AND_EXPERTS),
    "report-46083-with-flashinfer-0.6.16": ("b200-2-flashinfer-0.6.16", DATA_AND_EXPERTS),
    "report-46083-on-gb200": ("gb200-4-flashinfer-0.6.12", DATA_AND_EXPERTS),
    "eight-engines-on-h100": ("h100-8", "org/model -dp 8 -ep"),
}


@pytest.fixture(autouse=True)
def _without_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("VLLM_", "FLASHINFER_", "TRTLLM_", "CUDA_", "HF_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def plan_of(machine: str, line: str, output: str = "text") -> str:
    intent = Intent(tuple(shlex.split(line)), machine=str(HERE / "machines" / f"{machine}.json"))
    return planning.told(prepare(intent), output) + "\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_plan_for_a_recorded_machine_reads_as_it_did(name: str) -> None:
    expected = HERE / "plans" / f"{name}.txt"
    found = plan_of(*COMMANDS[name])
    if os.environ.get("UPDATE_GOLDEN"):
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(found, "utf-8")
    assert found == expected.read_text("utf-8")


def test_every_plan_that_is_kept_belongs_to_a_command() -> None:
    assert {path.stem for path in (HERE / "plans").iterdir()} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_plan_as_json_says_what_its_text_says(name: str) -> None:
    machine, line = COMMANDS[name]
    found = json.loads(plan_of(machine, line, "json"))
    text = plan_of(machine, line)
    names = [rung["name"] for rung in found["rungs"]]
    assert found["entry"] in names
    assert found["rungs"][0]["argv"] == ["vllm", "serve", *shlex.split(line)]
    assert all(f"left out: {left['name']}: {left['because']}" in text for left in found["left_out"])
    assert all(f"note: {note}" in text for note in found["notes"])
    assert len({(tuple(rung["argv"]), tuple(sorted(rung["env"]))) for rung in found["rungs"]}) == len(names)
    parsed = recorded.parse(json.dumps(found["machine"]), "the plan")
    assert parsed.gpus == recorded.read(str(HERE / "machines" / f"{machine}.json")).gpus
