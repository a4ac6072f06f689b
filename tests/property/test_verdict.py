"""What no cutting, quoting or repeating may change."""

# ruff: noqa: E501 - lines of a log are as long as they are

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaying import observe_chunks, observe_log
from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.evidence import FAULTS, PHASES, SUSPECTS, Evidence, Observations, ProcessEnd
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.scan import Scan
from safe_vllm.verdict.signatures import parse

SIGNATURES = parse(read_data("signatures.yaml"))
CORPUS = Path(__file__).parents[1] / "golden" / "corpus"
CASES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(CORPUS.glob("*.json"))}
HEALTHY = (
    "(APIServer pid=1) INFO 08-06 09:59:50 [api_server.py:1] vLLM API server version 0.26.0\n"
    "(APIServer pid=1) INFO:     Application startup complete.\n"
    '(APIServer pid=1) INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
)
ANSWER = '(APIServer pid=1) INFO:     127.0.0.1:2 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
TOKENS = (
    "(APIServer pid=1) INFO 08-06 10:00:00 [loggers.py:259] Engine 000: Avg prompt throughput: 0.2 tokens/s, "
    "Avg generation throughput: 212.4 tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"
)
FAULTY = [s for s in SIGNATURES.all if s.kind in ("root", "echo") and not s.name.startswith("no-tokens")]
ECHOES = [s for s in SIGNATURES.all if s.kind in ("echo", "advice") and not (s.fault or s.suspect or s.phase)]

ROOTED = [
    name
    for name, case in CASES.items()
    if [e.kind for e in judge(observe_log(case["transcript"].encode(), case["exit"], SIGNATURES)).evidence[:1]]
    == ["root"]
]
"""The cases that a root line decides; where there is none, an echo may be news."""

cases = st.sampled_from(sorted(CASES))
signatures = st.sampled_from(FAULTY)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return ``data`` cut at ``cuts``."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(places)]


@given(cases, st.lists(st.integers(min_value=0), max_size=40))
def test_a_verdict_does_not_depend_on_how_the_stream_is_cut(name: str, cuts: list[int]) -> None:
    data = CASES[name]["transcript"].encode()
    whole = observe_log(data, CASES[name]["exit"], SIGNATURES)
    assert observe_chunks(chunks(data, cuts), CASES[name]["exit"], SIGNATURES) == whole


@pytest.mark.parametrize("name", ["a-003", "a-018", "d-004", "b-002"])
def test_a_verdict_is_the_same_byte_by_byte(name: str) -> None:
    data = CASES[name]["transcript"].encode()
    pieces = [data[place : place + 1] for place in range(len(data))]
    assert observe_chunks(pieces, None, SIGNATURES) == observe_log(data, None, SIGNATURES)


QUOTES = {
    "request": "(APIServer pid=1) INFO 10-11 08:00:01 [logger.py:40] Received request c-1: prompt: '{}', params: None.\n",
    "response": "(APIServer pid=1) INFO 10-11 08:00:01 [logger.py:60] Generated response c-1: output: '{}', finish_reason: x\n",
    "model": "(Worker pid=9) INFO 10-11 08:00:01 [runner.py:68] Starting to load model /models/{}...\n",
    "arguments": "(APIServer pid=1) INFO 10-11 08:00:01 [utils.py:233] non-default args: {{'model': '{}'}}\n",
    "engine": "(EngineCore pid=9) INFO 10-11 08:00:01 [core.py:77] Initializing a V1 LLM engine (v0.12.0) with config: model='{}'\n",
    "access": '(APIServer pid=1) INFO:     127.0.0.1:1 - "GET /v1/models/{} HTTP/1.1" 200 OK\n',
    "refused": '(APIServer pid=1) INFO:     127.0.0.1:1 - "POST /v1/{} HTTP/1.1" 404 Not Found\n',
}  # fmt: skip


@given(signatures, st.sampled_from(sorted(QUOTES)))
def test_quoted_words_change_nothing(signature: object, where: str) -> None:
    example = signature.example  # type: ignore[attr-defined]
    log = HEALTHY + QUOTES[where].format(example)
    verdict = judge(observe_log(log.encode(), None, SIGNATURES))
    assert (verdict.fault, verdict.action) == ("none", "none")


@given(signatures)
def test_words_that_a_calm_object_says_change_nothing(signature: object) -> None:
    said = f"Received request c-1: prompt: {signature.example!r}"  # type: ignore[attr-defined]
    log = HEALTHY + json.dumps({"asctime": "10-11 08:00:01", "levelname": "INFO", "message": said}) + "\n"
    verdict = judge(observe_log(log.encode(), None, SIGNATURES))
    assert (verdict.fault, verdict.action) == ("none", "none")


@given(signatures)
def test_a_fault_line_that_a_completed_request_followed_is_no_fault(signature: object) -> None:
    example = signature.example  # type: ignore[attr-defined]
    verdict = judge(observe_log((HEALTHY + example + "\n" + ANSWER).encode(), None, SIGNATURES))
    assert (verdict.fault, verdict.action) == ("none", "none")


