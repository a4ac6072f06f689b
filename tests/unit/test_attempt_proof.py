"""What proves a rung: the whole window in service, and an answer at its end."""

from __future__ import annotations

from safe_vllm.attempt.effect import Effect, SayProven, SendCanary
from safe_vllm.attempt.event import CanaryAnswered, Completed, Event, Pulse, Tick
from safe_vllm.attempt.proof import Proof
from safe_vllm.attempt.timing import Timing

TIMING = Timing(60, 20, None, proving_window_s=600)
READY_AT = 100.0
ASKED: tuple[float, Event] = (700, Tick())


def after(
    proof: Proof,
    *events: tuple[float, Event],
    stage: str = "serving",
    ready_at: float | None = READY_AT,
    is_armed: bool = False,
) -> tuple[Proof, list[Effect]]:
    effects: list[Effect] = []
    for now, event in events:
        proof, more = proof.on(event, now, stage, ready_at, is_armed=is_armed)
        effects += more
    return proof, effects


def test_at_the_end_of_the_window_a_request_is_sent_and_its_answer_is_the_proof_once() -> None:
    proof, effects = after(Proof(TIMING), (101, Tick()), (699, Tick()))
    assert effects == []
    assert proof.due_at == 700
    proof, effects = after(proof, ASKED, (701, CanaryAnswered("answered")), (702, CanaryAnswered("answered")))
    assert effects == [SendCanary(), SayProven()]
    assert proof.is_proven
    assert proof.due_at is None


def test_an_answer_before_the_end_of_the_window_proves_nothing() -> None:
    proof, effects = after(Proof(TIMING), (300, CanaryAnswered("answered")), (301, Completed()), (302, Pulse(b"1", 0)))
    assert effects == []
    assert not proof.is_proven


def test_a_request_that_fails_at_the_end_is_sent_again_a_minute_later() -> None:
    proof, effects = after(Proof(TIMING), (101, Tick()), ASKED, (701, CanaryAnswered("failed")), (760, Tick()))
    assert effects == [SendCanary(), SendCanary()]
    assert not proof.is_proven


def test_without_a_canary_the_next_request_of_anybody_is_the_proof() -> None:
    quiet = Proof(TIMING, wants_canary=False)
    proof, effects = after(quiet, (101, Tick()), ASKED, (900, Tick()))
    assert effects == []
    assert proof.due_at is None
    assert after(proof, (901, Completed()))[1] == [SayProven()]
    assert after(proof, (901, Pulse(b"1", 0)), (931, Pulse(b"1", 0)), (961, Pulse(b"2", 0)))[1] == [SayProven()]


def test_what_was_counted_before_the_end_is_no_work_after_it() -> None:
    quiet = Proof(TIMING, wants_canary=False)
    events: tuple[tuple[float, Event], ...] = (
        (101, Pulse(b"1", 0)),
        (102, Pulse(b"2", 0)),
        ASKED,
        (701, Pulse(b"2", 0)),
    )
    assert after(quiet, *events)[1] == []


def test_a_server_that_is_not_ready_or_is_ending_proves_nothing() -> None:
    for stage, ready_at in (("starting", None), ("proving", None), ("ending", READY_AT)):
        events: tuple[tuple[float, Event], ...] = ((101, Tick()), ASKED, (701, CanaryAnswered("answered")))
        assert after(Proof(TIMING), *events, stage=stage, ready_at=ready_at)[1] == []


def test_nobody_who_does_not_want_to_know_is_told() -> None:
    assert after(Proof(Timing(60, 20, None)), (101, Tick()), (10_000, Tick()), (10_001, Completed()))[1] == []


def test_while_a_fault_stands_nothing_is_proven_and_nobody_is_asked() -> None:
    asked, _ = after(Proof(TIMING), (101, Tick()), ASKED)
    proof, effects = after(asked, (701, CanaryAnswered("answered")), (702, Completed()), (790, Tick()), is_armed=True)
    assert effects == []
    assert proof.due_at == 850  # no busy waiting
    assert after(proof, (850, Tick()), (851, CanaryAnswered("answered")))[1] == [SendCanary(), SayProven()]


def test_a_fault_that_was_survived_in_good_time_costs_nothing() -> None:
    proof, _ = after(Proof(TIMING), (101, Tick()), is_armed=True)
    assert proof.due_at == 700


def test_what_was_counted_while_a_fault_stood_is_no_work_after_it() -> None:
    quiet, _ = after(Proof(TIMING, wants_canary=False), (101, Tick()), ASKED, (701, Pulse(b"1", 0)))
    armed, _ = after(quiet, (702, Pulse(b"2", 0)), is_armed=True)
    assert after(armed, (732, Pulse(b"2", 0)))[1] == []
    assert after(armed, (732, Pulse(b"3", 0)))[1] == [SayProven()]
