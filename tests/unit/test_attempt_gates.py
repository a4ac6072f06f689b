"""The gates: what counts as back, and a wait that a stop ends and nothing else stalls."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from safe_vllm.attempt.asking import answer
from safe_vllm.attempt.gates import GPU_TOLERANCE_MIB, is_taken, missing, remove_left_socket, wait
from safe_vllm.attempt.loop import Loop, StopAsked
from safe_vllm.machine.levels import GpuMemory
from safe_vllm.plan.endpoint import Endpoint


def gpu(uuid: str, free: int) -> GpuMemory:
    return GpuMemory(uuid, 0, free, 80_000)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ([gpu("a", 70_000), gpu("b", 60_000)], []),
        ([gpu("a", 70_000 - GPU_TOLERANCE_MIB), gpu("b", 79_000)], []),
        ([gpu("a", 70_000), gpu("b", 60_000 - GPU_TOLERANCE_MIB - 1)], ["b"]),
        ([gpu("b", 10), gpu("a", 10)], ["b", "a"]),
        ([gpu("b", 60_000)], []),
        ([gpu("a", 70_000), gpu("b", 60_000), gpu("c", 10)], []),
    ],
)
def test_a_gpu_is_back_when_it_has_within_512_mib_of_what_it_had(now: list[GpuMemory], expected: list[str]) -> None:
    assert [short.uuid for short in missing([gpu("a", 70_000), gpu("b", 60_000)], now)] == expected


def test_a_wait_ends_with_the_first_answer_that_will_do(loop: Loop) -> None:
    answers, said = iter([1, 2, 3, 4]), list[int]()
    waited = wait(loop, lambda: next(answers), lambda found: found == 3, 60, said.append)
    assert (waited.answer, waited.is_met) == (3, True)
    assert said == [1]
    assert next(answers) == 4


def test_a_wait_gives_up_with_the_last_answer(loop: Loop) -> None:
    asked: list[int] = []

    def question() -> int:
        asked.append(len(asked))
        return asked[-1]

    waited = wait(loop, question, lambda found: False, limit_s=0.6)
    assert not waited.is_met
    assert waited.answer == asked[-1] >= 1
    assert waited.seconds >= 0.6


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Return what is not set while anybody could wait for it; a wait without an end must not hang the test."""
    event = threading.Event()
    timer = threading.Timer(10, event.set)
    timer.start()
    yield event
    timer.cancel()
    event.set()


def test_a_question_that_is_never_answered_does_not_hold_up_the_launch(loop: Loop, never: threading.Event) -> None:
    waited = wait(loop, never.wait, bool, limit_s=0.1)
    assert (waited.answer, waited.is_met) == (None, False)
    assert answer(loop, never.wait, within_s=0.1) is None


def test_p9_a_stop_ends_the_wait_also_when_the_question_hangs(loop: Loop, never: threading.Event) -> None:
    def question() -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return never.wait()

    with pytest.raises(StopAsked):
        wait(loop, question, bool, limit_s=60)
    assert not never.is_set()


def test_p9_a_stop_between_two_questions_ends_the_wait(loop: Loop) -> None:
    def question() -> bool:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return False

    with pytest.raises(StopAsked):
        wait(loop, question, bool, limit_s=60)


def test_a_bug_in_a_question_is_reported_and_is_no_answer(loop: Loop, capfd: pytest.CaptureFixture[str]) -> None:
    assert answer(loop, lambda: 1 // 0, within_s=60) is None
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.fixture
def place() -> Iterator[str]:
    """Return a short path: the address of a socket has 107 bytes."""
    with tempfile.TemporaryDirectory() as directory:
        yield f"{directory}/s"


def bound(path: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    return server


def test_p8_the_socket_file_of_a_killed_server_is_removed_since_vllm_cannot_bind_over_it(place: str) -> None:
    bound(place).close()
    assert remove_left_socket(place)
    bound(place).close()


def test_a_socket_file_that_somebody_has_is_kept(place: str) -> None:
    with bound(place) as server:
        assert not remove_left_socket(place)
        assert not is_taken(Endpoint("127.0.0.1", 0, uds=place))
        server.listen()
        assert not remove_left_socket(place)
        assert is_taken(Endpoint("127.0.0.1", 0, uds=place))


def test_a_socket_file_that_somebody_bound_under_another_name_is_kept(place: str) -> None:
    directory, name = place.rsplit("/", 1)
    with bound(f"{directory}/./{name}") as server:
        server.listen()
        assert not remove_left_socket(place)


def test_a_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert not remove_left_socket(str(file))
    assert file.exists()
    assert not remove_left_socket(str(tmp_path / "absent"))
    assert not remove_left_socket("a\0b")


def test_a_port_is_taken_while_somebody_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        endpoint = Endpoint("127.0.0.1", server.getsockname()[1])
        assert not is_taken(endpoint)
        server.listen()
        assert is_taken(endpoint)