@given(signatures, st.floats(0, 1000), st.floats(0, 1000))
def test_an_end_long_after_a_recovered_fault_is_not_put_down_to_it(
    signature: object, began: float, uptime: float
) -> None:
    scan = Scan(SIGNATURES)
    scan.feed("stdout", HEALTHY.encode(), began)
    scan.ready()
    scan.feed("stdout", (signature.example + "\n").encode(), began + 100)  # type: ignore[attr-defined]
    scan.settled(began + 101)
    # the server was ready only after a long start: its uptime is no measure of when a line came
    seen = Observations(
        0, scan.evidence, (), scan.phase, was_ready=True, uptime_s=uptime, ended_at_s=began + 101 + 61
    )  # fmt: skip
    assert judge(seen).fault in ("unknown", "stopped", "none")


@given(st.sampled_from(ROOTED), st.lists(st.tuples(st.integers(min_value=0), st.sampled_from(ECHOES)), max_size=6))
def test_more_echoes_and_advice_change_nothing(name: str, more: list[tuple[int, object]]) -> None:
    case = CASES[name]
    before = judge(observe_log(case["transcript"].encode(), case["exit"], SIGNATURES))
    lines = case["transcript"].splitlines()
    # behind the line that decides: an echo does not come before its cause
    first = before.evidence[0].number
    for place, signature in more:
        lines.insert(first + place % (len(lines) - first + 1), signature.example)  # type: ignore[attr-defined]
    after = judge(observe_log("\n".join(lines).encode(), case["exit"], SIGNATURES))
    assert (after.fault, after.action) == (before.fault, before.action)


statuses = st.one_of(st.none(), st.integers(-64, 255))
ends = st.lists(
    st.builds(
        ProcessEnd,
        st.sampled_from(["VLLM::Worker_TP0", "VLLM::EngineCore", "ninja", "VLLM::APIServer_0", "python3"]),
        st.integers(1, 99),
        statuses,
        st.floats(0, 1000),
    ),
    max_size=5,
).map(tuple)


@given(statuses, ends, st.sampled_from(PHASES), st.booleans(), st.booleans(), st.sampled_from([None, "no progress"]))
def test_exits_alone_give_a_sane_action(
    status: int | None, ended: tuple[ProcessEnd, ...], phase: str, was_ready: bool, stopped: bool, by_us: str | None
) -> None:
    verdict = judge(
        Observations(status, (), ended, phase, was_ready=was_ready, stop_requested=stopped, ended_by_us=by_us)
    )
    assert verdict.fault in FAULTS
    assert verdict.suspect in SUSPECTS
    assert verdict.phase in PHASES
    assert (verdict.exit_status is not None) == (verdict.action in ("stop", "none"))
    if verdict.action == "none":
        assert status is None
    if stopped:
        assert verdict.fault == "stopped"


evidences = st.builds(
    Evidence,
    st.integers(1, 500),
    st.text(max_size=40),
    st.sampled_from(["root", "echo", "advice", "benign", "marker"]),
    st.sampled_from([s.name for s in SIGNATURES.all] + ["answered"]),
    st.sampled_from([None, *sorted(FAULTS)]),
    st.sampled_from([None, *sorted(SUSPECTS)]),
    st.sampled_from([None, "Worker_TP0", "EngineCore"]),
    st.sampled_from(PHASES),
    st.floats(0, 1000),
)


@given(statuses, st.lists(evidences, max_size=12).map(tuple), ends, st.booleans())
def test_any_observations_are_judged(
    status: int | None, lines: tuple[Evidence, ...], ended: tuple[ProcessEnd, ...], was_ready: bool
) -> None:
    verdict = judge(Observations(status, lines, ended, was_ready=was_ready))
    assert verdict.fault in FAULTS
    assert verdict.suspect in SUSPECTS
    assert verdict.reason


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_random_bytes_never_raise(pieces: list[bytes]) -> None:
    scan = Scan(SIGNATURES)
    for piece in pieces:
        scan.feed("stdout", piece, 0.0)
        scan.feed("stderr", piece + b"\r", 0.0)
    scan.close(0.0)
    assert scan.lines == b"".join(pieces).count(b"\n") * 2


noise = st.lists(
    st.one_of(
        st.sampled_from([s.example.encode() for s in SIGNATURES.all]),
        st.sampled_from([ANSWER.encode(), TOKENS.encode()]),
        st.sampled_from([b"\n", b"\r", b"\r\n", b"\x1b[0;36m", b"\x1b", b"(Worker pid=1) ", b"INFO 01-01 00:00:00 [a.py:1] "]),
        st.binary(max_size=20),
    ),
    max_size=30,
).map(b"".join)  # fmt: skip


@given(noise, st.lists(st.integers(min_value=0), max_size=12))
def test_any_mixture_reads_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    assert observe_chunks(chunks(data, cuts), None, SIGNATURES) == observe_log(data, None, SIGNATURES)


@given(noise, statuses)
def test_no_report_holds_harmless_lines_or_advice(data: bytes, status: int | None) -> None:
    told = judge(observe_log(data, status, SIGNATURES)).evidence
    assert not {found.kind for found in told} & {"benign", "advice"}
    assert {found.kind for found in told[1:]} <= {"root", "echo"}


@pytest.mark.parametrize("name", CASES)
def test_without_its_lines_a_case_still_gets_a_sane_action(name: str) -> None:
    status = CASES[name]["exit"]
    for was_ready in (False, True):
        verdict = judge(Observations(status, was_ready=was_ready))
        assert verdict.evidence == ()
        assert verdict.action in ({"none"} if status is None else {"retry-safer", "retry-same", "stop"})
