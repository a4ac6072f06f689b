"""Whether a server could bind its address now, and who is in the way. Nothing ever listens."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from safe_vllm.errors import reason_of
from safe_vllm.machine.condition import Port
from safe_vllm.machine.rooted import text_of

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
    return Port(host, number, trouble, _holder(number) if trouble else None)


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


def _holder(number: int) -> str | None:
    """Return name and number of a process with a socket there; other users' processes do not show theirs."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(number)}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        if any(link in inodes for link in _links(process)):
            name = (text_of(process / "comm") or "").strip()
            return f"{name or 'process'} ({process.name})"
    return None


def _inodes(number: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (text_of(Path(table)) or "").splitlines():
            fields = line.split()
            found = re.fullmatch(r"[0-9A-F]+:([0-9A-F]{4})", fields[1]) if len(fields) > 9 else None
            if found and int(found[1], 16) == number:
                yield fields[9]


def _links(process: Path) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(descriptor.readlink())
