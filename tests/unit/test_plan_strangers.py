"""Flags that the installed vLLM does not have are told; how vLLM lets a flag be spelled is none of them."""

from __future__ import annotations

import pytest

from safe_vllm import known
from safe_vllm.cli.main import cli
from safe_vllm.machine.facts import Surface
from safe_vllm.plan.strangers import OURS, strangers

OF_ENGINE = frozenset(
    "--model --tensor-parallel-size -tp --enable-lora --kernel-config --kernel-config.moe_backend --profiler-config "
    "--hf-overrides".split()
)
FLAGS = OF_ENGINE | {"--host", "--port", "--api-key", "--api-server-count", "--headless"}


def told(*words: str, flags: frozenset[str] | None = FLAGS) -> list[str]:
    return list(strangers(words, known.dialects().of("0.32.0", Surface(flags=flags))))


def test_a_misspelled_flag_is_told_with_the_nearest_one() -> None:
    assert told("m", "--tensor-paralel-size", "2") == [
        "--tensor-paralel-size is no option of vLLM 0.32.0; did you mean --tensor-parallel-size?"
    ]
    assert told("m", "--no-enable-lroa") == [
        "--no-enable-lroa is no option of vLLM 0.32.0; did you mean --no-enable-lora?"
    ]
    assert told("m", "--qqq=1", "--qqq=2") == ["--qqq is no option of vLLM 0.32.0"]
    assert told("m", "--profle", "b200") == [
        "--profle is no option of vLLM 0.32.0; did you mean --profile, an option of safe-vllm, before the subcommand?"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "m --tensor-parallel-size 2",
        "m --tensor-par=2",
        "m --tensor_parallel_size=2",
        "m --no-enable-lora",
        "m --no-enable-lo",
        "m -tp 2 -O3 -cc.mode 3",
        "m --kernel-config.moe_backend --odd",
        "m --help --version --help=page",
        "m -- --tensor-paralel-size",
        "m --port -1",
    ],
)
def test_every_spelling_that_vllm_takes_is_left_alone(line: str) -> None:
    assert told(*line.split()) == []


def test_a_sentence_is_no_flag() -> None:
    assert told("m", "--hf-overrides", "--- a template") == []


def test_nothing_is_misspelled_where_the_flags_could_not_be_read() -> None:
    assert told("m", "--qqq", flags=None) == []
    assert told("m", "--qqq", flags=OF_ENGINE) == []


@pytest.mark.parametrize("flags", [FLAGS, None])
def test_an_option_of_ours_behind_the_subcommand_is_told(flags: frozenset[str] | None) -> None:
    [said] = told("m", "--stop-timeout", "20", flags=flags)
    assert said.startswith("--stop-timeout is an option of safe-vllm and stands before the subcommand")
    assert told("m", "--profile=x", flags=flags)


def test_an_option_that_vllm_has_too_is_vllms() -> None:
    assert told("m", "--output", "x", flags=FLAGS | {"--output"}) == []


def test_our_options_are_those_of_the_command_line() -> None:
    names = {name for param in cli.params for name in param.opts if name.startswith("--")}
    assert names - {"--help", "--version"} == OURS
