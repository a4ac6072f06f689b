"""A log may tell of several starts of vLLM; each is judged on its own."""

# ruff: noqa: E501 - lines of a log are as long as they are

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaying import observe_log
from safe_vllm.announce import banner
from safe_vllm.data.strict_yaml import read_data
from safe_vllm.plan.ladder import Rung
from safe_vllm.verdict.evidence import Observations, ProcessEnd
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.lives import Life, lives
from safe_vllm.verdict.own_lines import Note, note
from safe_vllm.verdict.signatures import parse

SIGNATURES = parse(read_data("signatures.yaml"))
GOLDEN = Path(__file__).parents[1] / "golden"
LOGS = {path.stem: json.loads(path.read_text("utf-8"))["transcript"] for path in (GOLDEN / "corpus").glob("*.json")}
LOGS |= {path.stem: path.read_text("utf-8") for path in (GOLDEN / "real").glob("*.log")}
VERSION = "(APIServer pid={}) INFO 11-30 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
START = VERSION.format(10)
AGAIN = VERSION.format(20)
UP = "(APIServer pid=10) INFO:     Application startup complete.\n"
FAULT = "(Worker pid=12) ERROR 11-30 10:01:00 [m.py:7] torch.AcceleratorError: CUDA error: misaligned address\n"
OTHER = "(Worker pid=22) ERROR 11-30 10:09:00 [m.py:7] torch.AcceleratorError: CUDA error: an illegal instruction was encountered\n"
CALM = "(Worker pid=12) INFO 11-30 10:01:00 [m.py:7] all is well\n"
AS_ASKED, TRITON = Rung("as-asked", ("m",)), Rung("triton", ("m", "--moe-backend", "triton"))
OPENING = "safe-vllm: vLLM 0.11.0, profile blackwell (architecture)\nsafe-vllm: ladder: as-asked → triton\n"


def own(lines: list[str]) -> str:
    return "".join(f"safe-vllm: {line}\n" for line in lines)


def event(name: str, **fields: object) -> str:
    return own([json.dumps({"event": name, "at_s": 1.0, **fields})])


def death(number: int, rung: Rung, seen: Observations) -> str:
    return own(banner.death(number, rung, 12.0, seen, judge(seen)))


def step(number: int, before: Rung, after: Rung) -> str:
    return own(banner.step(number, before, after, 0.0, "a kernel fault", frozenset()))


def told(log: str, status: int | None = None) -> list[Life]:
    return list(lives([log.encode()], status, SIGNATURES))


def faults(log: str, status: int | None = None) -> list[str]:
    return [judge(life.observations).fault for life in told(log, status)]


@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_one_start_is_one_life_that_shows_what_the_log_shows(name: str) -> None:
    (life,) = told(LOGS[name], 1)
    assert life.observations == observe_log(LOGS[name].encode(), 1, SIGNATURES)
    assert (life.number, life.rung, life.is_vllm) == (None, None, True)


@given(
    st.lists(
        st.sampled_from([START, AGAIN, UP, FAULT, OTHER, CALM, OPENING, "\n", "bar\r", step(2, AS_ASKED, TRITON)])
    ),
    st.lists(st.integers(min_value=0), max_size=12),
)
def test_lives_do_not_depend_on_how_the_log_is_cut(parts: list[str], cuts: list[int]) -> None:
    data = "".join(parts).encode()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(places)]
    assert list(lives(pieces, 1, SIGNATURES)) == list(lives([data], 1, SIGNATURES))


def test_each_attempt_of_ours_is_seen_on_its_own() -> None:
    seen = Observations(leader_status=1)
    log = OPENING + START + FAULT + death(1, AS_ASKED, seen) + step(2, AS_ASKED, TRITON) + AGAIN + OTHER
    log += death(2, TRITON, seen) + own(banner.closing(70, "the ladder is spent"))
    assert faults(log) == ["misaligned-address", "illegal-instruction"]
    assert [(life.number, life.rung) for life in told(log)] == [(1, "as-asked"), (2, "triton")]


