"""What the check-up says about the command itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cases import MACHINE, case, levels, told

from safe_vllm.checks import command
from safe_vllm.checks.known_faults import known_faults
from safe_vllm.cli import doctor as cli
from safe_vllm.machine.facts import Surface
from safe_vllm.machine.model import lost
from safe_vllm.machine.model_flags import asked

FLAGS = Surface(flags=frozenset({"--host", "--port", "--api-key", "--tensor-parallel-size"}))


def test_flags_that_vllm_does_not_have_are_problems() -> None:
    found = told(command.flags, case("m", "--tensor-paralel-size", "2", "--stop-timeout", "9", surface=FLAGS))
    assert [level for level, _ in found] == ["problem", "problem"]
    assert "did you mean --tensor-parallel-size?" in found[0][1]
    assert levels(command.flags, case("m", "--port", "1", surface=FLAGS)) == []


@pytest.mark.parametrize(
    ("word", "option"),
    [("--unitt", "--unit"), ("--units=x", "--unit"), ("--maniest", "--manifest"), ("--unit", "--unit")],
)
@pytest.mark.parametrize("surface", [None, FLAGS])
def test_a_misspelt_option_of_doctor_is_told_and_not_sent_before_the_subcommand(
    word: str, option: str, surface: Surface | None
) -> None:
    given = case(word, "a.service", "--port", "1", surface=surface)
    [(level, text)] = told(command.files, given)
    assert (level, f"did you mean `safe-vllm doctor {option} FILE`?" in text) == ("problem", True)
    assert levels(command.flags, given) == []


def test_what_vllm_knows_or_what_follows_two_dashes_is_no_option_of_doctor() -> None:
    assert levels(command.files, case("m", "--unitary", surface=Surface(flags=FLAGS.flags | {"--unitary"}))) == []
    assert levels(command.files, case("m", "--port", "1", "--", "--unitt", surface=FLAGS)) == []


def test_the_options_of_doctor_are_the_ones_that_it_takes() -> None:
    assert command.OF_FILES == cli.OF_FILES


@pytest.mark.parametrize(
    ("name", "do"),
    [
        ("u/a.service", "safe-vllm doctor --unit FILE"),
        ("m/compose.yaml", "safe-vllm doctor --manifest FILE"),
        ("pod.yml", "safe-vllm doctor --manifest FILE"),
    ],
)
def test_a_unit_or_a_manifest_is_no_model(name: str, do: str) -> None:
    [found] = command.files(case(name))
    assert (found.level, found.do, name in found.what) == ("problem", do, True)


def test_a_model_and_the_file_of_config_are_what_they_are() -> None:
    for words in (("org/model",), ("/m/x.gguf",), ("m", "--config", "c.yaml"), ("--config", "c.yaml"), ()):
        assert levels(command.files, case(*words)) == []


def test_files_that_are_not_there_are_problems() -> None:
    assert levels(command.model, case(state={"lost_model": "/models/m"})) == ["problem"]
    assert levels(command.config, case(state={"config_trouble": "f.yaml does not exist"})) == ["problem"]
    assert levels(command.model, case()) == levels(command.config, case()) == []


@pytest.mark.parametrize("name", ["/no/such/model", "./no-such-model", "../no-such-model"])
def test_a_path_without_a_model_is_lost(name: str, tmp_path: Path) -> None:
    assert lost(asked((name,))) == name
    assert lost(asked(("--model", name))) == name
    assert lost(asked((str(tmp_path),))) is None
    assert lost(asked(("org/model",))) is None


def test_known_faults_of_unknown_versions_cannot_be_told() -> None:
    nothing = {"vllm": None, "flashinfer": None}
    [(level, text)] = told(known_faults, case(installed=nothing))
    assert (level, text.split(" | ")[0]) == ("note", "cannot be told: versions are not known")
    assert levels(known_faults, case(machine=replace(MACHINE, gpus=()), installed=nothing)) == ["ok"]
