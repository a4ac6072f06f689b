"""P12: what the canary asks, and what it makes of the answers. A real server answers what the test writes down."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from api import Said, always, models, serving

from safe_vllm.attempt.canary import SENTENCE, SERIES, TOKENS, send
from safe_vllm.attempt.event import CanaryAnswered
from safe_vllm.attempt.readiness import _limited, is_healthy

COMPLETIONS, CHAT, EMBEDDINGS = "/v1/completions", "/v1/chat/completions", "/v1/embeddings"
SPEECH = "/v1/audio/transcriptions"
REQUESTS = 1 + len(SERIES)
CHOICE = {"text": " a b", "logprobs": {"tokens": [" a", " b"], "token_logprobs": [-1.5, -9999.0]}}


def completed(asked: dict[str, Any], choice: object = CHOICE) -> Said:
    """Answer as many texts as were asked."""
    return 200, {"choices": [choice] * (len(asked["prompt"]) if isinstance(asked["prompt"], list) else 1)}


def embedded(asked: dict[str, Any]) -> Said:
    """Return a vector for each text."""
    texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
    return 200, {"data": [{"index": place, "embedding": [0.5, -0.5]} for place in range(len(texts))]}


def test_a_server_that_answers_everything_has_nothing_to_remark() -> None:
    with serving({COMPLETIONS: completed}) as (api, place):
        assert send(place) == CanaryAnswered("answered")
        assert api.paths() == [COMPLETIONS] * REQUESTS
        assert send(place, is_thorough=False) == CanaryAnswered("answered")
        assert api.paths() == [COMPLETIONS] * (REQUESTS + 1)


def test_the_requests_are_greedy_and_go_to_the_end() -> None:
    with serving({COMPLETIONS: completed}) as (api, place):
        send(place)
    for _, asked in api.asked[1:]:
        assert asked.pop("prompt")
        assert asked == {"model": "m", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "logprobs": 1}


@pytest.mark.parametrize("length", [1, 2, 16, 64, 256, 4096, None])
def test_no_prompt_is_longer_than_the_model_takes_whatever_the_tokenizer(length: int | None) -> None:
    with serving({"/v1/models": models(length), COMPLETIONS: completed}) as (api, place):
        assert send(place).result == "answered"
    for _, asked in api.asked[1:]:
        texts = asked["prompt"] if isinstance(asked["prompt"], list) else [asked["prompt"]]
        assert all(texts)
        assert asked["max_tokens"] >= 1
        assert max(map(len, texts)) + asked["max_tokens"] <= max(2, length or 256)


def test_where_this_machine_has_no_descriptor_left_nothing_is_said_of_the_server() -> None:
    with serving({COMPLETIONS: completed}) as (_, place), no_descriptor_left():
        assert send(place) == CanaryAnswered("unasked")
        with pytest.raises(OSError, match="Too many open files"):
            is_healthy(place)


def test_where_this_machine_has_no_thread_left_the_answer_comes_all_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, no_thread_left():
        connected = socket.create_connection(server.getsockname())
        with connected, _limited(connected, 60):
            assert connected.fileno() >= 0


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as free:
        number = free.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Let this process start no thread: none has so large a stack."""
    before = threading.stack_size(2**47)
    try:
        with pytest.raises(RuntimeError):
            threading.Thread(target=print).start()
        yield
    finally:
        threading.stack_size(before)


def test_the_lengths_differ() -> None:
    page = next(shape for shape in SERIES if shape.name == "a page")
    words = [len(text.split()) for text in (*SENTENCE.texts, *page.texts)]
    assert words[0] < 16 < 200 < words[1]
    assert all(text.isascii() for shape in (SENTENCE, *SERIES) for text in shape.texts)


