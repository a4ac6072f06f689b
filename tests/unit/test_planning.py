"""What a plan for a recorded machine says and does not say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doc_tables import plain, rows

from safe_vllm.commands import plan as planning
from safe_vllm.errors import Trouble
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.model_name import DEFAULT
from safe_vllm.preparing import Prepared, prepare

B200S = {"architecture": "x86_64", "gpus": [{"name": "NVIDIA B200", "compute_capability": "10.0"}], "has_driver": True}
MODEL = {"experts": 8, "weight_format": "bf16"}


@pytest.fixture(autouse=True)
def _without_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def plan_of(
    place: Path, *words: str, output: str = "text", asked: dict[str, Any] | None = None, **facts: object
) -> str:
    return planning.told(prepared_of(place, *words, asked=asked, **facts), output)


def prepared_of(place: Path, *words: str, asked: dict[str, Any] | None = None, **facts: object) -> Prepared:
    path = place / "record.json"
    path.write_text(json.dumps({**B200S, **facts}))
    return prepare(Intent(words, vllm=("/here/bin/vllm",), profile="b200", machine=str(path), **(asked or {})))


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


def test_where_no_model_is_named_the_plan_says_which_one_vllm_takes(tmp_path: Path) -> None:
    line = f"\nmodel: none is named, vLLM takes its own default ({DEFAULT})"
    assert f"{line}\n" in plan_of(tmp_path, "--port", "8000")
    assert f"{line}; what is recorded: org/a, 8 experts" in plan_of(tmp_path, model=MODEL, model_name="org/a")
    assert "none is named" not in plan_of(tmp_path, "--port", "8000", "org/m")
    (tmp_path / "f.yaml").write_text("model: org/m\n")
    named = plan_of(tmp_path, "--config", str(tmp_path / "f.yaml"))
    assert "\nmodel: org/m; its config.json is not on this machine\n" in named


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_model_whose_path_leads_nowhere_is_told_of(tmp_path: Path, output: str) -> None:
    (tmp_path / "vllm").write_text("#!/bin/sh\n")
    (tmp_path / "vllm").chmod(0o755)
    note = "does not exist: vLLM takes it for a name on the hub, and ends; correct the path"

    def plan(name: str) -> str:
        return planning.told(planning.prepared(Intent((name,), vllm=(str(tmp_path / "vllm"),))), output)

    assert f"{tmp_path}/tinyy {note}" in plan(f"{tmp_path}/tinyy")
    assert note not in plan(str(tmp_path))
    assert note not in plan("org/tinyy")
    (tmp_path / "record.json").write_text(json.dumps(B200S))
    there = planning.prepared(Intent((f"{tmp_path}/tinyy",), machine=str(tmp_path / "record.json")))
    assert note not in planning.told(there, output)  # its path is one of that machine


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


def test_what_is_pinned_is_said_and_what_that_leaves_out(tmp_path: Path) -> None:
    asked = {"pins": frozenset({"workspace", "moe-backend"})}
    lines = plan_of(tmp_path, "m", model=MODEL, asked=asked).splitlines()
    assert "pinned: moe-backend, workspace" in lines
    assert "left out: triton: it would change moe-backend, which is pinned with --pin" in lines
    assert "note: TRTLLM_MOE_MAX_WORKSPACE of the profile is not set: workspace is pinned" in lines
    found = json.loads(plan_of(tmp_path, "m", model=MODEL, output="json", asked=asked))
    assert found["pins"] == ["moe-backend", "workspace"]
    assert "TRTLLM_MOE_MAX_WORKSPACE" not in found["rungs"][-1]["env"]


def test_nothing_is_said_of_what_was_not_asked_for(tmp_path: Path) -> None:
    text = plan_of(tmp_path, "m", model=MODEL)
    assert not [word for word in ("pinned", "observe-only", "caches: ", "--start-at") if word in text]
    found = json.loads(plan_of(tmp_path, "m", model=MODEL, output="json"))
    assert (found["pins"], found["observed"], found["forgets"], found["caches"]) == ([], None, False, None)


def test_the_rung_to_start_at_is_shown(tmp_path: Path) -> None:
    text = plan_of(tmp_path, "m", model=MODEL, asked={"start_at": "triton"})
    assert text.startswith("ladder: as-asked → no-autotune → [triton]\n")
    assert "\nstarts at triton: --start-at asks for it\n" in text
    assert "\ntriton (the launch starts here)\n" in text
    found = json.loads(plan_of(tmp_path, "m", model=MODEL, output="json", asked={"start_at": "triton"}))
    assert (found["entry"], found["entry_because"]) == ("triton", "starts at triton: --start-at asks for it")


def test_observing_is_shown_as_the_command_that_was_typed(tmp_path: Path) -> None:
    asked = {"observes_only": True}
    lines = plan_of(tmp_path, "m", "--api-key", "abc", model=MODEL, asked=asked).splitlines()
    at = lines.index("observe-only: runs as typed, whatever happens; the rungs are what would be done without that")
    assert lines[at + 1] == "  $ vllm serve m --api-key '***'"
    found = json.loads(plan_of(tmp_path, "m", "--api-key", "abc", model=MODEL, output="json", asked=asked))
    assert found["observed"] == {"argv": ["vllm", "serve", "m", "--api-key", "***"], "env": {}}
    assert [rung["name"] for rung in found["rungs"]] == ["as-asked", "no-autotune", "triton"]


def test_the_directory_of_our_caches_is_named(tmp_path: Path) -> None:
    prepared = prepared_of(tmp_path, "m", model=MODEL)
    prepared = replace(prepared, plan=replace(prepared.plan, caches="/state/caches/1", entry=1))
    assert "caches: those in /state/caches/1, with which no-autotune held" in planning.told(prepared, "text")
    assert json.loads(planning.told(prepared, "json"))["caches"] == "/state/caches/1"


def test_a_record_that_does_not_name_its_model_is_told_of(tmp_path: Path) -> None:
    note = (
        "note: the record does not name its model (model_name): what it says of one is taken for the one that is asked"
    )
    assert plan_of(tmp_path, "m", model=MODEL).count(f"{note} for\n") == 1
    assert note not in plan_of(tmp_path, "m", model=MODEL, model_name="m")
    assert note not in plan_of(tmp_path, "--port", "8000")  # it says nothing of a model
    found = json.loads(plan_of(tmp_path, "m", model=MODEL, output="json"))
    assert [each for each in found["notes"] if note.removeprefix("note: ") in each]


def test_a_record_of_another_model_is_told_of(tmp_path: Path) -> None:
    note = f"note: {tmp_path}/record.json describes the model org/a, not m: nothing of it is recorded\n"
    assert plan_of(tmp_path, "m", model=MODEL, model_name="org/a").count(note) == 1


def test_a_record_that_is_not_there_is_told_of_with_the_command_that_makes_one(tmp_path: Path) -> None:
    path = tmp_path / "gb200.json"
    with pytest.raises(Trouble) as caught:
        planning.prepared(Intent(("m",), machine=str(path)))
    recording = "`safe-vllm --output json doctor MODEL … > FILE` records a machine"
    assert (str(caught.value), caught.value.status) == (f"{path}: there is no such file; {recording}", 2)


def test_without_vllm_the_way_to_plan_for_another_machine_is_named(tmp_path: Path) -> None:
    with pytest.raises(Trouble) as caught:
        planning.prepared(Intent(("m",), vllm=("/nowhere/vllm",)))
    assert caught.value.status == 127
    assert str(caught.value).startswith("no command '/nowhere/vllm' was found; install vLLM, ")
    assert str(caught.value).endswith(
        "; or plan for another machine with --machine FILE, which `safe-vllm --output json doctor MODEL … > FILE` "
        "records there"
    )
    (tmp_path / "vllm").touch(mode=0o644)
    with pytest.raises(Trouble) as caught:
        planning.prepared(Intent(("m",), vllm=(str(tmp_path / "vllm"),)))
    assert (caught.value.status, "--machine" in str(caught.value)) == (126, False)


def test_the_object_has_the_fields_that_the_document_lists(tmp_path: Path) -> None:
    found = json.loads(plan_of(tmp_path, "m", output="json", model=MODEL))
    for first, written in (("field", found), ("field of a rung", found["rungs"][0])):
        listed = [name for cell, *_ in rows("planning.md", first) for name in plain(cell).split(", ")]
        assert sorted(listed) == sorted(written)


@pytest.mark.parametrize("letter", ["\\ud800", "\\udcff"])
def test_letters_that_no_encoding_has_are_spelled_and_the_command_stays_what_it_was(
    tmp_path: Path, letter: str
) -> None:
    words = "m", "--kernel-config", f'{{"{letter}":1,"moe_backend":"{letter}"}}'
    text = plan_of(tmp_path, *words)
    assert f"serve m --kernel-config '{words[2]}'" in text.encode(errors="surrogateescape").decode(errors="replace")
    found = json.loads(plan_of(tmp_path, *words, output="json").encode())
    assert words[2] in found["rungs"][0]["argv"]
    assert json.loads(f'"{letter}"') in [setting["value"] for setting in found["rungs"][0]["settings"]]
