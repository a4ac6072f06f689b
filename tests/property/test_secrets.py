"""Wherever an operator writes a secret, nothing that we print before vLLM runs has it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from incident_cases import SALT, autotune_fault
from safe_vllm.announce import banner
from safe_vllm.attempt.tail import Tail
from safe_vllm.commands import doctor
from safe_vllm.commands import plan as planning
from safe_vllm.plan.command import command
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Rung
from safe_vllm.preparing import prepare
from safe_vllm.record import incidents
from safe_vllm.record.incident import Earlier, Incident
from safe_vllm.record.incident_making import Following, Material, incident_of
from safe_vllm.verdict.evidence import Advised, Evidence, ProcessEnd

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


NEEDLES = (FIRST, LAST, quote(FIRST, safe=""))
PLACES = (
    "{}",
    "before {} after",
    "api_key={}",
    "  x-api-key: {}",
    "'Authorization': 'Bearer {}'",
    "GET /v1/models?token={} HTTP/1.1",
    "https://me:{}@host/path",
    '{{"a": {{"password": "{}"}}, "b": [1]}}',
    "non-default args: {{'api_key': ['{}', 'other'], 'x': 1}}",
    "\x1b[31m{}\x1b[0m",
    "100%|###| 5/5 [00:01<00:00, 3.0it/s]\r{}\r",
)
"""Positions in a line of output. A secret that the launch knows is hidden in all of them."""
TELLING_PLACES = (*PLACES[2:6], PLACES[7])
"""Positions that tell of a secret that nobody knows."""


def spelled(secret: str) -> Sequence[str]:
    """Return the ways in which programs print a secret."""
    return (
        *(secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]),
        *(quote(secret), quote(secret, safe="")),
    )


def log_of(lines: Sequence[str]) -> Tail:
    """Return what is kept of an output with these lines."""
    tail = Tail()
    for line in lines:
        tail.feed("stdout", line.encode() + b"\n")
    return tail


@cache
def a_failed_attempt() -> Material:
    """Return one, made once."""
    return autotune_fault()


def soaked(
    words: Sequence[str], environment: dict[str, str], lines: Sequence[str], config: dict[str, object]
) -> Material:
    """Return a failed attempt every text of which has such lines in it."""
    text, first, base = "\n".join(lines), lines[0], a_failed_attempt()
    tail = log_of(lines)
    rung = Rung("as-asked", tuple(words), (("OUR_SECRET", environment["OUR_SECRET"]),))
    below = replace(base.plan.ladder.rungs[1], words=(*words, "--no-enable-flashinfer-autotune"))
    roots = tuple(
        Evidence(at, line, "root" if at == 1 else "echo", "x", fault="hang", process=line)
        for at, line in enumerate(lines, 1)
    )
    verdict = replace(
        base.verdict, reason=first, evidence=roots, advised=tuple(map(Advised, lines)), backend=first, cache=first
    )
    variables = {name: value for name, value in environment.items() if name != "OUR_SECRET"}
    return replace(
        base,
        salt=SALT,
        rung=rung,
        command=command(rung, ("vllm",), variables),
        verdict=replace(verdict, setup=replace(verdict.setup, vllm=first)),
        seen=replace(base.seen, ends=tuple(ProcessEnd(line, 1, -6) for line in lines)),
        following=Following(text, below, command(below, ("vllm",), variables), 1.0),
        history=[Earlier(1, first, "hang", "init", 1.0)],
        around=tail.lines_around(2),
        tail=tail.last_lines(),
        stacks=[(1, line, text) for line in lines],
        stacks_problem=text,
        caches=[(line, line) for line in lines],
        config=config,
    )


def uncovered(incident: Incident) -> list[str]:
    """Return the lines of the files of a report that have an end of a secret."""
    lines = [line for text in incidents.contents(incident).values() for line in text.splitlines()]
    return [line for line in lines if any(needle in line for needle in NEEDLES)]


ENDLESS = "x" * 1990


@settings(max_examples=60)
@given(secret=ANY, plain=PLAIN, data=st.data())
def test_no_secret_is_in_any_file_of_a_report(secret: str, plain: str, data: st.DataObject) -> None:
    secret = secret.strip().replace("\n", "------\n------")  # lines that could be a part of any word are not known
    flag = data.draw(st.sampled_from(["--api-key", "--hf-token", "--api-k"]))
    name = data.draw(NAMES)
    places = data.draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=4))
    known = [place.format(written) for place in places for written in spelled(secret)]
    told = [place.format(plain) for place in data.draw(st.lists(st.sampled_from(TELLING_PLACES), max_size=3))]
    lines = ["a root line", *known, *told, *(f"{ENDLESS}{line}" for line in known[:2])]
    lines = [part for line in lines for part in line.split("\n")]
    words = ("m", f"{flag}={secret}", "--x", f"https://me:{plain}@host", "--y", as_json("hf_token", [secret, plain]))
    environment = {name: secret, "VLLM_X": f"a {plain}", "VLLM_KEY": plain, "OUR_SECRET": secret}
    incident = incident_of(soaked(words, environment, lines, {"api-key": [plain, secret]}))
    assert uncovered(incident) == []
    assert len(shlex.split(incident.command)) > len(words)


@settings(max_examples=60)
@given(secret=PLAIN, written=st.lists(WORDS, min_size=1, max_size=3))
def test_no_secret_of_any_option_is_in_a_report(secret: str, written: list[tuple[str, ...]]) -> None:
    words = ("m", *(word for found in written for word in ("--y=1", *found)), "--z=1")
    texts = [" ".join(found) for found in written if not any("\n" in word for word in found)]
    incident = incident_of(soaked(words, {"OUR_SECRET": secret}, ["a", "b", *texts], {}))
    assert uncovered(incident) == []


@given(before=PLAIN, after=PLAIN, size=st.integers(1, 60))
def test_no_half_of_a_secret_is_left_where_output_was_dropped(before: str, after: str, size: int) -> None:
    tail = Tail(size)
    tail.feed("stdout", f"x api_key={before}\nlast api_key={after}\n".encode())
    found = incident_of(replace(a_failed_attempt(), around=(), tail=tail.last_lines()))
    assert uncovered(found) == []