def test_the_same_is_read_from_our_lines_as_objects() -> None:
    log = event("launch-started", ladder=["as-asked"]) + event("attempt-started", attempt=1, rung="as-asked")
    log += START + FAULT + event("attempt-ended", attempt=1, rung="as-asked", status=0, ended=[], fault="board")
    log += event("step", attempt=2, rung="triton") + event("attempt-started", attempt=2, rung="triton") + AGAIN
    log += event("attempt-ended", attempt=2, rung="triton", status=0, ended=[{"title": "VLLM::Worker", "status": -11}])
    assert faults(log + event("launch-ended", status=70)) == ["misaligned-address", "engine-signal"]
    assert [(life.number, life.rung) for life in told(log)] == [(1, "as-asked"), (2, "triton")]


def test_our_own_words_are_no_evidence() -> None:
    assert faults(OPENING + START + own(["CUDA error: an illegal memory access was encountered"]), None) == ["none"]


def test_an_end_that_our_lines_tell_of_is_known() -> None:
    crash = Observations(0, ends=(ProcessEnd("VLLM::Worker_TP0", 7, -11),))
    (life,) = told(OPENING + START + death(1, AS_ASKED, crash))
    assert judge(life.observations).reason == "VLLM::Worker_TP0 was killed by SIGSEGV while it was starting"
    assert life.observations.leader_status == 0


@pytest.mark.parametrize("status", [0, 1, -6, -9])
def test_the_status_of_an_attempt_is_read_from_our_line_and_beats_the_one_that_was_given(status: int) -> None:
    (life,) = told(OPENING + START + death(1, AS_ASKED, Observations(status)), 70)
    assert life.observations.leader_status == status


def test_what_we_ended_ourselves_is_no_exit() -> None:
    (life,) = told(OPENING + START + death(1, AS_ASKED, Observations(None, ended_by_us="no progress")), 70)
    assert (life.observations.leader_status, judge(life.observations).fault) == (None, "hang")


def test_a_stop_that_was_asked_for_is_no_failure() -> None:
    log = OPENING + START + UP + own(banner.ready(9.0, AS_ASKED, "")) + own(banner.stopping(60.0))
    assert faults(log + own(banner.closing(0, "asked to stop, and everything ended")), 0) == ["stopped"]


def test_the_number_of_a_line_is_its_place_in_the_whole_log() -> None:
    log = OPENING + START + FAULT + death(1, AS_ASKED, Observations(1)) + step(2, AS_ASKED, TRITON) + OTHER
    (root,) = (e for e in told(log)[-1].observations.evidence if e.kind == "root")
    assert log.split("\n")[root.number - 1] == OTHER.rstrip()


def test_words_around_a_launch_are_no_start() -> None:
    log = "Sourcing /etc/profile\n" + OPENING + START + FAULT + death(1, AS_ASKED, Observations(1))
    log += own(banner.closing(70, "the ladder is spent")) + "vllm.service: Main process exited\n"
    assert faults(log) == ["misaligned-address"]


def test_a_restart_by_somebody_else_begins_another_life() -> None:
    assert faults(START + FAULT + AGAIN + OTHER, 1) == ["misaligned-address", "illegal-instruction"]


def test_a_start_that_died_in_silence_is_over_when_another_follows() -> None:
    third = VERSION.format(30)
    assert faults(START + UP + AGAIN + UP + third + CALM) == ["unknown", "unknown", "none"]


def test_a_container_whose_process_has_the_same_number_again_was_restarted() -> None:
    assert len(told(START + CALM + START)) == 2


def test_a_log_that_begins_with_a_death_holds_two_lives() -> None:
    assert faults(FAULT + AGAIN + CALM) == ["misaligned-address", "none"]


@pytest.mark.parametrize(
    "log",
    [
        START + AGAIN + CALM,
        "WARNING 11-30 10:00:00 [x.py:1] Failed to load plugin x\n" + START,
        "(APIServer pid=10) ERROR 11-30 10:00:00 [x.py:1] PermissionError: [Errno 13] Permission denied: '/root'\n" + START,
        START + UP + VERSION.format(10).replace("APIServer", "ApiServer_1"),
        START + UP + f"(APIServer pid=10) INFO 11-30 10:01:00 [logger.py:1] Received request a: prompt: {AGAIN!r}\n",
        START + UP + f"(APIServer pid=10) INFO 11-30 10:01:00 [logger.py:1] Received request a: prompt: {OPENING!r}\n",
    ],
)  # fmt: skip
def test_no_other_line_begins_a_life(log: str) -> None:
    assert len(told(log)) == 1


