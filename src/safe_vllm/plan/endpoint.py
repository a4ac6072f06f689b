"""Where the server will answer, as far as its command line and environment tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from safe_vllm.plan.flags import Reading, read
from safe_vllm.plan.grammar import API_SERVERS, DATA_PARALLEL_LOCAL, GRPC, HEADLESS, PORTS_BALANCER

REACHED_AT = {
    None: "127.0.0.1",
    "": "127.0.0.1",
    "0.0.0.0": "127.0.0.1",
    "::": "::1",
    "[::]": "::1",
    "localhost": "127.0.0.1",
}
"""Addresses to bind to, and where a server bound to them can be reached from here.

``localhost`` may also be ``::1``, where vLLM never binds for it: a name is an IPv4 address to vLLM.
https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/entrypoints/launchers/launcher.py (create_server_socket)
"""
PORTS = 65536
CERTIFICATE_REQUIRED = 2
"""``ssl.CERT_REQUIRED``, as ``--ssl-cert-reqs`` takes it."""
STOP_MARGIN_S = 15.0
"""What vLLM has to end, on top of the time that it gives its requests."""


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
    certificate: tuple[str, str | None] | None = None
    """The server's own certificate and key, where a client without one is turned away: it may do as ours."""
    root_path: str = ""
    more_ports: tuple[int, ...] = ()
    """Where more engines of the same server answer, each with an API of its own."""

    def each(self) -> tuple[Endpoint, ...]:
        """Return one endpoint for every port."""
        return tuple(replace(self, port=port, more_ports=()) for port in (self.port, *self.more_ports))

    def path(self, route: str) -> str:
        """Return what to ask for to reach a route.

        FastAPI takes the root path off where a request begins with it, and serves every route without it too; so the
        prefix is only needed where a route itself begins with it, as all of ``/v1/…`` do under ``--root-path /v1``.
        """
        return f"{self.root_path}{route}" if route.startswith(f"{self.root_path}/") and self.root_path else route


def endpoint(
    words: Sequence[str], environment: Mapping[str, str], config: Mapping[str, object] | None = None
) -> Endpoint | None:
    """Return where the server will answer over HTTP; ``None``: nowhere (headless, gRPC), or nobody knows (port 0)."""
    reading = read(words, config)
    if not _has_http(reading):
        return None
    host, uds, port = _text(reading, "--host"), _text(reading, "--uds"), reading.number("--port") or 0
    if not port and not uds:
        return None
    certificate = _text(reading, "--ssl-certfile")
    is_wanted = reading.number("--ssl-cert-reqs") == CERTIFICATE_REQUIRED
    return Endpoint(
        host=REACHED_AT.get(host) or str(host),
        port=port,
        uds=uds,
        api_key=next((key for key in reading.values("--api-key") if key), None) or environment.get("VLLM_API_KEY"),
        uses_tls=bool(certificate),
        certificate=(certificate, _text(reading, "--ssl-keyfile")) if certificate and is_wanted else None,
        root_path=_text(reading, "--root-path") or "",
        more_ports=_more_ports(reading, port),
    )


def shutdown_timeout_s(words: Sequence[str], config: Mapping[str, object] | None = None) -> float:
    """Return how long vLLM itself lets requests finish once it was asked to stop."""
    return float(read(words, config).number("--shutdown-timeout") or 0)


def stop_limit_s(own_s: float, shutdown_s: float | None) -> float:
    """Return how long a stop may take: as we say, or longer than vLLM gives its requests, if it gives them any time."""
    return max(own_s, shutdown_s + STOP_MARGIN_S) if shutdown_s else own_s


def _has_http(reading: Reading) -> bool:
    """Return whether there will be an API server. None at all is what ``--headless`` means.

    https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/entrypoints/cli/serve.py
    """
    is_headless = reading.setting(HEADLESS).value is True or reading.number(API_SERVERS) == 0
    return not is_headless and reading.setting(GRPC).value is not True


def _more_ports(reading: Reading, port: int) -> tuple[int, ...]:
    """Return the ports after the first one, where each local engine has its own.

    https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/entrypoints/launchers/dp_supervisor.py
    """
    engines = reading.number(DATA_PARALLEL_LOCAL) or 1
    return tuple(range(port + 1, min(port + engines, PORTS))) if reading.setting(PORTS_BALANCER).value is True else ()


def _text(reading: Reading, name: str) -> str | None:
    value = reading.setting(name).value
    return None if value is None else str(value)
