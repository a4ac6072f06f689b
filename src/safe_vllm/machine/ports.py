"""Whether a server could bind its address now, and who is in the way. Nothing ever listens."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from safe_vllm.errors import reason_of
from safe_vllm.machine.condition import Port
from safe_vllm.machine.listeners import Listener, at_port

ADDRESSES = {"": "0.0.0.0", "localhost": "127.0.0.1"}
PORTS = range(1, 65536)
IN_USE = os.strerror(errno.EADDRINUSE).lower()
"""The one trouble that may pass."""


def port(host: str, number: int) -> Port | None:
    """Return whether ``host`` (empty: every address) can be bound; ``None``: no way to tell without asking a server."""
    address = ADDRESSES.get(host, host).strip("[]")
    if number not in PORTS or not _is_address(address):
        return None
    trouble = _trouble(address, number)
    return Port(host, number, trouble, _named(at_port(number, listens=False)) if trouble else None)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _trouble(address: str, number: int) -> str | None:
    """Bind as vLLM does: an address that is only waiting for its last packets is free."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, number))
    except OSError as error:
        return reason_of(error)
    return None


def _named(found: Listener | None) -> str | None:
    return None if found is None else f"{found.name or 'process'} ({found.pid})"
