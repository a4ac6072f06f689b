"""The kinds of real requests that a vLLM server may answer, how each is asked, and what its answer holds.

Which routes there are depends on the model: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
Where a route is missing, newer releases say 404; up to 0.12 they say 400, and 501 where a kind is not implemented.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from safe_vllm.attempt.readiness import Answer, Content, content

BOUNDARY = "safe-vllm-canary"
SAMPLES_PER_S = 16_000


@dataclass(frozen=True)
class Reply:
    """What a server made of one text."""

    is_empty: bool = False
    """Whether nothing came of it, not even a token that prints as nothing."""
    text: str = ""
    tokens: tuple[str, ...] = ()
    numbers: tuple[object, ...] = ()
    """Log-probabilities, or an embedding, or scores: whatever must be finite."""

    @property
    def is_finite(self) -> bool:
        """Return whether every number is one. Newer releases write NaN as ``null``."""
        return all(isinstance(number, (int, float)) and math.isfinite(number) for number in self.numbers)

    @property
    def is_garbled(self) -> bool:
        """Return whether replacement characters stand in it; the last one may be half of a character that was cut."""
        return "\ufffd" in self.text[:-1]

    @property
    def is_stuck(self) -> bool:
        """Return whether it is one token over and over."""
        return len(self.tokens) > 2 and len(set(self.tokens)) == 1


@dataclass(frozen=True)
class Question:
    """What to ask: one or more texts, of a model."""

    model: str
    texts: tuple[str, ...]
    tokens: int
    """How many to generate."""
    wants_logprobs: bool = True


@dataclass(frozen=True)
class Kind:
    """One kind of request."""

    route: str
    ask: Callable[[Question], Content]
    read: Callable[[object], Iterable[Reply]]
    takes_many: bool = True
    """Whether one request may hold several texts."""
    has_series: bool = True
    """Whether other lengths are worth asking for."""
    has_logprobs: bool = False
    needs_audio: bool = False
    """Whether it needs packages that vLLM may be installed without; it says 500 then."""


def trouble(kind: Kind, answer: Answer, wanted: int) -> tuple[str | None, tuple[Reply, ...]]:
    """Return what is wrong with an answer of status 200, and all replies in it."""
    if not answer.is_whole:  # more numbers than anybody wants to read: it has certainly worked
        return None, ()
    replies = tuple(kind.read(answer.json()))
    if len(replies) < wanted:
        return f"{kind.route} answered {len(replies)} of {wanted} texts", replies
    if any(reply.is_empty for reply in replies):
        return f"the answer of {kind.route} holds {'no token' if kind.has_logprobs else 'nothing'}", replies
    if not all(reply.is_finite for reply in replies):
        what = "log-probabilities" if kind.has_logprobs else "numbers"
        return f"the {what} in the answer of {kind.route} are not finite", replies
    return None, replies


def _completion(question: Question) -> Content:
    # A model may want to end at once; without ignore_eos such an answer would hold no token and prove nothing.
    texts = question.texts
    prompt = {"prompt": texts[0] if len(texts) == 1 else list(texts)}
    return content(_generation(question) | prompt | ({"logprobs": 1} if question.wants_logprobs else {}))


def _chat(question: Question) -> Content:
    messages = {"messages": [{"role": "user", "content": question.texts[0]}]}
    return content(_generation(question) | messages | ({"logprobs": True} if question.wants_logprobs else {}))


def _generation(question: Question) -> dict[str, object]:
    return {"model": question.model, "max_tokens": question.tokens, "temperature": 0, "ignore_eos": True}


def _inputs(question: Question) -> Content:
    texts = question.texts
    return content({"model": question.model, "input": texts[0] if len(texts) == 1 else list(texts)})


def _pairs(question: Question) -> Content:
    return content({"model": question.model, "text_1": question.texts[0], "text_2": list(question.texts)})


def _speech(question: Question) -> Content:
    """Return a second of a tone, as a form with a WAV file in it."""
    tone = b"".join(
        round(8000 * math.sin(math.tau * 440 * sample / SAMPLES_PER_S)).to_bytes(2, "little", signed=True)
        for sample in range(SAMPLES_PER_S)
    )
    sizes = (16, 1 << 16 | 1, SAMPLES_PER_S, 2 * SAMPLES_PER_S, 16 << 16 | 2)  # PCM, mono, 16 bits
    form = b"fmt " + b"".join(size.to_bytes(4, "little") for size in sizes)
    chunks = b"WAVE" + form + b"data" + len(tone).to_bytes(4, "little") + tone
    wave = b"RIFF" + len(chunks).to_bytes(4, "little") + chunks
    fields = {"model": question.model, "temperature": "0", "response_format": "json"}
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts.append(b'name="file"; filename="tone.wav"\r\nContent-Type: audio/wav\r\n\r\n' + wave)
    edge = f"--{BOUNDARY}".encode()
    body = b"".join(edge + b"\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
    return Content(body + edge + b"--\r\n", f"multipart/form-data; boundary={BOUNDARY}")


def _completed(said: object) -> Iterator[Reply]:
    for choice in _list(said, "choices"):
        match choice:
            case {"logprobs": {"tokens": [*tokens], "token_logprobs": [*numbers]}}:
                yield Reply(not tokens, str(choice.get("text") or ""), tuple(map(str, tokens)), tuple(numbers))
            case {"text": str(text)}:
                yield Reply(not (text or _has_counted(said)), text)


def _chatted(said: object) -> Iterator[Reply]:
    for choice in _list(said, "choices"):
        match choice:
            case {"message": {**message}, "logprobs": {"content": [*tokens]}}:
                text = str(message.get("content") or "")
                found = [token for token in tokens if isinstance(token, dict)]
                words, numbers = ([token.get(key) for token in found] for key in ("token", "logprob"))
                yield Reply(not tokens, text, tuple(map(str, words)), tuple(numbers))
            case {"message": {**message}}:
                # A model that is still thinking has no content yet.
                yield Reply(not (message.get("content") or _has_counted(said)), str(message.get("content") or ""))


def _has_counted(said: object) -> bool:
    """Return whether the server says that it made tokens; those of an odd vocabulary may print as nothing."""
    match said:
        case {"usage": {"completion_tokens": int(tokens)}}:
            return tokens > 0
    return False


def _measured(said: object) -> Iterator[Reply]:
    for item in _list(said, "data"):
        numbers = tuple(_flat([item.get(key, []) for key in ("embedding", "probs", "score", "data")]))
        yield Reply(is_empty=not numbers, numbers=numbers)


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _transcribed(said: object) -> Iterator[Reply]:
    match said:
        case {"text": str(text)}:  # there may be no word in a tone
            yield Reply(text=text)


def _list(said: object, key: str) -> Sequence[dict[str, object]]:
    found = said.get(key) if isinstance(said, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


KINDS = (
    Kind("/v1/completions", _completion, _completed, has_logprobs=True),
    Kind("/v1/chat/completions", _chat, _chatted, takes_many=False, has_logprobs=True),
    Kind("/v1/embeddings", _inputs, _measured),
    Kind("/classify", _inputs, _measured),
    Kind("/score", _pairs, _measured),
    Kind("/pooling", _inputs, _measured, has_series=False),  # it may say as much as an embedding for every token
    Kind("/v1/audio/transcriptions", _speech, _transcribed, has_series=False, needs_audio=True),
)
"""In the order in which they are tried: the first one that is answered is the kind of this server."""
