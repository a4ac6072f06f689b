"""Secrets are hidden, and nothing else."""

from __future__ import annotations

import pytest

from safe_vllm.plan.secrets import hide, hide_variable


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "k1", "k2", "--port", "1"], ["--api-key", "***", "***", "--port", "1"]),
        (["--api-key=k1"], ["--api-key=***"]),
        (["--api_key", "k1"], ["--api_key", "***"]),
        (["--api-k", "k1"], ["--api-k", "***"]),
        (["--api_k=k1"], ["--api_k=***"]),
        (["--api", "k1"], ["--api", "***"]),
        (["--api-key", "-1", "-", "-a b", "--port", "1"], ["--api-key", "***", "***", "***", "--port", "1"]),
        (["--hf-token", "t"], ["--hf-token", "***"]),
        (["--hf-t", "t"], ["--hf-t", "***"]),
        (["--future.secret", "t"], ["--future.secret", "***"]),
        (["--api-server-count", "2"], ["--api-server-count", "2"]),
        (["--hf-overrides", "x"], ["--hf-overrides", "x"]),
        (["--host", "h"], ["--host", "h"]),
        (["--max-num-batched-tokens", "8192"], ["--max-num-batched-tokens", "8192"]),
        (["--ssl-keyfile", "/etc/key.pem"], ["--ssl-keyfile", "/etc/key.pem"]),
        (["--", "a"], ["--", "a"]),
        (["-", "a"], ["-", "a"]),
        (["--x", "https://me:pass@host/y"], ["--x", "https://***@host/y"]),
        (["--x=https://me:p@ss@host/y"], ["--x=https://***@host/y"]),
    ],
)
def test_secrets_are_hidden_and_nothing_else(words: list[str], shown: list[str]) -> None:
    assert list(hide(words)) == shown


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "X_SECRET", "DB_PASSWORD", "hf_token", "PASSWORD"]
)
def test_a_variable_whose_name_says_secret_is_hidden(name: str) -> None:
    assert hide_variable(name, "hunter2") == "***"


@pytest.mark.parametrize("name", ["CUDA_LIB_PATH", "VLLM_MAX_TOKENS", "KEYS", "TOKENIZERS_PARALLELISM", "MONKEY"])
def test_other_variables_are_shown(name: str) -> None:
    assert hide_variable(name, "/usr/lib") == "/usr/lib"


def test_credentials_in_the_address_of_a_variable_are_hidden() -> None:
    assert hide_variable("PROXY", "http://me:pass@host:1 http://you:p@h") == "http://***@host:1 http://***@h"
