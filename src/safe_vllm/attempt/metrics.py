"""Reading how far the work has come: the few counters of ``/metrics`` that matter, and who is connected."""

from __future__ import annotations

import re
from pathlib import Path

from safe_vllm.attempt.calls import Calls
from safe_vllm.attempt.event import NoCounters, Pulse
from safe_vllm.attempt.readiness import NO_ANSWER, ask
from safe_vllm.plan.endpoint import Endpoint

TIMEOUT_S = 10.0
"""A busy server may be late; then there was no answer, which is no evidence."""

# Only what the engine's own report of a step moves: requests that a client gives up are counted by the API server.
# https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/metrics/loggers.py, the same names up to 0.33
_COUNTED = (
    "num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_queries_total "
    "prompt_tokens_total generation_tokens_total iteration_tokens_total_count"
).split()
_LINE = re.compile(rb"^vllm:(?:%s)(?:\{.*\})? \S+$" % "|".join(_COUNTED).encode(), re.MULTILINE)
_PENDING = re.compile(rb"^vllm:num_requests_(?:running|waiting)(?:\{.*\})? (\S+)$", re.MULTILINE)
_ASLEEP = re.compile(rb'^vllm:engine_sleep_state\{.*sleep_state="awake".*\} 0(?:\.0)?$', re.MULTILINE)


def take_pulse(endpoint: Endpoint, calls: Calls | None = None, *, with_clients: bool) -> Pulse | NoCounters:
    """Return what the server counts, and who is connected to it. Blocks for ten seconds at most per port."""
    pages, clients = [], list[bytes]()
    for place in endpoint.each():
        try:
            answer = ask(place, "/metrics", TIMEOUT_S, calls=calls)
        except NO_ANSWER as error:
            return NoCounters(type(error).__name__, is_late=True)
        if answer.status != 200:
            return NoCounters(f"/metrics says {answer.status}", is_late=answer.status >= 500)
        pages.append(answer.body)
        clients += _clients(place) if with_clients and not place.uds else []
    return read(b"\n".join(pages), frozenset(clients) if with_clients else None)


def read(page: bytes, clients: frozenset[bytes] | None = None) -> Pulse | NoCounters:
    """Return what a page of metrics tells. An engine that was sent to sleep keeps its requests waiting on purpose."""
    counted = b"\n".join(_LINE.findall(page))
    if not counted:
        return NoCounters("/metrics has no counters of vLLM's, as with --disable-log-stats")
    if _ASLEEP.search(page):
        return Pulse(counted, clients=frozenset())
    return Pulse(counted, sum(map(_number, _PENDING.findall(counted))), clients)


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _clients(place: Endpoint) -> list[bytes]:
    """Return the far ends of the established connections to a port of this machine."""
    table = "/proc/net/tcp6" if ":" in place.host else "/proc/net/tcp"
    try:
        content = Path(table).read_bytes()
    except OSError:  # hidden
        return []
    return re.findall(rb"^ *\d+: [0-9A-F]+:%04X ([0-9A-F]+:[0-9A-F]+) 01 " % place.port, content, re.MULTILINE)
