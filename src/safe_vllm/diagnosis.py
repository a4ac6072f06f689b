"""The story of ``diagnose``: a log is read, observed, and judged as a death of a live server would be."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from safe_vllm import known
from safe_vllm.announce.diagnosis import as_lines, as_object
from safe_vllm.machine import log_file
from safe_vllm.plan.build import RELIEVES
from safe_vllm.verdict.evidence import Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.replay import observe_chunks
from safe_vllm.verdict.unwrap import unwrapped


def of(
    path: str | None, exit_status: int | None, on_progress: Callable[[int], None]
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on a log and the links that explain its root lines. Raises Trouble when it cannot be read."""
    signatures = known.signatures()
    chunks = unwrapped(log_file.chunks(path, on_progress))
    verdict = judge(observe_chunks(chunks, exit_status, signatures))
    named = (signatures.link(found.signature) for found in verdict.evidence if found.kind == "root")
    return verdict, tuple(dict.fromkeys(link for link in named if link))


def told(verdict: Verdict, links: Sequence[str], output: str) -> str:
    """Return the verdict as text or as one JSON object."""
    if output == "json":
        return json.dumps(as_object(verdict, links), ensure_ascii=False, indent=2)
    return "\n".join(as_lines(verdict, RELIEVES, links))
