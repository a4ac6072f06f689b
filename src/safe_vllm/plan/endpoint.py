"""Where the server will answer, as far as its command line and environment tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from safe_vllm.plan.flags import Reading, read
from safe_vllm.plan.grammar import HEADLESS

WILDCARDS = {None: "127.0.0.1", "": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}
"""Addresses to bind to, and where a server bound to them can be reached from here."""


@dataclass(frozen=True)
class Endpoint:
    """Everything a probe needs to reach the server."""

    host: str
    """Where to connect, which is not where it binds if that is every address."""
    port: int
    uds: str | None = None
    """A Unix domain socket; then host and port mean nothing."""
    api_key: str | None = field(default=None, repr=False)
    uses_tls: bool = False


def endpoint(
    words: Sequence[str], environment: Mapping[str, str], config: Mapping[str, object] | None = None
) -> Endpoint | None:
    """Return where the server will answer; ``None`` where it answers nowhere (headless) or nobody knows (port 0)."""
    reading = read(words, config)
    if reading.setting(HEADLESS).value is True:
        return None
    host, uds, port = _text(reading, "--host"), _text(reading, "--uds"), reading.number("--port") or 0
    if not port and not uds:
        return None
    return Endpoint(
        host=WILDCARDS.get(host) or str(host),
        port=port,
        uds=uds,
        api_key=next((key for key in reading.values("--api-key") if key), None) or environment.get("VLLM_API_KEY"),
        uses_tls=reading.setting("--ssl-certfile").value is not None,
    )


def shutdown_timeout_s(words: Sequence[str], config: Mapping[str, object] | None = None) -> float:
    """Return how long vLLM itself lets requests finish once it was asked to stop."""
    return float(read(words, config).number("--shutdown-timeout") or 0)


def _text(reading: Reading, name: str) -> str | None:
    value = reading.setting(name).value
    return None if value is None else str(value)