@pytest.mark.parametrize(
    ("choice", "detail"),
    [
        ({"text": ""}, "the answer of /v1/completions holds no token"),
        ({"logprobs": {"tokens": [], "token_logprobs": []}}, "the answer of /v1/completions holds no token"),
        (
            {"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [float("nan")]}},
            "the log-probabilities in the answer of /v1/completions are not finite",
        ),
        (
            {"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [float("-inf")]}},
            "the log-probabilities in the answer of /v1/completions are not finite",
        ),
        (
            {"text": "a", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1, None]}},
            "the log-probabilities in the answer of /v1/completions are not finite",
        ),
        ("no choice at all", "/v1/completions answered 0 of 1 texts"),
    ],
)
def test_an_answer_without_tokens_or_with_infinite_numbers_fails(choice: object, detail: str) -> None:
    with serving({COMPLETIONS: lambda asked: completed(asked, choice)}) as (_, place):
        assert send(place) == CanaryAnswered("failed", detail)


@pytest.mark.parametrize("said", [None, [], {}, {"choices": None}, {"choices": "many"}, b"<html>", b"[" * 100_000])
def test_an_answer_that_makes_no_sense_fails(said: object) -> None:
    with serving({COMPLETIONS: always(200, said)}) as (_, place):
        assert send(place).result == "failed"


def test_every_text_of_the_batch_wants_an_answer() -> None:
    with serving({COMPLETIONS: always(200, {"choices": [CHOICE]})}) as (_, place):
        assert send(place) == CanaryAnswered("failed", "/v1/completions answered 1 of 8 texts")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize(("status", "result"), [(500, "failed"), (503, "failed")])
def test_a_server_that_breaks_at_any_request_of_the_series_has_failed(number: int, status: int, result: str) -> None:
    count = iter(range(1, 9))
    routes = {COMPLETIONS: lambda asked: (status, None) if next(count) == number else completed(asked)}
    with serving(routes) as (_, place):
        assert send(place) == CanaryAnswered("failed", f"/v1/completions says {status}")
        assert send(place).result == "answered"


def test_a_length_that_is_refused_is_remarked() -> None:
    routes = {COMPLETIONS: lambda asked: completed(asked) if len(asked["prompt"]) < 100 else (400, None)}
    with serving(routes) as (_, place):
        assert send(place) == CanaryAnswered("answered", remarks=("a page was refused: /v1/completions says 400",))


def test_log_probabilities_that_are_refused_are_left_out_and_remarked() -> None:
    routes = {COMPLETIONS: lambda asked: (400, None) if "logprobs" in asked else completed(asked, {"text": "a"})}
    with serving(routes) as (api, place):
        assert send(place) == CanaryAnswered(
            "answered", remarks=("log-probabilities are not given and were not checked",)
        )
        assert len(api.paths()) == REQUESTS + 1


def test_a_token_that_prints_as_nothing_is_a_token() -> None:
    said = {"choices": [{"text": ""}] * 8, "usage": {"completion_tokens": 3}}
    with serving({COMPLETIONS: always(200, said)}) as (_, place):
        assert send(place).result == "answered"


def test_nonsense_is_remarked_and_does_not_fail() -> None:
    stuck = {"text": "!!!!", "logprobs": {"tokens": ["!"] * 4, "token_logprobs": [-1] * 4}}
    with serving({COMPLETIONS: lambda asked: completed(asked, stuck)}) as (_, place):
        assert send(place).remarks == ("one token repeated over the whole of 11 of 11 answers",)
        assert send(place, is_thorough=False).remarks == ()
    with serving({COMPLETIONS: lambda asked: completed(asked, {"text": "a\ufffdb"})}) as (_, place):
        assert send(place).remarks == ("replacement characters in 11 of 11 answers",)
    with serving({COMPLETIONS: lambda asked: completed(asked, {"text": "half a character\ufffd"})}) as (_, place):
        assert send(place).remarks == ()


CHATTED = {"message": {"content": None}, "logprobs": {"content": [{"token": "a", "logprob": -1.0}]}}


@pytest.mark.parametrize(
    ("choice", "result"),
    [
        (CHATTED, "answered"),
        ({"message": {"content": "a"}, "logprobs": None}, "answered"),
        ({"message": {"content": ""}, "logprobs": {"content": []}}, "failed"),
        ({"message": {"content": None}}, "failed"),
        ({"message": {}, "logprobs": {"content": [{"token": "a", "logprob": None}]}}, "failed"),
        ({"message": {}, "logprobs": {"content": [{"token": "a", "logprob": float("nan")}]}}, "failed"),
    ],
)
def test_a_server_without_completions_is_asked_to_chat(choice: object, result: str) -> None:
    with serving({CHAT: always(200, {"choices": [choice]})}) as (api, place):
        assert send(place).result == result
    _, asked = api.asked[2]
    assert asked["messages"][0]["role"] == "user"
    assert (asked["logprobs"], asked["temperature"], asked["ignore_eos"]) == (True, 0, True)


