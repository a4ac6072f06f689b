"""Wherever an operator writes a secret, nothing that we print before vLLM runs has it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safe_vllm import doctor, planning
from safe_vllm.announce import banner
from safe_vllm.plan.intent import Intent
from safe_vllm.preparing import prepare

MACHINE = str(Path(__file__).parents[1] / "golden/machines/gb200-4-flashinfer-0.6.12.json")
PROFILE = """
name: mine
description: mine
environment: {environment}
ladder:
  - rung: as-asked
  - rung: no-autotune
  - rung: triton
    environment: {environment}
"""
FIRST, LAST = "Xq7Z", "Z7qX"
"""What no line may have: neither a secret nor an end of it."""


def secrets(alphabet: str) -> st.SearchStrategy[str]:
    return st.text(alphabet, max_size=40).map(lambda text: f"{FIRST}{text}{LAST}")


PLAIN = secrets("abcXYZ019-._~+")
ANY = secrets("abcXYZ019-._~+ /=&?#%:;,@!()[]{}$*|^`'\"\\ü\n")
ADDRESS = secrets("abcXYZ019-._~+/=&?#%:;,@!$*|")
HEX = secrets("abcdefXYZ0123456789")
NAMES = st.sampled_from(["NGC_APIKEY", "DB_PASSWD", "GOOGLE_CREDENTIALS", "HF_TOKEN", "X_SECRET", "MY_KEY", "PASSWORD"])


def in_words(found: st.SearchStrategy[str], *forms: str) -> st.SearchStrategy[tuple[str, ...]]:
    """Return words with a secret within: one of these lines, the words of which are apart by a bar."""
    return st.tuples(found, st.sampled_from(forms)).map(
        lambda both: tuple(word.replace("\0", both[0]) for word in both[1].split("|"))
    )


def as_json(name: str, secret: object) -> str:
    return json.dumps({"method": "mtp", "deep": [{name: secret}]})


WORDS = st.one_of(
    in_words(ANY, "--api-key=\0", "--hf_token=\0", "--api-k=\0", "--future.password=\0", "api_key=\0", "DB_PASSWD=\0"),
    in_words(PLAIN, "--api-key|\0", "--api-key|x|\0", "--hf-t|\0", "--x|Bearer \0", "Bearer|\0"),
    in_words(PLAIN, "--x|Authorization: Basic \0", "--x|Authorization: Bearer \0"),
    in_words(PLAIN, "--x|https://h/p?token=\0&a=b", "--x=https://h/?sig=\0", "--x|{api_key: \0, b: c}"),
    in_words(ADDRESS, "--x|https://me:\0@host/y", "--x=s3://me:\0@host:80"),
    in_words(HEX, "hf_\0\0", "--x|hf_\0\0", "--x=hf_\0\0"),
    st.tuples(ANY, st.sampled_from(["--speculative-config", "--kernel-config", "--x"])).map(
        lambda both: (both[1], as_json("hf_token", {"a": [both[0]]}))
    ),
)


def lines_of(intent: Intent) -> list[str]:
    """Return all that is printed about a launch before its first attempt."""
    prepared = prepare(intent)
    case = doctor.examined(intent)
    found = doctor.checked(case)
    told = [planning.told(prepared, output) for output in ("text", "json")]
    told += [doctor.told(found, case.machine, output) for output in ("text", "json")]
    rungs = prepared.plan.ladder.rungs
    steps = [banner.step(2, above, below, 1.0, "why", prepared.plan.unread) for above, below in pairwise(rungs)]
    return [*told, *banner.opening(prepared.plan, "0.23.0"), *(line for lines in steps for line in lines)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=st.lists(WORDS, min_size=1, max_size=3), name=NAMES, kept=ANY)
def test_no_secret_is_printed(
    written: list[tuple[str, ...]], name: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = tmp_path / "mine.yaml"
    kept = kept.replace("\n", " ")
    profile.write_text(PROFILE.replace("{environment}", json.dumps({name: kept})))
    with monkeypatch.context() as patch:
        patch.setenv("VLLM_OTHER_SECRET", kept)
        words = ("org/model", *(word for words in written for word in ("--y=1", *words)), "--z=1")
        told = lines_of(Intent(words, machine=MACHINE, profile=str(profile)))
    assert not [line for text in told for line in text.splitlines() if FIRST in line or LAST in line]
