"""What a log that a test has at hand lets one observe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from safe_vllm.verdict.evidence import Observations
from safe_vllm.verdict.replay import Replay
from safe_vllm.verdict.signatures import Signatures


def observe_log(data: bytes, exit_status: int | None, signatures: Signatures) -> Observations:
    """Return what ``data`` shows; ``exit_status`` is that of ``vllm serve``, ``None`` where nobody knows."""
    return observe_chunks((data,), exit_status, signatures)


def observe_chunks(chunks: Iterable[bytes], exit_status: int | None, signatures: Signatures) -> Observations:
    """Like ``observe_log``, for a log that is read piece by piece."""
    replay = Replay(signatures)
    for chunk in chunks:
        replay.feed(chunk)
    return replace(replay.observations(), leader_status=exit_status)
