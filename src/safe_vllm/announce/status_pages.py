"""What the status server answers: one page for each path, made of how the launch stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from safe_vllm.announce import metrics
from safe_vllm.announce.picture import Picture, facts
from safe_vllm.announce.systemd import status

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

OK, UNAVAILABLE, NOT_IMPLEMENTED = 200, 503, 501


@dataclass(frozen=True)
class Page:
    """An answer."""

    status: int
    body: bytes
    type: str = TEXT


Pages = Mapping[str, Callable[[], Page]]
"""How to make the page of each path, now."""


def livez(*, is_turning: bool, age_s: float) -> Page:
    """Say whether our loop turns: if not, nobody looks after vLLM any more."""
    if is_turning:
        return _text(OK, "the loop turns")
    return _text(UNAVAILABLE, f"the loop of safe-vllm stands still for {age_s:.0f} s; start it again")


def readyz(picture: Picture) -> Page:
    """Say whether requests may be sent, or why not."""
    if not picture.launch:
        return _text(UNAVAILABLE, "the plan is being made")
    return _text(OK if picture.state == "ready" else UNAVAILABLE, status(picture))


def status_json(picture: Picture) -> Page:
    """Tell all that is known of the launch."""
    return Page(OK, _bytes(json.dumps(facts(picture), ensure_ascii=False) + "\n"), JSON)


def metrics_text(picture: Picture, age_s: float, relayed: Mapping[str, int] | None) -> Page:
    """Tell what can be counted, as Prometheus reads it."""
    try:
        kind, body = metrics.exposition(metrics.measures(picture, age_s, relayed))
    except ImportError:
        missing = "there are no metrics without prometheus-client; install it next to safe-vllm"
        return _text(NOT_IMPLEMENTED, f"{missing}: pip install prometheus-client")
    return Page(OK, body, kind)


def _text(code: int, line: str) -> Page:
    return Page(code, _bytes(line.replace("\n", " ") + "\n"))


def _bytes(text: str) -> bytes:
    """Return it as UTF-8; what is not, a path perhaps, stands there in a form that JSON knows too."""
    return text.encode(errors="backslashreplace")
