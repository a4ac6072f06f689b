"""The attempt's state machine: what it does about everything that can happen."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from safe_vllm.attempt.effect import (
    AskHealth,
    Effect,
    SayReady,
    SayWouldEnd,
    SendCanary,
    SignalLeader,
    SignalTree,
    Sweep,
    TakeStacks,
)
from safe_vllm.attempt.event import (
    CanaryAnswered,
    Completed,
    EngineEnded,
    Event,
    FaultLine,
    HealthAnswered,
    LeaderEnded,
    Output,
    Spawned,
    StacksTaken,
    StopAsked,
    Tick,
    TreeGone,
)
from safe_vllm.attempt.lifecycle import Lifecycle
from safe_vllm.attempt.timing import Timing

TIMING = Timing(stop_timeout_s=60, fault_grace_s=20, start_timeout_s=None)
STARTED = Lifecycle(TIMING).on(Spawned(), 0.0)[0]


def after(state: Lifecycle, *events: tuple[float, Event]) -> tuple[Lifecycle, list[Effect]]:
    effects: list[Effect] = []
    for now, event in events:
        state, more = state.on(event, now)
        effects += more
    return state, effects


SERVING = after(STARTED, (1, HealthAnswered(True)), (2, CanaryAnswered("answered")))[0]


def test_health_alone_does_not_make_it_ready() -> None:
    state, effects = after(STARTED, (1, HealthAnswered(True)))
    assert effects == [SendCanary()]
    assert state.ready_at is None


def test_health_and_an_answered_request_make_it_ready_once() -> None:
    state, effects = after(
        STARTED, (1, HealthAnswered(True)), (2, CanaryAnswered("answered")), (3, HealthAnswered(True))
    )
    assert effects == [SendCanary(), SayReady()]
    assert state.stage == "serving"
    assert state.ready_at == 2


def test_a_real_request_for_which_this_machine_had_no_room_is_sent_again_and_holds_nothing_against_the_server() -> None:
    state, effects = after(
        STARTED, (1, HealthAnswered(True)), (2, CanaryAnswered("unasked")), (3.9, Tick()), (4, Tick())
    )
    assert (effects, state.armed_by, state.act_at) == ([SendCanary()] * 2, None, None)
    armed = after(SERVING, (10, FaultLine("CUDA error")), (30, Tick()), (31, CanaryAnswered("unasked")))[0]
    assert after(armed, (33, Tick()))[1] == [SendCanary()]
    assert after(SERVING, (10, CanaryAnswered("unasked")), (20, Tick()))[1] == []


def test_without_a_canary_health_that_could_not_be_asked_for_clears_and_condemns_nobody() -> None:
    serving = after(Lifecycle(TIMING, wants_canary=False), (0, Spawned()), (1, HealthAnswered(True)))[0]
    armed = after(serving, (10, FaultLine("CUDA error")), (30, Tick()))[0]
    state, effects = after(armed, (31, HealthAnswered(None)), (33, Tick()))
    assert (effects, state.armed_by) == ([AskHealth()], "CUDA error")


def test_without_a_canary_health_makes_it_ready_and_the_note_says_so() -> None:
    state, effects = after(Lifecycle(TIMING, wants_canary=False), (0, Spawned()), (1, HealthAnswered(True)))
    assert effects == [SayReady("no canary, as asked")]
    assert state.stage == "serving"


def test_health_is_asked_again_until_it_answers() -> None:
    state, effects = after(STARTED, (0, Tick()), (0.1, HealthAnswered(False)), (0.5, Tick()), (1.2, Tick()))
    assert effects == [AskHealth(), AskHealth()]
    assert state.stage == "starting"


def test_a_member_without_an_address_is_never_asked() -> None:
    state = Lifecycle(TIMING, has_endpoint=False).on(Spawned(), 0.0)[0]
    assert state.next_deadline() is None
    assert after(state, (1000, Tick()))[1] == []


def test_a_server_that_cannot_complete_is_ended_after_the_grace_and_was_never_ready() -> None:
    state, effects = after(
        STARTED, (1, HealthAnswered(True)), (2, CanaryAnswered("failed", "500")), (21, Tick()), (22, Tick())
    )
    assert SayReady() not in effects
    assert effects[-1] == Sweep(3.0)
    assert state.canary == "failed"
    assert state.ended_by_us is not None


def test_a_canary_that_fails_once_and_then_passes_makes_it_ready() -> None:
    state, effects = after(
        STARTED,
        (1, HealthAnswered(True)),
        (2, CanaryAnswered("failed", "500")),
        (4.5, Tick()),
        (5, CanaryAnswered("answered")),
        (30, Tick()),
    )
    assert effects == [SendCanary(), SendCanary(), SayReady()]
    assert state.stage == "serving"


def test_a_canary_without_an_answer_is_a_hang() -> None:
    state, effects = after(STARTED, (1, HealthAnswered(True)), (301, CanaryAnswered("hung", "300 s")))
    assert effects[-1] == TakeStacks()
    assert state.canary == "hung"


def test_a_server_without_completions_is_ready_with_a_note() -> None:
    _, effects = after(STARTED, (1, HealthAnswered(True)), (2, CanaryAnswered("refused", "/v1/completions says 404")))
    assert effects[-1] == SayReady("the canary could not be sent: /v1/completions says 404")


def test_a_fault_line_alone_never_ends_a_server_that_answers() -> None:
    state, effects = after(SERVING, (10, FaultLine("CUDA error")), (30, Tick()), (31, CanaryAnswered("answered")))
    assert effects == [SendCanary()]
    assert state.stage == "serving"
    assert state.next_deadline() is None


def test_a_completed_request_disarms_a_fault_line() -> None:
    _, effects = after(SERVING, (10, FaultLine("CUDA error")), (11, Completed()), (300, Tick()))
    assert effects == []


def test_a_fault_line_and_two_failing_requests_end_it() -> None:
    state, effects = after(SERVING, (10, FaultLine("CUDA error")), (30, Tick()), (31, CanaryAnswered("failed", "503")))
    assert effects == [SendCanary()]
    state, effects = after(state, (33, Tick()), (34, CanaryAnswered("failed", "500")))
    assert effects == [SendCanary(), Sweep(3.0)]
    assert state.ended_by_us is not None


def test_a_moment_of_overload_after_a_fault_line_ends_nothing() -> None:
    state, effects = after(
        SERVING,
        (10, FaultLine("CUDA error")),
        (30, Tick()),
        (31, CanaryAnswered("failed", "503")),
        (33, Tick()),
        (34, CanaryAnswered("answered")),
        (500, Tick()),
    )
    assert effects == [SendCanary(), SendCanary()]
    assert state.stage == "serving"


def test_a_fault_line_that_no_engine_signed_needs_ten_times_the_silence_while_starting() -> None:
    state, effects = after(STARTED, (10, FaultLine("CUDA error", is_of_engine=False)), (209, Tick()))
    assert Sweep(3.0) not in effects
    assert Sweep(3.0) in after(state, (211, Tick()))[1]


def test_a_signal_without_a_name_is_a_signal_too() -> None:
    state, _ = after(SERVING, (10, EngineEnded("VLLM::Worker", -40)))
    assert state.armed_by == "VLLM::Worker was killed by signal 40"


def test_a_fault_line_while_starting_waits_as_long_as_there_is_output() -> None:
    state, effects = after(STARTED, (10, FaultLine("CUDA error")), (25, Output()), (40, Tick()))
    assert Sweep(3.0) not in effects
    _, effects = after(state, (46, Tick()))
    assert Sweep(3.0) in effects


def test_a_core_file_that_is_being_written_gets_more_time_but_not_for_ever() -> None:
    state, effects = after(SERVING, *((t, FaultLine("coredump:", is_coredump=True)) for t in range(0, 590, 10)))
    assert effects == []
    assert state.act_at == 600


def test_a_killed_engine_process_is_a_second_witness_and_vllm_gets_a_moment_to_say_why() -> None:
    state, effects = after(SERVING, (10, EngineEnded("VLLM::Worker_TP0", -11)), (19, Tick()))
    assert effects == []
    state, effects = after(state, (20.1, Tick()))
    assert effects == [Sweep(3.0)]
    assert "VLLM::Worker_TP0 was killed by SIGSEGV" in str(state.ended_by_us)


def test_no_answer_of_another_engine_makes_a_killed_one_good() -> None:
    state, _ = after(
        SERVING, (10, EngineEnded("VLLM::EngineCore_DP1", -6)), (11, CanaryAnswered("answered")), (12, Completed())
    )
    assert after(state, (20, Tick()))[1] == [Sweep(3.0)]


@pytest.mark.parametrize("status", [0, 1, None, -signal.SIGTERM])
def test_an_engine_process_that_ended_otherwise_proves_nothing(status: int | None) -> None:
    assert after(SERVING, (10, EngineEnded("VLLM::Worker", status)), (500, Tick()))[1] == []


def test_when_the_leader_ends_everything_is_swept() -> None:
    state, effects = after(SERVING, (10, LeaderEnded(0)), (11, TreeGone()))
    assert effects == [Sweep(3.0)]
    assert (state.stage, state.leader_status) == ("over", 0)


def test_p9_a_stop_while_serving_goes_to_the_leader_alone() -> None:
    state, effects = after(SERVING, (10, StopAsked(signal.SIGTERM)), (69, Tick()))
    assert effects == [SignalLeader(signal.SIGTERM)]
    assert after(state, (70, Tick()))[1] == [Sweep(0.0)]


def test_p9_a_stop_while_starting_goes_to_everybody_and_is_repeated_until_the_kill() -> None:
    state, effects = after(STARTED, (10, StopAsked(signal.SIGINT)), (12, Tick()), (14, Tick()), (18.1, Tick()))
    assert effects == [*[SignalTree(signal.SIGTERM)] * 3, Sweep(0.0)]
    assert state.next_deadline() is None


def test_p9_a_second_stop_hurries_and_a_third_kills() -> None:
    state, effects = after(SERVING, (10, StopAsked(signal.SIGTERM)), (11, StopAsked(signal.SIGTERM)))
    assert effects == [SignalLeader(signal.SIGTERM), SignalTree(signal.SIGTERM)]
    assert state.kill_at == 16
    assert after(state, (12, StopAsked(signal.SIGTERM)))[1] == [Sweep(0.0)]


def test_nothing_that_is_seen_after_a_stop_changes_the_course() -> None:
    state, _ = after(SERVING, (10, StopAsked(signal.SIGTERM)))
    later = after(
        state, (11, EngineEnded("VLLM::Worker", -9)), (11, FaultLine("CUDA error")), (12, HealthAnswered(False))
    )
    assert later == (state, [])


def test_a_start_timeout_ends_what_is_not_ready_in_time() -> None:
    state = Lifecycle(Timing(60, 20, 100)).on(Spawned(), 0.0)[0]
    state, effects = after(state, (0, Tick()), (99, HealthAnswered(False)))
    assert Sweep(3.0) not in effects
    state, effects = after(state, (100, Tick()))
    assert (effects, state.ended_by_us) == ([TakeStacks()], "not ready after 100 s")
    assert after(state, (101, StacksTaken()))[1] == [Sweep(3.0)]


def test_a_stop_before_the_spawn_was_reported_leaves_no_question_pending() -> None:
    state, effects = after(Lifecycle(TIMING), (0, StopAsked(signal.SIGTERM)), (1, Spawned()))
    assert effects == [SignalTree(signal.SIGTERM)]
    assert state.ask_at is None


def test_without_a_canary_health_is_the_witness_and_a_failing_one_ends_it() -> None:
    serving = after(Lifecycle(TIMING, wants_canary=False), (0, Spawned()), (1, HealthAnswered(True)))[0]
    armed, effects = after(serving, (10, FaultLine("CUDA error")), (30, Tick()))
    assert effects == [AskHealth()]
    assert after(armed, (31, HealthAnswered(True)), (60, Tick()))[1] == []
    assert after(armed, (31, HealthAnswered(False)))[1] == [Sweep(3.0)]


def test_a_member_that_nobody_can_ask_has_no_start_timeout_and_the_whole_stop_timeout() -> None:
    state = Lifecycle(Timing(60, 20, 100), has_endpoint=False).on(Spawned(), 0.0)[0]
    assert after(state, (1000, Tick()))[1] == []
    stopped, effects = after(state, (1000, StopAsked(signal.SIGTERM)), (1059, Tick()))
    assert effects == [SignalTree(signal.SIGTERM)]
    assert after(stopped, (1060, Tick()))[1] == [Sweep(0.0)]


HUNG = after(Lifecycle(Timing(60, 20, 100)).on(Spawned(), 0.0)[0], (100, Tick()))[0]


def test_stacks_that_are_not_taken_in_time_keep_nothing_alive() -> None:
    assert HUNG.next_deadline() == 145
    assert after(HUNG, (145, Tick()))[1] == [Sweep(0.0)]


def test_p9_a_stop_does_not_wait_for_stacks() -> None:
    state, effects = after(HUNG, (101, StopAsked(signal.SIGTERM)), (102, StacksTaken()))
    assert effects == [Sweep(3.0)]
    assert state.next_deadline() is None


def test_stacks_of_a_server_that_ended_meanwhile_end_nothing_twice() -> None:
    assert after(HUNG, (101, LeaderEnded(1)), (102, TreeGone()), (103, StacksTaken()))[1] == [Sweep(3.0)]


def test_a_real_request_that_was_sent_for_a_stall_ends_nothing_once_there_is_progress() -> None:
    for result in ("hung", "failed"):
        assert after(SERVING, (300, CanaryAnswered(result, "300 s")), (900, Tick()))[1] == []


OBSERVED = replace(STARTED, observes_only=True)


def test_a_server_that_is_only_observed_is_not_ended_for_a_killed_engine() -> None:
    serving = after(OBSERVED, (1, HealthAnswered(True)), (2, CanaryAnswered("answered")))[0]
    state, effects = after(serving, (3, EngineEnded("VLLM::EngineCore", -11)), (14, Tick()), (100, Tick()))
    assert effects == [SayWouldEnd("vLLM did not end by itself after: VLLM::EngineCore was killed by SIGSEGV")]
    assert state.stage == "serving"
    assert state.ended_by_us is None


def test_a_server_that_is_only_observed_is_not_ended_for_being_late() -> None:
    timing = Timing(60, 20, 300)
    observed = Lifecycle(timing, observes_only=True).on(Spawned(), 0.0)[0]
    state, effects = after(observed, (301, Tick()), (302, Tick()))
    assert SayWouldEnd("not ready after 300 s") in effects
    assert effects.count(SayWouldEnd("not ready after 300 s")) == 1
    assert TakeStacks() not in effects
    assert after(state, (303, HealthAnswered(True)), (304, CanaryAnswered("answered")))[1][-1] == SayReady()


def test_a_server_that_is_only_observed_is_stopped_as_any_other() -> None:
    assert after(OBSERVED, (1, StopAsked(signal.SIGTERM)))[1] == [SignalTree(signal.SIGTERM)]


def test_p13_that_an_observed_server_would_be_ended_is_said_once_until_it_answers_a_request() -> None:
    fault = (FaultLine("CUDA error"), Tick(), CanaryAnswered("failed"), Tick(), CanaryAnswered("failed"))
    serving = after(OBSERVED, (1, HealthAnswered(True)), (2, CanaryAnswered("answered")))[0]

    def said(state: Lifecycle, at: int) -> tuple[Lifecycle, int]:
        state, effects = after(state, *((at + 25 * number, event) for number, event in enumerate(fault)))
        return state, sum(isinstance(one, SayWouldEnd) for one in effects)

    serving, first = said(serving, 100)
    serving, again = said(serving, 300)
    serving, after_answer = said(after(serving, (500, CanaryAnswered("answered")))[0], 600)
    assert (first, again, after_answer) == (1, 0, 1)
    assert said(after(serving, (800, Completed()))[0], 900)[1] == 1


@pytest.mark.parametrize("result", ["failed", "hung"])
def test_p13_an_observed_server_that_is_healthy_is_ready_although_no_real_request_is_answered(result: str) -> None:
    answer = CanaryAnswered("hung" if result == "hung" else "failed", "60 s")
    state, effects = after(OBSERVED, (1, HealthAnswered(True)), (2, answer), (23, Tick()), (24, Tick()), (99, Tick()))
    would, ready = (one for one in effects if not isinstance(one, SendCanary))
    assert isinstance(would, SayWouldEnd)
    assert ready == SayReady("only observed: no real request was answered")
    assert state.stage == "serving"


def test_p13_an_observed_server_without_health_is_not_ready() -> None:
    observed = Lifecycle(Timing(60, 20, 300), observes_only=True).on(Spawned(), 0.0)[0]
    state, effects = after(observed, (1, HealthAnswered(False)), (301, Tick()), (900, Tick()))
    assert not any(isinstance(one, SayReady) for one in effects)
    assert state.ready_at is None
