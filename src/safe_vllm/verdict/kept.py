"""The evidence that is kept: bounded, however much a server prints."""

from __future__ import annotations

from collections import Counter, deque

from safe_vllm.verdict.evidence import Evidence

OF_ONE_SIGNATURE = 8
BEFORE_THE_LAST_ANSWER = 64


class Kept:
    """The first lines of each signature since a request was last answered, and the last of those before."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._seen: Counter[str] = Counter()
        self._earlier: deque[Evidence] = deque(maxlen=BEFORE_THE_LAST_ANSWER)
        self._recent: list[Evidence] = []

    def has_enough(self, signature: str) -> bool:
        """Whether more of this signature would tell nothing new."""
        return self._seen[signature] >= OF_ONE_SIGNATURE

    def add(self, evidence: Evidence) -> None:
        """Keep ``evidence``."""
        self._seen[evidence.signature] += 1
        self._recent.append(evidence)

    def settle(self, answer: Evidence) -> None:
        """Note that a request was answered: what came before is history."""
        self._earlier.extend(self._recent)
        self._earlier.append(answer)
        self._recent.clear()
        self._seen.clear()

    @property
    def all(self) -> tuple[Evidence, ...]:
        """Everything kept, in order."""
        return (*self._earlier, *self._recent)
