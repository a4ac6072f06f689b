"""The MoE backend, autotune and the switches are changed where the operator wrote them."""

from __future__ import annotations

import pytest

from safe_vllm.plan.edit import with_switch, with_value
from safe_vllm.plan.flags import Setting
from safe_vllm.plan.settings import autotune, moe_backend, with_moe_backend, without_autotune

EP = "--enable-expert-parallel"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("m",), ("m", "--moe-backend", "triton")),
        (("m", "--moe-backend", "marlin", "-tp", "2"), ("m", "--moe-backend", "triton", "-tp", "2")),
        (("m", "--moe_back=marlin"), ("m", "--moe_back=triton")),
        (("--moe=a", "m", "--moe=b"), ("--moe=triton", "m", "--moe=triton")),
        (("m", "--", "x"), ("m", "--moe-backend", "triton", "--", "x")),
        (
            ("m", "--kernel-config", '{"moe_backend": "marlin", "other": 1}'),
            ("m", "--kernel-config", '{"moe_backend": "triton", "other": 1}'),
        ),
        (("m", "--kernel-config.moe_backend=marlin"), ("m", "--kernel-config.moe_backend=triton")),
        (("m", "--kernel_config.moe_backend", "marlin"), ("m", "--kernel_config.moe_backend", "triton")),
        (("m", "--kernel-config", '{"other": 1}'), ("m", "--kernel-config", '{"other": 1}', "--moe-backend", "triton")),
        (
            ("m", "--moe-backend", "auto", "--kernel-config.moe_backend=marlin"),
            ("m", "--moe-backend", "triton", "--kernel-config.moe_backend=triton"),
        ),
        (("m", "--moe-backend", "TRITON"), ("m", "--moe-backend", "TRITON")),
    ],
)
def test_p4_a_backend_is_changed_in_the_operators_own_spelling(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    assert with_moe_backend(before, "triton") == after


def test_auto_undoes_the_kernel_config_too_because_the_flag_would_not() -> None:
    before = ("m", "--kernel-config", '{"moe_backend": "marlin"}', "--moe-backend=flashinfer-trtllm")
    after = with_moe_backend(before, "auto")
    assert after == ("m", "--kernel-config", '{"moe_backend": "auto"}', "--moe-backend=auto")


def test_auto_adds_nothing_where_no_backend_was_asked_for() -> None:
    assert with_moe_backend(("m", "-tp", "2"), "auto") == ("m", "-tp", "2")


def test_a_backend_of_the_config_file_is_beaten_by_the_command_line() -> None:
    assert with_moe_backend(("m",), "auto", {"moe-backend": "marlin"}) == ("m", "--moe-backend", "auto")
    words = with_moe_backend(("m",), "auto", {"kernel-config": {"moe_backend": "marlin", "x": 1}})
    assert words == ("m", "--kernel-config", '{"moe_backend": "auto", "x": 1}')
    assert with_moe_backend(("m",), "auto", {"kernel_config.moe_backend": "marlin", "port": 1}) == (
        "m",
        "--kernel-config.moe_backend=auto",
    )


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("m", "auto"),
        ("m --moe-backend FlashInfer-TRTLLM", "flashinfer_trtllm"),
        ("m --moe-backend auto --kernel-config.moe_backend=triton", "triton"),
        ("m --moe-backend marlin --kernel-config.moe_backend=triton", "marlin"),
        ('m --kernel-config={"moe_backend":"triton"}', "triton"),
        ('m --kernel-config={"moe_backend":"triton"} --kernel-config.other=1', "auto"),
        ('m --kernel-config.other=1 --kernel-config={"moe_backend":"triton"}', "auto"),
        ('m --kernel-config={"moe_backend":"triton"} --kernel-config={}', "auto"),
        ("m --kernel-config=[1]", "auto"),
        ("m --kernel-config={", "auto"),
    ],
)
def test_the_backend_in_effect_is_the_one_that_vllm_would_use(line: str, value: str) -> None:
    assert moe_backend(line.split()).value == value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("m",), ("m", "--no-enable-flashinfer-autotune")),
        (("m", "--enable-flashinfer-autotune", "-tp", "2"), ("m", "--no-enable-flashinfer-autotune", "-tp", "2")),
        (("m", "--no_enable_flashinfer_autotune"), ("m", "--no_enable_flashinfer_autotune")),
        (
            ("m", '--kernel-config={"enable_flashinfer_autotune": true}'),
            ("m", '--kernel-config={"enable_flashinfer_autotune": false}'),
        ),
        (
            ("m", "--kernel-config.enable_flashinfer_autotune", "1"),
            ("m", "--kernel-config.enable_flashinfer_autotune", "False"),
        ),
        (
            ("m", "--kernel-config.moe_backend=triton"),
            ("m", "--kernel-config.moe_backend=triton", "--no-enable-flashinfer-autotune"),
        ),
    ],
)
def test_p4_autotune_never_has_a_flag_beside_its_kernel_config_key(
    before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    assert without_autotune(before) == after
    assert autotune(after).value is False


def test_a_kernel_config_key_of_the_config_file_is_repeated_whole_and_changed() -> None:
    config = {"kernel-config": {"enable_flashinfer_autotune": True, "moe_backend": "triton"}}
    words = without_autotune(("m",), config)
    assert words == ("m", "--kernel-config", '{"enable_flashinfer_autotune": false, "moe_backend": "triton"}')
    assert (autotune(words, config).value, moe_backend(words, config).value) == (False, "triton")


def test_the_lowest_optimization_level_has_autotune_off() -> None:
    assert autotune(("m", "-O0")) == Setting(False, "user")
    assert autotune(("m", "-O0", "--enable-flashinfer-autotune")) == Setting(True, "user")
    assert autotune(("m",)).value is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("m", EP, "-tp", "2"), ("m", "-tp", "2")),
        (("m", "-ep", "--", "x"), ("m", "--", "x")),
        (("m", "-tp", "2"), ("m", "-tp", "2")),
        (("--api-key", "a", "-ep", "m"), ("--api-key", "a", "--no-enable-expert-parallel", "m")),
    ],
)
def test_a_switch_is_taken_out_unless_it_kept_two_words_apart(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    assert with_switch(before, EP, False) == after


def test_a_switch_of_the_config_file_is_contradicted() -> None:
    assert with_switch(("m",), EP, False, {"enable-expert-parallel": True}) == ("m", "--no-enable-expert-parallel")


def test_the_word_behind_a_value_is_not_part_of_it() -> None:
    assert with_value(("-tp", "2", "m"), "--tensor-parallel-size", "4") == ("-tp", "4", "m")


def test_a_value_that_holds_already_changes_nothing() -> None:
    assert with_value(("m",), "--data-parallel-size", "1") == ("m",)
    assert with_value(("m",), "--data-parallel-size", "2", {"data_parallel_size": 2}) == ("m",)