@pytest.mark.parametrize(
    "wrapper", ["", "vllm-1  | ", "2026-06-11T17:03:35.123Z ", "Jun 11 17:03:35 gpu-7 safe-vllm[4711]: ", "Jun 11 17:03:35 gpu-7 safe-vllm: "]
)  # fmt: skip
def test_our_lines_are_known_however_they_were_stored(wrapper: str) -> None:
    assert note(f"{wrapper}safe-vllm: asked to stop: vLLM has 60 s to end") == Note(stop_requested=True)
    assert note(f"{wrapper}(APIServer pid=1) INFO 11-30 10:00:00 [x.py:1] safe-vllm: asked to stop: ") is None


@pytest.mark.parametrize(
    "said", ["", '{"event": 1}', '{"event"', '{"event": "attempt-ended", "ended": 7, "status": "x"}']
)
def test_odd_lines_of_ours_are_read_without_trouble(said: str) -> None:
    assert note(f"safe-vllm: {said}") is not None


def test_memory_does_not_grow_with_a_line_that_never_ends() -> None:
    endless = (b"\rstep %d" % (at % 10) for at in range(400_000))
    (life,) = lives(endless, None, SIGNATURES)
    assert life.lines == 1


def test_a_log_of_something_else_is_known_for_that() -> None:
    assert [life.is_vllm for life in told("hello\nworld\n")] == [False]
    assert [life.lines for life in (*told(""), *told("hello\nworld"))] == [0, 2]


CRASHED = "  fault engine-signal, phase first-inference{}; vLLM's exit status was 0"


@pytest.mark.parametrize("rest", ["", ", MoE backend CPU", ", suspect unknown, MoE backend CPU"])
def test_our_own_verdict_counts_where_no_line_of_vllms_is_left(rest: str) -> None:
    (life,) = told(OPENING + own(["attempt 1 at as-asked ended after 9 s: x", CRASHED.format(rest)]))
    verdict = judge(life.observations)
    assert (verdict.fault, verdict.phase, verdict.suspect) == ("engine-signal", "first-inference", "unknown")
    assert verdict.backend == ("CPU" if rest else None)


def test_the_same_verdict_is_read_from_an_event() -> None:
    fields = {"fault": "gpu-oom", "phase": "capture", "suspect": "graphs", "status": 1, "ended": []}
    (life,) = told(event("launch-started") + event("attempt-ended", attempt=1, rung="as-asked", **fields))
    verdict = judge(life.observations)
    assert (verdict.fault, verdict.phase, verdict.suspect) == ("gpu-oom", "capture", "graphs")


def test_lines_of_vllms_count_before_our_own_verdict_on_them() -> None:
    (life,) = told(OPENING + START + FAULT + own(["attempt 1 at as-asked ended after 9 s: x", CRASHED.format("")]))
    assert judge(life.observations).fault == "misaligned-address"


def test_the_phase_of_our_line_counts_where_the_log_got_less_far() -> None:
    dead = own(["attempt 1 at as-asked ended after 9 s: x", CRASHED.format("")])
    (life,) = told(OPENING + START + dead)
    assert judge(life.observations).phase == "first-inference"
    served = 'INFO:     1.1.1.1:5 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    (life,) = told(OPENING + START + UP + served + served + dead)
    assert judge(life.observations).phase == "serving"


def test_a_server_that_our_line_called_ready_was_ready() -> None:
    (life,) = told(OPENING + START + own(banner.ready(9.0, AS_ASKED, "")))
    assert life.observations.was_ready


def test_our_own_verdict_counts_where_lines_of_vllms_tell_nothing() -> None:
    (life,) = told(OPENING + START + CALM + own(["attempt 1 at as-asked ended after 9 s: x", CRASHED.format("")]))
    assert judge(life.observations).fault == "engine-signal"
