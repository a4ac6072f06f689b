"""Ordinary load for a server: many clients, each of which asks for one completion after another."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEAD = (
    "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
)
PATIENCE_S = 300.0
"""For one answer: a server that is merely slow is not given up."""


class NotAnswered(AssertionError):
    """A request came to nothing; the message says how."""


@dataclass(frozen=True)
class Answered:
    """What came of the load."""

    took_s: tuple[float, ...]
    """How long each answer took, the quickest first."""
    tokens: int
    """How many were generated in all."""
    wall_s: float

    def latency_s(self, share: float) -> float:
        """Return how long the slowest of this share of the answers took."""
        return self.took_s[min(int(share * len(self.took_s)), len(self.took_s) - 1)]


def put_on(port: int, model: Path, turns: Iterator[int], *, clients: int, tokens: int) -> Answered:
    """Ask for a completion at every turn, as many at a time as there are clients, and return when all are answered."""
    return asyncio.run(_all_of_them(port, model, turns, clients, tokens))


async def _all_of_them(port: int, model: Path, turns: Iterator[int], clients: int, tokens: int) -> Answered:
    took_s: list[float] = []
    began = time.monotonic()
    counts = await asyncio.gather(*(_client(port, str(model), turns, tokens, took_s) for _ in range(clients)))
    return Answered(tuple(sorted(took_s)), sum(counts), time.monotonic() - began)


async def _client(port: int, model: str, turns: Iterator[int], tokens: int, took_s: list[float]) -> int:
    """Take turns until there are none, over one connection; return the number of tokens."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    try:
        for turn in turns:
            asked = time.monotonic()
            wanted = {"model": model, "prompt": f"Story {turn}: once upon a time", "max_tokens": tokens}
            count += await asyncio.wait_for(_ask(reader, writer, wanted | {"ignore_eos": True}), PATIENCE_S)
            took_s.append(time.monotonic() - asked)
    except (OSError, EOFError, asyncio.TimeoutError) as error:
        raise NotAnswered(f"a completion was not answered: {error!r}") from error
    finally:
        writer.close()
    return count


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wanted: dict[str, object]) -> int:
    """Return how many tokens the answer has."""
    body = json.dumps(wanted).encode()
    writer.write(HEAD.format(length=len(body)).encode() + body)
    status, *fields = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    (length,) = (int(field.partition(b":")[2]) for field in fields if field.startswith(b"content-length:"))
    answer = await reader.readexactly(length)
    if b" 200 " not in status:
        raise NotAnswered(f"a completion was answered with {status!r}: {answer[:300]!r}")
    return int(json.loads(answer)["usage"]["completion_tokens"])
