"""Signs of life: what counts as one, and when their absence is a hang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safe_vllm.attempt import metrics
from safe_vllm.attempt.effect import AskMetrics, Effect, MeasureData, SayBlind, SendCanary
from safe_vllm.attempt.event import CanaryAnswered, DataMoved, Event, NoCounters, Output, Pulse, Tick
from safe_vllm.attempt.progress import Progress, is_chatter
from safe_vllm.attempt.timing import Timing

TIMING = Timing(60, 20, None, start_silence_s=1800, autotune_silence_s=3600, capture_silence_s=900, stall_s=420)
STARTED = Progress(TIMING).alive(0.0)
MIB = 1024 * 1024
BUSY, IDLE = Pulse(b"7", 3.0, frozenset()), Pulse(b"7", 0.0, frozenset())
CLIENT = frozenset([b"0100007F:D2A4"])


def after(state: Progress, stage: str, *events: tuple[float, Event]) -> tuple[Progress, list[Effect], str | None]:
    """Return where these events lead, up to the first that shows a hang. Nobody sees clients without having looked."""
    effects: list[Effect] = []
    for now, event in events:
        if isinstance(event, Pulse) and AskMetrics(with_clients=True) not in effects[-1:]:
            event = replace(event, clients=None)
        state, more, hang = state.on(event, now, stage)
        effects += more
        if hang:
            return state, effects, hang
    return state, effects, None


def looks(*moved: int | None, every_s: float = 450) -> list[tuple[float, Event]]:
    """Return looks at what was moved, one after the other, the ticks before them included."""
    times = [every_s * number for number in range(1, len(moved) + 1)]
    return [pair for at, total in zip(times, moved, strict=True) for pair in ((at, Tick()), (at, DataMoved(total)))]


def pulses(pulse: Pulse, *times: float) -> list[tuple[float, Event]]:
    """Return the same answer at these times, each of them asked for."""
    return [pair for at in times for pair in ((at, Tick()), (at, pulse))]


SERVING = after(STARTED, "serving", (0, Tick()))[0]


def test_silence_for_the_whole_limit_is_a_hang() -> None:
    state, effects, hang = after(STARTED, "starting", *looks(5, 5, 5))
    assert (effects, hang, state.next_deadline()) == ([MeasureData()] * 3, None, 1800)
    assert after(state, "starting", (1800, Tick()), (1800, DataMoved(5)))[2] == "no output and no data moved for 1800 s"


def test_any_output_is_a_sign_of_life() -> None:
    state, _, hang = after(STARTED, "starting", *looks(5, 5, 5), (1799, Output()), (1800, Tick()), (1800, DataMoved(5)))
    assert hang is None
    assert state.next_deadline() == 1799 + 450


def test_output_that_only_tells_of_waiting_is_none() -> None:
    state, _, _ = after(STARTED, "starting", (1799, Output(is_progress=False)))
    assert state == STARTED


@pytest.mark.parametrize(("phase", "limit_s"), [("init", 1800), ("autotune", 3600), ("capture", 900)])
def test_each_phase_has_its_own_limit(phase: str, limit_s: float) -> None:
    state, _, _ = after(STARTED, "starting", (0, Output(phase)))
    before = looks(5, 5, 5, 5, every_s=limit_s / 4)
    assert after(state, "starting", *before[:-1])[2] is None
    assert after(state, "starting", *before)[2] == f"no output and no data moved for {limit_s:g} s"


def test_no_limit_means_for_ever() -> None:
    state = Progress(replace(TIMING, start_silence_s=None)).alive(0.0)
    assert state.next_deadline() is None
    assert after(state, "starting", *looks(5, 5, 5, 5, 5))[1:] == ([], None)


def test_data_that_is_moved_is_a_sign_of_life_however_silent() -> None:
    steps = [64 * MIB * number for number in range(20)]
    assert after(STARTED, "starting", *looks(*steps))[2] is None


@pytest.mark.parametrize("moved", [[0, 63 * MIB, 126 * MIB, 189 * MIB], [None] * 4, [9 * MIB, 9 * MIB, 0, 0]])
def test_a_trickle_of_data_or_none_that_can_be_seen_is_no_sign_of_life(moved: list[int | None]) -> None:
    assert after(STARTED, "starting", *looks(*moved))[2] is not None


def test_a_look_at_which_nothing_could_be_seen_forgets_nothing() -> None:
    steps = [0, 63 * MIB, None, 127 * MIB, 130 * MIB, 140 * MIB]
    assert after(STARTED, "starting", *looks(*steps))[2] is None


def test_output_during_a_look_counts() -> None:
    steps = [*looks(5, 5, 5), (1800, Tick()), (1801, Output()), (1802, DataMoved(5))]
    state, _, hang = after(STARTED, "starting", *steps)
    assert (hang, state.next_deadline()) == (None, 1801 + 450)


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (b"No available shared memory broadcast block found in 60 seconds.\n", True),
        (b"DEBUG Waiting for 1 local, 0 remote core engine proc(s) to start.\r\n\n", True),
        (b"No available shared memory broadcast block found in 60 seconds.\nLoading weights\n", False),
        (b"\n", False),
        (b"", False),
    ],
)
def test_chatter_is_what_a_waiting_process_repeats(chunk: bytes, expected: bool) -> None:
    assert is_chatter(chunk) is expected


def test_a_server_is_asked_when_it_serves_and_every_half_minute() -> None:
    state, effects, _ = after(SERVING, "serving", *pulses(BUSY, 0))
    assert effects == [AskMetrics(with_clients=False)]
    assert state.next_deadline() == 30


def test_waiting_requests_and_nothing_counted_call_for_a_real_request_and_a_calm_answer_ends_the_matter() -> None:
    state, effects, hang = after(SERVING, "serving", *pulses(BUSY, 0, 30, 390))
    assert (SendCanary() in effects, hang) == (False, None)
    state, effects, hang = after(state, "serving", *pulses(BUSY, 420))
    assert (SendCanary() in effects, hang) == (True, None)
    state, effects, hang = after(state, "serving", (425, CanaryAnswered("answered")), *pulses(BUSY, 450, 480, 840))
    assert (SendCanary() in effects, hang) == (False, None)


ASKED = after(SERVING, "serving", *pulses(BUSY, 0, 420))[0]


@pytest.mark.parametrize("result", ["failed", "hung"])
def test_a_real_request_that_fails_after_a_stall_shows_a_hang(result: str) -> None:
    event = CanaryAnswered("failed" if result == "failed" else "hung", "why")
    assert after(ASKED, "serving", (430, event))[2] == (
        "requests waited 420 s without a token, and a real request failed (why)"
    )


def test_a_real_request_without_an_answer_shows_a_hang_after_a_minute() -> None:
    assert after(ASKED, "serving", *pulses(BUSY, 450))[2] is None
    assert after(ASKED, "serving", *pulses(BUSY, 480))[2] == (
        "requests waited 420 s without a token, and a real request got no answer"
    )


def test_anything_that_is_counted_meanwhile_ends_the_matter() -> None:
    moved = replace(BUSY, counted=b"8")
    state, _, hang = after(ASKED, "serving", *pulses(moved, 450, 480), (720, CanaryAnswered("hung", "300 s")))
    assert (hang, state.asked_at) == (None, None)


def test_a_look_without_an_answer_is_no_evidence() -> None:
    late = [pair for at in range(450, 5000, 30) for pair in ((at, Tick()), (at, NoCounters("TimeoutError", True)))]
    for state in (SERVING, ASKED):
        state, effects, hang = after(state, "serving", *late)
        assert (hang, state.next_deadline()) == (None, 4980 + 30)
        assert set(map(type, effects)) == {AskMetrics}


def test_an_idle_server_is_never_asked_for_anything_real() -> None:
    _, effects, hang = after(SERVING, "serving", *pulses(IDLE, *range(0, 9000, 30)))
    assert (SendCanary() in effects, hang) == (False, None)


def test_a_client_that_waits_counts_where_the_engine_told_of_none() -> None:
    waits = replace(IDLE, clients=CLIENT)
    _, effects, _ = after(SERVING, "serving", *pulses(IDLE, 0, 600), *pulses(waits, 720, 930, 1150))
    assert effects[-1] == SendCanary()


def test_who_is_connected_is_looked_at_more_seldom_and_never_of_a_server_that_was_not_heard_of() -> None:
    _, effects, _ = after(SERVING, "serving", *pulses(IDLE, *range(0, 420, 30)))
    assert [place for place, ask in enumerate(effects) if ask == AskMetrics(with_clients=True)] == [1, 5, 9, 13]


def test_who_was_connected_at_the_last_look_has_waited_until_then_and_no_longer() -> None:
    alone, witnessed = replace(SERVING, wants_canary=False), replace(BUSY, clients=CLIENT)
    state, _, hang = after(alone, "serving", *pulses(witnessed, 0, 30, 430, 465))
    assert hang is None
    assert after(state, "serving", *pulses(witnessed, 535))[2] is not None


def test_clients_that_come_and_go_are_no_stall() -> None:
    visits = [replace(IDLE, clients=frozenset([b"%d" % number])) for number in range(100)]
    steps = [step for number, pulse in enumerate(visits) for step in pulses(pulse, 30.0 * number)]
    assert SendCanary() not in after(SERVING, "serving", *steps)[1]


def test_without_a_canary_a_stall_needs_a_client_that_waited_as_long() -> None:
    alone = replace(SERVING, wants_canary=False)
    witnessed = replace(BUSY, clients=CLIENT)
    assert after(alone, "serving", *pulses(BUSY, 0, 420, 9000))[2] is None
    state, _, hang = after(alone, "serving", *pulses(BUSY, 0, 420), *pulses(witnessed, 540, 840))
    assert hang is None
    assert after(state, "serving", *pulses(witnessed, 970))[2] is not None


def test_a_server_that_takes_no_real_request_needs_that_witness_too() -> None:
    refused, later = (421.0, CanaryAnswered("refused", "404")), (540, 840, 970, 5000)
    _, effects, hang = after(ASKED, "serving", refused, *pulses(BUSY, *later))
    assert (SendCanary() in effects, hang) == (False, None)
    _, _, hang = after(ASKED, "serving", refused, *pulses(replace(BUSY, clients=CLIENT), *later))
    assert hang == "requests waited 420 s without a token, and so did a client"


def test_a_server_without_counters_is_told_of_once_and_not_asked_again() -> None:
    state, effects, _ = after(SERVING, "serving", (0, Tick()), (1, NoCounters("404")), (900, Tick()))
    assert effects == [AskMetrics(), SayBlind("404")]
    assert state.next_deadline() is None


def test_no_limit_on_stalls_means_that_nobody_asks() -> None:
    state = Progress(replace(TIMING, stall_s=None))
    assert after(state, "serving", (0, Tick()), (1000, Tick()))[1] == []
    assert state.next_deadline() is None


PAGE = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="a {b} \\"c\\""} 2.0
vllm:num_requests_running{engine="1",model_name="a"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 4.0
vllm:engine_sleep_state{engine="0",sleep_state="awake"} 1.0
vllm:generation_tokens_total{engine="0",model_name="a"} 123.0
vllm:generation_tokens_created{engine="0",model_name="a"} 1.7e+09
vllm:request_success_total{engine="0",finished_reason="abort"} 5.0
http_requests_total{handler="/metrics"} 77.0
"""


def test_of_the_metrics_only_what_the_engine_moves_is_read() -> None:
    pulse = metrics.read(PAGE, CLIENT)
    assert isinstance(pulse, Pulse)
    assert (pulse.pending, pulse.clients) == (7, CLIENT)
    for text in (b"abort", b"created", b"http", b"reason", b"sleep"):
        assert text not in pulse.counted
    assert metrics.read(PAGE.replace(b" 77.0", b" 78.0").replace(b" 5.0", b" 6.0"), CLIENT) == pulse
    assert metrics.read(PAGE.replace(b" 123.0", b" 124.0"), CLIENT) != pulse


def test_a_sleeping_engine_keeps_its_requests_waiting_on_purpose() -> None:
    pulse = metrics.read(PAGE.replace(b'"awake"} 1.0', b'"awake"} 0.0'), CLIENT)
    assert isinstance(pulse, Pulse)
    assert (pulse.pending, pulse.clients) == (0, frozenset())


def test_a_page_without_vllms_counters_is_no_pulse() -> None:
    assert isinstance(metrics.read(b"http_requests_total 7.0\n", CLIENT), NoCounters)
