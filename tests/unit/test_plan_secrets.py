"""Secrets are hidden, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from safe_vllm.plan.explain import difference, variable_line
from safe_vllm.plan.ladder import Rung
from safe_vllm.plan.secrets import hide, hide_variable, without_secrets


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password: hunter2", "password: ***"),
        ("X-Api-Key: hunter2", "X-Api-Key: ***"),
        ("passwd:hunter2", "passwd:***"),
        ("OpenAI(api_key='hunter 2', x=1)", "OpenAI(api_key='***', x=1)"),
        ("PASSWORD = 'hunter 2'", "PASSWORD = '***'"),
        ('api_key: "hunter2"', 'api_key: "***"'),
        ('{"log": "api_key=\\"hunter2\\" b"}', '{"log": "api_key=\\"***\\" b"}'),
        ("api_key='hunter", "api_key='***'"),
        ("--api-key 'hunter 2' --port 1", "--api-key '***' --port 1"),
        ("'api_key': {'a': 'hunter2'}, 'b': 1", "'api_key': \"***\", 'b': 1"),
        ("Set-Cookie: sid=hunter2; Path=/", "Set-Cookie: ***"),
        ("curl -H 'Cookie: sid=\"hunter2\"' http://host", "curl -H 'Cookie: ***' http://host"),
        ("{'Cookie': 'sid=hunter2', 'b': 1}", "{'Cookie': \"***\", 'b': 1}"),
        ("[(b'cookie', b'sid=hunter2'), (b'host', b'h')]", "[(b'cookie', b'***'), (b'host', b'h')]"),
        ("[(b'authorization', b'Basic hunter2')]", "[(b'authorization', b'***')]"),
        ("token: hunter2-abc", "token: ***"),
        ("for glpat-" + "a1" * 10, "for ***"),
        ("for github_pat_" + "a1" * 10, "for ***"),
        ("for xoxb-123-456-abc", "for ***"),
        ("for eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln!", "for ***!"),
    ],
)
def test_secrets_that_nobody_knows_are_told_by_what_stands_before_them_or_by_their_looks(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("tokens: 12", "Key: value", "token: 12", "key: model.layers.0.mlp", "KeyError: 'hunter2'", "max_tokens=8192"),
        *(
            "eos_token='<|im_end|>', pad_token: <pad>",
            "time_per_token: 0.123456",
            "compile_pass: 3.25",
            "jit::pass::run",
        ),
        *("hf_token=None, api_key=None)", "def f(hf_token: None = None)", "Unexpected key: lm_head.weight"),
        *("pass `token=<your_token>`", "http://key:8000/x", "('encode', 'token', 'score')", "a cookie for 2 workers"),
        "INFO 11-30 08:40:48 [core.py:58] Initializing a V1 LLM engine (v0.23.0) with config: model='m', seed=0",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert without_secrets(text) == text


GOLDEN = Path(__file__).parents[1] / "golden"


def texts(value: object) -> Iterator[str]:
    """Yield all texts in JSON."""
    if isinstance(value, str):
        yield from value.split("\n")
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def test_no_line_of_recorded_output_is_changed() -> None:
    logs = [line for path in (GOLDEN / "real").glob("*.log") for line in path.read_text("utf-8").split("\n")]
    folders = ("corpus", "reports", "machines")
    kept = [json.loads(path.read_text("utf-8")) for folder in folders for path in (GOLDEN / folder).glob("*.json")]
    lines = {*logs, *(line for each in kept for line in texts(each))}
    assert len(lines) > 3000
    assert [line for line in lines if without_secrets(line) != line] == []