@pytest.mark.parametrize("missing", [400, 404, 405, 422, 501])
def test_an_embedding_model_is_asked_for_embeddings(missing: int) -> None:
    routes = {COMPLETIONS: always(missing), CHAT: always(missing), EMBEDDINGS: embedded}
    with serving(routes) as (api, place):
        assert send(place) == CanaryAnswered("answered")
    assert api.paths()[-REQUESTS:] == [EMBEDDINGS] * REQUESTS


@pytest.mark.parametrize(
    ("route", "item", "result"),
    [
        (EMBEDDINGS, {"embedding": []}, "failed"),
        (EMBEDDINGS, {"embedding": [1.0, None]}, "failed"),
        (EMBEDDINGS, {"embedding": [1.0, float("nan")]}, "failed"),
        (EMBEDDINGS, {"embedding": "AAAA"}, "failed"),
        ("/classify", {"label": "good", "probs": [0.1, 0.9], "num_classes": 2}, "answered"),
        ("/classify", {"label": "good", "probs": [0.1, float("nan")]}, "failed"),
        ("/score", {"score": 0.5}, "answered"),
        ("/score", {"score": None}, "failed"),
        ("/pooling", {"data": [[0.1, 0.2], [0.3, 0.4]]}, "answered"),
        ("/pooling", {"data": [[0.1, float("inf")]]}, "failed"),
    ],
)
def test_what_a_pooling_model_says_must_hold_finite_numbers(route: str, item: object, result: str) -> None:
    with serving({route: always(200, {"data": [item] * 8})}) as (_, place):
        assert send(place).result == result


def test_an_answer_too_long_to_look_at_has_certainly_worked() -> None:
    with serving({"/pooling": always(200, {"data": [{"data": [0.25] * 400_000}]})}) as (_, place):
        assert send(place) == CanaryAnswered("answered")


def test_a_server_without_anything_to_ask_for_refuses() -> None:
    with serving({}) as (api, place):
        assert send(place) == CanaryAnswered("refused", "/v1/completions says 404")
    assert len(set(api.paths())) == len(api.paths()) == 7


@pytest.mark.parametrize(("status", "result"), [(401, "refused"), (404, "refused"), (307, "refused"), (500, "failed")])
def test_without_a_model_nothing_else_is_asked(status: int, result: str) -> None:
    with serving({"/v1/models": always(status)}) as (api, place):
        assert send(place) == CanaryAnswered(result, f"/v1/models says {status}")  # type: ignore[arg-type]
    assert api.paths() == []


@pytest.mark.parametrize(
    ("status", "health", "result"),
    [(200, 200, "answered"), (500, 200, "refused"), (500, 503, "failed"), (400, 200, "refused")],
)
def test_a_speech_model_gets_a_tone_and_may_lack_what_reads_it(status: int, health: int, result: str) -> None:
    routes = {SPEECH: always(status, {"text": ""}), "/health": always(health)}
    with serving(routes) as (api, place):
        assert send(place).result == result
    form = next(asked for path, asked in api.asked if path == SPEECH)
    assert b'name="model"\r\n\r\nm\r\n' in form


def test_each_port_is_asked() -> None:
    with serving({COMPLETIONS: completed}) as (first, place), serving({COMPLETIONS: always(500)}) as (second, other):
        both = type(place)(place.host, place.port, more_ports=(other.port,))
        assert send(both) == CanaryAnswered("failed", "/v1/completions says 500")
        assert len(first.paths()) == REQUESTS
        assert len(second.paths()) == 1


def test_when_the_time_is_over_the_rest_of_the_series_is_left_out() -> None:
    with serving({COMPLETIONS: completed}) as (api, place):
        said = send(place, series_s=0.0)
    assert said.result == "answered"
    assert said.remarks == tuple(f"{shape.name} was left out, for time" for shape in SERIES)
    assert len(api.paths()) == 1
