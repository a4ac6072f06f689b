"""Secrets are hidden, and nothing else."""

from __future__ import annotations

import pytest

from safe_vllm.plan.explain import difference, variable_line
from safe_vllm.plan.ladder import Rung
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
        (["https://me:pa/ss@host/y"], ["https://***@host/y"]),
        (["https://me:p@/ss@host/y"], ["https://***@host/y"]),
        (["http://host:8000/a@b", "http://host:8000"], ["http://host:8000/a@b", "http://host:8000"]),
        (["https://h/p?a=1&api_key=k1&b=2&sig=s"], ["https://h/p?a=1&api_key=***&b=2&sig=***"]),
        (["--x", '{"api_key": "k\\"1", "a": 1}'], ["--x", '{"api_key": "***", "a": 1}']),
        (["--x", '{"a": {"hfToken": ["k]1", {"b": "k2"}]}}'], ["--x", '{"a": {"hfToken": "***"}}']),
        (['--x={"secret": {"a": "k1"}}'], ['--x={"secret": "***"}']),
        (["--x", '{"moe_backend":  "triton"}'], ["--x", '{"moe_backend":  "triton"}']),
        (["--x", "{'password': 'k1', a: 1"], ["--x", "{'password': \"***\", a: 1"]),
        (["--x", "{api_key: k1}"], ["--x", "{api_key: ***}"]),
        (["api_key=k1 & k2", "a", "HF_TOKEN=k3"], ["api_key=***", "a", "HF_TOKEN=***"]),
        (["--x", "a password=k1"], ["--x", "a password=***"]),
        (["--x=token=k1"], ["--x=token=***"]),
        (["--api-key", "-k1", "--port", "1"], ["--api-key", "***", "--port", "1"]),
        (["--hf-overrides.api_key=k1"], ["--hf-overrides.api_key=***"]),
        (["--header", "Authorization: Bearer k1"], ["--header", "Authorization: Bearer ***"]),
        (["Authorization:", "Bearer", "k1", "b"], ["Authorization:", "Bearer", "***", "b"]),
        (["authorization=Basic azE="], ["authorization=***"]),
        (["hf_" + "aB3" * 11, "x:hf_" + "aB3" * 11], ["***", "x:***"]),
        (["sk-" + "a1-" * 7, "nvapi-" + "a1" * 9], ["***", "***"]),
        (["hf_overrides", "org/sk-model", "max_tokens=3"], ["hf_overrides", "org/sk-model", "max_tokens=3"]),
        (["--eos-token-id", "3", "--tokenizer", "t"], ["--eos-token-id", "3", "--tokenizer", "t"]),
    ],
)
def test_secrets_are_hidden_and_nothing_else(words: list[str], shown: list[str]) -> None:
    assert list(hide(words)) == shown


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "X_SECRET", "DB_PASSWORD", "hf_token", "PASSWORD"),
        *("NGC_APIKEY", "DB_PASSWD", "GOOGLE_CREDENTIALS", "PGPASSWORD", "APP_PASS", "API_KEYS", "OPENAIAPIKEY"),
    ],
)
def test_a_variable_whose_name_says_secret_is_hidden(name: str) -> None:
    assert hide_variable(name, "hunter2") == "***"


@pytest.mark.parametrize(
    "name", ["CUDA_LIB_PATH", "VLLM_MAX_TOKENS", "KEYS", "TOKENIZERS_PARALLELISM", "MONKEY", "COMPASS"]
)
def test_other_variables_are_shown(name: str) -> None:
    assert hide_variable(name, "/usr/lib") == "/usr/lib"


def test_credentials_in_the_address_of_a_variable_are_hidden() -> None:
    assert hide_variable("PROXY", "http://me:pass@host:1 http://you:p@h") == "http://***@host:1 http://***@h"


@pytest.mark.parametrize(
    "part", ["://a", "api_key", "a-", "_", '"key":[', "bearer ", "key = ", "{x:", "authorization "]
)
def test_a_long_text_takes_no_longer_than_it_is_long(part: str, deadline: None) -> None:
    text = part * 20_000
    assert hide_variable("X", f"{text} https://me:k1@host").endswith("https://***@host")
    assert len(hide([text, f"--x={text}"])) == 2


def test_what_a_rung_changes_in_a_flag_shows_no_secret_of_it() -> None:
    before = Rung("as-asked", ("--speculative-config", '{"method": "mtp", "hf_token": "k1"}'))
    after = Rung("triton", ("--speculative-config", '{"method": "mtp", "hf_token": "k1", "moe_backend": "triton"}'))
    [line] = difference(before, after)
    assert "k1" not in line
    assert "triton" in line


def test_a_quote_in_a_secret_does_not_uncover_it() -> None:
    assert variable_line("X", """{"api_key": "it's k1"}""") == """X='{"api_key": "***"}'"""
