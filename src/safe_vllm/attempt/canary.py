"""The real requests that prove a server works: the faults we are about can strike at the first inference."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from safe_vllm.attempt.calls import Calls
from safe_vllm.attempt.event import CanaryAnswered
from safe_vllm.attempt.readiness import NO_ANSWER, Answer, Content, NotAdmitted, ask, had_no_room, is_healthy
from safe_vllm.attempt.requests import KINDS, Kind, Question, Reply, trouble
from safe_vllm.plan.endpoint import Endpoint

TIMEOUT_S = 300.0
"""For one request. vLLM gives one step as much (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS); kernels may be compiled first."""
SERIES_S = 120.0
"""After so long no further request is begun: a slow machine shall serve, too."""
TOKENS = 8
SPARE_TOKENS = 8
"""For what a tokenizer adds to a text, which in English has no more tokens than letters."""
UNKNOWN_LENGTH = 256


@dataclass(frozen=True)
class Shape:
    """Texts of some length, in some number: each runs other kernels."""

    name: str
    texts: tuple[str, ...]


SENTENCE = Shape("a sentence", ("The quick brown fox jumps over the lazy dog.",))
SERIES = (
    Shape("one word", ("Once",)),
    Shape("a page", (" ".join(f"Day {day}: the wind was fair, and the ship made good way." for day in range(1, 21)),)),
    Shape("a batch", tuple(f"The square of {number} is {'certainly ' * (number % 4)}" for number in range(1, 9))),
)
"""What follows when the sentence was answered. Eight at once: a server of eight engines gives one to each."""


def send(
    endpoint: Endpoint,
    is_thorough: bool = True,
    timeout_s: float = TIMEOUT_S,
    series_s: float = SERIES_S,
    calls: Calls | None = None,
) -> CanaryAnswered:
    """Send real requests: one, or a series. Blocks for ``series_s``, and ``timeout_s`` per port and once more."""
    until = time.monotonic() + (series_s if is_thorough else 0.0)
    visits = [_Visit(place, timeout_s, until, calls) for place in endpoint.each()]
    for visit in visits:
        result = visit.result(is_thorough)
        if result.result != "answered":
            return result
    return CanaryAnswered("answered", remarks=_remarks(visits) if is_thorough else ())


@dataclass
class _Visit:
    """The requests to one port."""

    place: Endpoint
    timeout_s: float
    until: float
    calls: Calls | None
    deadline: float = 0.0
    """When the request that is under way counts as never answered."""
    model: str = ""
    longest: int = UNKNOWN_LENGTH
    wants_logprobs: bool = True
    doing: str = ""
    replies: list[Reply] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def result(self, is_thorough: bool) -> CanaryAnswered:
        """Send them and tell what came of it."""
        self.deadline = time.monotonic() + self.timeout_s
        try:
            return self._learn() or self._prove(is_thorough)
        except TimeoutError:
            return CanaryAnswered("hung", f"{self.timeout_s:g} s, {self.doing}")
        except NotAdmitted as error:
            return CanaryAnswered("refused", str(error))
        except NO_ANSWER as error:
            if had_no_room(error):
                return CanaryAnswered("unasked")
            words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return CanaryAnswered("failed", f"{words}, {self.doing}")

    def _learn(self) -> CanaryAnswered | None:
        """Ask for the model's name and the length of its prompts."""
        self.doing = "/v1/models"
        answer = self._send(self.doing)
        if answer.status != 200:
            return _declined(answer, self.doing)
        match answer.json():
            case {"data": [{"id": str(name), **facts}, *_]}:
                length = facts.get("max_model_len")
                self.model, self.longest = name, length if isinstance(length, int) else UNKNOWN_LENGTH
        return None

    def _prove(self, is_thorough: bool) -> CanaryAnswered:
        declined: list[CanaryAnswered] = []
        for kind in KINDS:
            ended = self._put(kind, SENTENCE)
            if ended is None:
                return (self._go_on(kind) if is_thorough else None) or CanaryAnswered("answered")
            if ended.result == "failed":
                return ended
            declined.append(ended)
        return declined[0]

    def _go_on(self, kind: Kind) -> CanaryAnswered | None:
        """Send the rest of the series."""
        for shape in SERIES if kind.has_series else ():
            if len(shape.texts) > 1 and not kind.takes_many:
                continue
            self.deadline = time.monotonic() + self.timeout_s
            if time.monotonic() >= self.until:
                self.left_out.append(f"{shape.name} was left out, for time")
                continue
            ended = self._put(kind, shape)
            if ended and ended.result != "refused":
                return ended
            if ended:
                self.left_out.append(f"{shape.name} was refused: {ended.detail}")
        return None

    def _put(self, kind: Kind, shape: Shape) -> CanaryAnswered | None:
        """Send one request; ``None`` when its answer is as it should be."""
        self.doing = f"{kind.route}, {shape.name}"
        answer = self._ask(kind, shape)
        if answer.status != 200:
            return self._not_answered(kind, answer)
        wrong, replies = trouble(kind, answer, len(shape.texts))
        self.replies += replies
        return CanaryAnswered("failed", wrong) if wrong else None

    def _ask(self, kind: Kind, shape: Shape) -> Answer:
        answer = self._send(kind.route, self._content(kind, shape))
        if answer.status == 400 and kind.has_logprobs and self.wants_logprobs:  # --max-logprobs 0
            self.wants_logprobs = False
            again = self._send(kind.route, self._content(kind, shape))
            self.wants_logprobs = again.status != 200
            return again
        return answer

    def _send(self, route: str, content: Content | None = None) -> Answer:
        return ask(self.place, route, self.deadline - time.monotonic(), content, self.calls)

    def _content(self, kind: Kind, shape: Shape) -> Content:
        tokens = max(1, min(TOKENS, self.longest // 2))
        letters = max(1, self.longest - tokens - SPARE_TOKENS)
        texts = tuple(text[:letters] for text in shape.texts)
        return kind.ask(Question(self.model, texts, tokens, self.wants_logprobs))

    def _not_answered(self, kind: Kind, answer: Answer) -> CanaryAnswered:
        declined = _declined(answer, kind.route)
        if declined.result == "failed" and kind.needs_audio and is_healthy(self.place, self.calls):
            return CanaryAnswered("refused", declined.detail)  # without its audio packages vLLM says 500
        return declined


def _declined(answer: Answer, route: str) -> CanaryAnswered:
    """Tell a server that is broken (5xx) from one that does not offer this (also 501)."""
    is_broken = answer.status >= 500 and answer.status != 501
    return CanaryAnswered("failed" if is_broken else "refused", f"{route} says {answer.status}")


def _remarks(visits: list[_Visit]) -> tuple[str, ...]:
    """Return what people should know of a server that works."""
    replies = [reply for visit in visits for reply in visit.replies]
    garbled, stuck = sum(reply.is_garbled for reply in replies), sum(reply.is_stuck for reply in replies)
    remarks = list(dict.fromkeys(said for visit in visits for said in visit.left_out))
    if not all(visit.wants_logprobs for visit in visits):
        remarks.append("log-probabilities are not given and were not checked")
    if garbled:
        remarks.append(f"replacement characters in {garbled} of {len(replies)} answers")
    if stuck:
        remarks.append(f"one token repeated over the whole of {stuck} of {len(replies)} answers")
    return tuple(remarks)
