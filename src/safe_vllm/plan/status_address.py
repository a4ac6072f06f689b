"""Where the status server listens, as ``--status-address`` says it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from safe_vllm.errors import Status, Trouble

OPTION = "--status-address"
_FORM = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<four>[^:\[\]]*)):(?P<port>[^:]*)")
_HINT = "write 127.0.0.1:9464 for this machine alone, 0.0.0.0:9464 or [::]:9464 for everybody"
_LOCAL = "127.0.0.1"
_PORTS = range(1, 65536)


@dataclass(frozen=True)
class Address:
    """An IP address of this machine, or of all its interfaces, and a port."""

    host: str
    port: int

    @property
    def is_ipv6(self) -> bool:
        """Whether it is one of IPv6's."""
        return ":" in self.host

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """Understand ``HOST:PORT``. Raises Trouble.

    The host is an IP address, one of IPv6's in brackets, or ``localhost``, which is 127.0.0.1 here. Other names are
    not looked up: a resolver that does not answer would keep the launch waiting.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise _trouble(text, "it is not of the form HOST:PORT, with an IPv6 address in brackets")
    return Address(_host(text, found["six"], found["four"]), _port(text, found["port"]))


def apart_from(listens_at: Address, ports: Iterable[int]) -> None:
    """Raise Trouble where vLLM itself is to have the port: it would find it taken, by us."""
    if listens_at.port in ports:
        hint = f"take another port for {OPTION}"
        raise Trouble(f"{OPTION} {listens_at}: vLLM is to answer at this port", hint=hint, status=Status.USAGE)


def _host(text: str, six: str | None, four: str | None) -> str:
    if six is not None:
        if not _is_ip(6, six):
            raise _trouble(text, f"{six!r} is no IPv6 address")
        return six
    if four == "localhost":
        return _LOCAL
    if not four:
        raise _trouble(text, "it does not say at which address")
    if not _is_ip(4, four):
        raise _trouble(text, f"{four!r} is no IP address, and names are not looked up")
    return four


def _port(text: str, port: str) -> int:
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_PORTS.stop))
    if not is_number or int(port) not in _PORTS:
        raise _trouble(text, f"{port!r} is no port: a number from {_PORTS.start} to {_PORTS.stop - 1}")
    return int(port)


def _is_ip(version: int, text: str) -> bool:
    import ipaddress  # only where there is an address to look at

    try:
        return ipaddress.ip_address(text).version == version and "%" not in text
    except ValueError:
        return False


def _trouble(text: str, what: str) -> Trouble:
    return Trouble(f"{OPTION} {text!r}: {what}", hint=_HINT, status=Status.USAGE)
