"""What must hold before vLLM is started."""

from __future__ import annotations

import socket

from safe_vllm.plan.endpoint import Endpoint

CONNECT_TIMEOUT_S = 1.0


def is_taken(endpoint: Endpoint) -> bool:
    """Return whether somebody already answers there: its ``/health`` would be mistaken for ours."""
    try:
        if endpoint.uds:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(CONNECT_TIMEOUT_S)
                client.connect(endpoint.uds)
        else:
            socket.create_connection((endpoint.host, endpoint.port), CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError):  # also a name that no resolver takes
        return False
    return True
