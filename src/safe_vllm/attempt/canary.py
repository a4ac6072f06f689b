"""The real request that proves a server works: the faults we are about can strike at the first inference."""

from __future__ import annotations

import math
from collections.abc import Iterator

from safe_vllm.attempt.event import CanaryAnswered
from safe_vllm.attempt.readiness import NO_ANSWER, Answer, ask
from safe_vllm.plan.endpoint import Endpoint

TIMEOUT_S = 300.0
"""vLLM gives one step as much (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS); kernels may be compiled at the first request."""
PROMPT = "The quick brown fox jumps over the lazy dog."
TOKENS = 8


def send(endpoint: Endpoint, timeout_s: float = TIMEOUT_S) -> CanaryAnswered:
    """Ask for one greedy completion. Blocks for ``timeout_s`` seconds at most per request."""
    try:
        models = ask(endpoint, "/v1/models", timeout_s)
        if models.status != 200:
            return _refused_or_failed(models, "/v1/models")
        return _judge(ask(endpoint, "/v1/completions", timeout_s, _request(_model_name(models))))
    except TimeoutError:
        return CanaryAnswered("hung", f"{timeout_s:g} s")
    except NO_ANSWER as error:
        return CanaryAnswered("failed", f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _request(model: str) -> dict[str, object]:
    # A model may want to end at once; without ignore_eos such an answer would hold no token and prove nothing.
    return {
        "model": model,
        "prompt": PROMPT,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 1,
    }


def _judge(answer: Answer) -> CanaryAnswered:
    if answer.status != 200:
        return _refused_or_failed(answer, "/v1/completions")
    if not any(map(_holds_token, _choices(answer.json()))):
        return CanaryAnswered("failed", "the completion holds no token")
    if not all(math.isfinite(value) for value in _numbers(answer.json())):
        return CanaryAnswered("failed", "the completion's log-probabilities are not finite")
    return CanaryAnswered("answered")


def _refused_or_failed(answer: Answer, path: str) -> CanaryAnswered:
    detail = f"{path} says {answer.status}"
    return CanaryAnswered("refused" if 400 <= answer.status < 500 else "failed", detail)


def _model_name(answer: Answer) -> str:
    match answer.json():
        case {"data": [{"id": str(name)}, *_]}:
            return name
    return ""


def _choices(content: object) -> list[object]:
    match content:
        case {"choices": [*choices]}:
            return choices
    return []


def _holds_token(choice: object) -> bool:
    """Return whether there is a token; one of an odd vocabulary may print as nothing, its log-probability does not."""
    match choice:
        case {"logprobs": {"tokens": [_, *_]}}:
            return True
        case {"text": str(text)}:
            return bool(text)
    return False


def _numbers(content: object) -> Iterator[float]:
    match content:
        case {"choices": [{"logprobs": {"token_logprobs": [*values]}}, *_]}:
            yield from (value for value in values if isinstance(value, (int, float)))
