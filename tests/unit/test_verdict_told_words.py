"""The command of a server, read from its own line of arguments."""

from __future__ import annotations

import pytest

from safe_vllm.verdict.evidence import Evidence
from safe_vllm.verdict.told_words import told_words

NEW, OLD = "INFO [utils.py:233] non-default args: {%s}", "INFO [api_server.py:1] args: Namespace(%s)"


def words(line: str, signature: str = "arguments") -> tuple[str, ...] | None:
    return told_words([Evidence(1, line, "marker", signature)])


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("", ()),
        ("'model_tag': 'm', 'enforce_eager': True", ("--model-tag", "m", "--enforce-eager")),
        ("'async_scheduling': False, 'revision': None", ("--no-async-scheduling",)),
        (
            "'max_model_len': 200000, 'gpu_memory_utilization': 0.9",
            ("--max-model-len", "200000", "--gpu-memory-utilization", "0.9"),
        ),
        ("'api_key': ['***', 'a, b'], 'port': 8000", ("--api-key", "['***', 'a, b']", "--port", "8000")),
        ("'served_model_name': [\"it's, {odd\"], 'port': 1", ("--served-model-name", '["it\'s, {odd"]', "--port", "1")),
        ("'note': 'a\\'b, c', 'port': 1", ("--note", "a\\'b, c", "--port", "1")),
        (
            "'compilation_config': {'enforce_eager': True, 'mode': 3}",
            ("--compilation-config", "{'enforce_eager': True, 'mode': 3}"),
        ),
        ("'moe_backend': 'triton'", ("--moe-backend", "triton", "--moe-backend", "triton")),
    ],
)
def test_the_line_of_what_is_not_the_default_becomes_words(told: str, expected: tuple[str, ...]) -> None:
    assert words(NEW % told) == expected


def test_the_older_line_becomes_words_too() -> None:
    told = "model='m', enforce_eager=False, revision=None, moe_backend='auto', quantization=Quantization(a=1, b=2)"
    assert words(OLD % told) == (
        *(
            "--model",
            "m",
            "--no-enforce-eager",
            "--moe-backend",
            "auto",
            "--quantization",
            "Quantization(a=1, b=2)",
        ),
    )


def test_what_a_rung_changes_counts_within_a_configuration_too() -> None:
    told = "'kernel_config': {'enable_flashinfer_autotune': False, 'moe_backend': 'marlin'}"
    found = words(NEW % told)
    assert found is not None
    assert found[-3:] == ("--no-enable-flashinfer-autotune", "--moe-backend", "marlin")


def test_of_several_lines_the_last_counts() -> None:
    lines = [Evidence(at, NEW % f"'port': {at}", "marker", "arguments") for at in (1, 2)]
    assert told_words(lines) == ("--port", "2")


@pytest.mark.parametrize(
    ("line", "signature"),
    [((NEW % "'a': 1")[:-1], "arguments"), (NEW % "'a': 1", "engine-configuration"), ("", "arguments")],
)
def test_without_a_whole_line_of_arguments_nothing_is_known(line: str, signature: str) -> None:
    assert words(line, signature) is None
