"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from safe_vllm.machine.condition import GIB, MIB

Level = Literal["ok", "note", "warning", "problem"]
"""Fine; worth knowing; will cost something or may fail; vLLM will not start or will not stay."""


@dataclass(frozen=True)
class Finding:
    """One line of the check-up, and for whatever is not fine why it matters and what to do."""

    name: str
    level: Level
    what: str
    why: str = ""
    do: str = ""

    @property
    def counts(self) -> bool:
        """Whether it makes the check-up fail."""
        return self.level in ("warning", "problem")


def size(count: int) -> str:
    """Return a number of bytes as people say it."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"
