"""What the fake's processes say in a random scene, so that every byte tells who wrote it, and when.

The upper half of the byte values is shared out: four to each of four processes in each of eight attempts. Bytes of
ASCII are left for whole lines, which are few and known.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from scenes import Scene, Step, mark, write

ATTEMPTS = 8
"""More attempts than these say nothing."""
ROLES = ("leader", "engine", "worker", "escapee")
OURS = re.compile(rb"^safe-vllm: [^\n]*\n", re.MULTILINE)
TWO_STREAMS = ("stdout", "stderr")


@dataclass
class Voice:
    """All that one process of one attempt says, in order."""

    attempt: int
    role: str
    said: list[tuple[str, bytes]] = field(default_factory=list)
    """The stream and the bytes of each piece."""

    def __post_init__(self) -> None:
        """Choose the four byte values."""
        self.lowest = 0x80 | ROLES.index(self.role) << 5 | (self.attempt - 1) << 2
        self._random = random.Random(f"{self.attempt} {self.role}")

    def says(self, stream: str, size: int, end: str, times: int = 1) -> Scene:
        """Return the steps that say one more piece, ``times`` over, and note it afterwards."""
        symbols = bytes(self.lowest | value & 3 for value in range(256))
        piece = self._random.randbytes(size).translate(symbols)
        self.said.append((stream, piece * times))
        return [write(stream, piece + end.encode(), times=times), mark(self._mark(len(self.said)))]

    def trouble(self, streams: dict[str, bytes], marks: frozenset[str], *, may_lack: bool) -> list[str]:
        """Return what is wrong with what came out of each stream, our own lines left out; ``marks`` of the fake."""
        surely = sum(self._mark(count + 1) in marks for count in range(len(self.said)))
        found = []
        for stream, output in streams.items():
            heard = self._own(output)
            most, least = (self._of(stream, pieces) for pieces in (self.said, self.said[:surely]))
            if not most.startswith(heard):
                found.append(f"{stream}: what the {self.role} of attempt {self.attempt} said came out changed")
            elif len(heard) < len(least) and not may_lack:
                lack = f"{len(least) - len(heard)} of {len(least)} bytes"
                found.append(f"{stream}: {lack} of the {self.role} of attempt {self.attempt} are lost")
        return found

    def _of(self, stream: str, pieces: list[tuple[str, bytes]]) -> bytes:
        return b"".join(piece for to, piece in pieces if stream in (to, "both"))

    def _own(self, output: bytes) -> bytes:
        mine = range(self.lowest, self.lowest + 4)
        return output.translate(None, bytes(value for value in range(256) if value not in mine))

    def _mark(self, count: int) -> str:
        return f"{self.role} of attempt {self.attempt} said {count}"


def without_ours(output: bytes) -> bytes:
    """Return the output without our own lines."""
    return OURS.sub(b"", output)


def plain_lines(output: bytes) -> set[str]:
    """Return the lines of ASCII that are not ours."""
    ascii_only = without_ours(output).translate(None, bytes(range(128, 256))).decode()
    return {line.strip() for line in re.split(r"[\r\n]+", ascii_only) if line.strip()}


def written_lines(steps: list[Step]) -> set[str]:
    """Return the lines of ASCII that steps, and what they start, may write."""
    lines: set[str] = set()
    for step in steps:
        if step["do"] == "write":
            lines |= plain_lines(step["data"].encode("latin-1"))
        answers = step.get("completions", []) if step["do"] == "serve" else []
        lines |= written_lines(
            [*step.get("steps", []), *(s for a in answers if isinstance(a, dict) for s in a["first"])]
        )
    return lines
