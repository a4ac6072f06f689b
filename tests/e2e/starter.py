"""Starts ``safe-vllm serve`` for a test, as often as it likes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from real_launch import RealLaunch, launched


@dataclass(repr=False)
class Starter:
    """What a test's launches have in common. When the stack is closed, nothing of them runs any more."""

    safe_vllm: Path
    vllm: Path
    model: Path
    root: Path
    stack: ExitStack
    launches: list[RealLaunch] = field(default_factory=list)

    def __call__(
        self,
        *words: str,
        model: Path | None = None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> RealLaunch:
        """Start ``safe-vllm OPTIONS serve MODEL … WORDS``."""
        place = self.root / f"launch{len(self.launches)}"
        served = model or self.model
        context = launched(self.safe_vllm, self.vllm, served, place, words, options=options, environment=environment)
        self.launches.append(self.stack.enter_context(context))
        return self.launches[-1]


def assert_it_stops_cleanly(launch: RealLaunch) -> None:
    """The operator's SIGTERM ends it with status 0, and nothing of it is left."""
    assert launch.stop() == 0
    assert launch.survivors() == []
    assert launch.events("launch-ended")[0]["status"] == 0
