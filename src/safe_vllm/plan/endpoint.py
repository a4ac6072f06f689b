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
    root_path: str = ""
    api_key: str | None = field(default=None, repr=False)
    uses_tls: bool = False
    served_model_names: tuple[str, ...] = ()
    """The names that the operator gave the model; empty: the server uses the model's own."""


def endpoint(
    words: Sequence[str], environment: Mapping[str, str], config: Mapping[str, object] | None = None
) -> Endpoint | None:
    """Return where the server will answer; ``None`` for a headless one, which answers nowhere."""
    reading = read(words, config)
    if reading.setting(HEADLESS).value is True:
        return None
    host = _text(reading, "--host")
    return Endpoint(
        host=WILDCARDS.get(host) or str(host),
        port=reading.number("--port") or 8000,
        uds=_text(reading, "--uds"),
        root_path=_text(reading, "--root-path") or "",
        api_key=next((key for key in reading.values("--api-key") if key), None) or environment.get("VLLM_API_KEY"),
        uses_tls=reading.setting("--ssl-certfile").value is not None,
        served_model_names=reading.values("--served-model-name"),
    )


def shutdown_timeout_s(words: Sequence[str], config: Mapping[str, object] | None = None) -> float:
    """Return how long vLLM itself lets requests finish once it was asked to stop."""
    return float(read(words, config).number("--shutdown-timeout") or 0)


def _text(reading: Reading, name: str) -> str | None:
    value = reading.setting(name).value
    return None if value is None else str(value)
