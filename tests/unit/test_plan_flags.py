"""Every spelling that vLLM takes is read as vLLM reads it (checked against the parser of vLLM 0.32)."""

from __future__ import annotations

import pytest

from safe_vllm.plan.flags import Setting, config_words, read, scan


def words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "m --moe-backend triton",
        "m --moe-backend=triton",
        "m --moe_backend triton",
        "m --moe_backend=triton",
        "m --moe-back triton",
        "m --moe=triton",
        "--moe-backend marlin m --moe-backend triton",
        "m --moe-backend triton -- --moe-backend marlin",
        "m --moe-backend triton --hf-overrides.name --moe-backend=marlin",
    ],
)
def test_p4_a_value_is_read_in_every_spelling(line: str) -> None:
    assert read(words(line)).setting("--moe-backend") == Setting("triton", "user")


@pytest.mark.parametrize("line", ["-tp 4", "-tp=4", "--tensor-parallel-size 4", "--te=4", "-tp 2 -tp 4"])
def test_short_and_long_forms_are_one_flag(line: str) -> None:
    assert read(words(line)).number("--tensor-parallel-size") == 4


@pytest.mark.parametrize("line", ["-n2 -r1", "-n=2 -r=1", "-n 2 -r 1", "--nnodes 2 --node-rank=1"])
def test_a_flag_of_one_letter_may_be_joined_with_its_value(line: str) -> None:
    reading = read(words(line))
    assert (reading.number("--nnodes"), reading.number("--node-rank")) == (2, 1)


@pytest.mark.parametrize("line", ["-dp 2 -dpl 1", "-dpl=1 --data-parallel-size=2", "--data-parallel-size- 1 -dp=2"])
def test_flags_that_begin_alike_are_told_apart(line: str) -> None:
    reading = read(words(line))
    assert reading.number("--data-parallel-size") == 2
    assert reading.number("--data-parallel-size-local") == 1


@pytest.mark.parametrize(
    ("line", "is_on"),
    [
        ("--enable-expert-parallel", True),
        ("-ep", True),
        ("--enable-ex", True),
        ("--enable_expert_parallel", True),
        ("--no-enable-expert-parallel", False),
        ("--no-enable-expert_parallel", False),
        ("--no-enable-ex", False),
        ("-ep --no-enable-expert-parallel", False),
        ("--no-enable-expert-parallel -ep", True),
        ("", False),
    ],
)
def test_the_last_of_a_switch_and_its_negative_wins(line: str, is_on: bool) -> None:
    assert read(words(line)).setting("--enable-expert-parallel").value is is_on


@pytest.mark.parametrize("line", ["-O0", "-O=0", "-O 0", "--optimization-level 0", "-O3 -O0"])
def test_the_optimization_level_is_read_in_every_form(line: str) -> None:
    assert read(words(line)).setting("--optimization-level").value == "0"


@pytest.mark.parametrize(
    "line",
    [
        "--moe-backend",
        "--moe-backend -tp",
        "--enable-flashinfer-autotune=False",
        "--moe-backends triton",
        "--no-moe-backend triton",
        "-t 2",
        "-O",
        "-dp2",
        "--data-parallel-siz 2",
        "moe-backend triton",
    ],
)
def test_what_vllm_rejects_or_does_not_know_is_not_read(line: str) -> None:
    assert scan(words(line)) == ()


def test_words_that_only_contain_a_flag_are_not_flags() -> None:
    assert scan(("--chat-template", "{{ x }} --moe-backend triton", "--prompt=--moe-backend")) == ()


def test_a_flag_takes_several_values_up_to_the_next_flag() -> None:
    reading = read(("m", "--api-key", "one", "-1", "two", "--port", "1"))
    assert reading.values("--api-key") == ("one", "-1", "two")


def test_the_source_of_a_value_is_told() -> None:
    reading = read(("m", "-tp", "2"), {"data-parallel-size": 4, "tensor_parallel_size": 8})
    assert reading.setting("--tensor-parallel-size") == Setting("2", "user")
    assert reading.setting("--data-parallel-size") == Setting("4", "config")
    assert reading.setting("--moe-backend") == Setting("auto", "default")


def test_a_config_file_is_read_as_vllm_does() -> None:
    config = {"enable-eplb": True, "enable_expert_parallel": False, "api-key": ["a", "b"], "port": 1, "x": {"y": None}}
    assert config_words(config) == ("--enable-eplb", "--api-key", "a", "b", "--port", "1", "--x", '{"y": null}')


def test_a_size_that_is_no_number_is_none() -> None:
    assert read(("-tp", "two")).number("--tensor-parallel-size") is None
    assert read(("-tp", "²")).number("--tensor-parallel-size") is None
