"""The health check of a compose file: what it asks, and whether safe-vllm answers there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safe_vllm.checks.compose_services import Service, settled
from safe_vllm.checks.finding import Finding
from safe_vllm.checks.manifest_pods import ENDPOINTS, PORT, ports_asked
from safe_vllm.checks.manifest_sources import part
from safe_vllm.checks.options import is_refused_address

OFF = "NONE"
COMMANDS = ("CMD", "CMD-SHELL")
"""What a list begins with that has a command."""
THEIRS = re.compile(r"/health(?![-\w])")
ASK = "ask for /readyz of --status-address, or /livez where the unhealthy are ended"
ACTED_ON = "Swarm and autoheal end what is unhealthy"


def health(service: Service) -> Iterator[Finding]:
    """Look at what the health check asks. It may hold a key, so it is not shown."""
    test = part(service.spec, "healthcheck", "test")
    asked = settled(test or "")
    first = settled(test[0]) if isinstance(test, list) and test else None
    if not test or OFF in (test, first) or part(service.spec, "healthcheck", "disable") is True:
        return
    if first is not None and first not in COMMANDS:
        what, do = "the list of the health check begins with neither CMD nor CMD-SHELL", "test: [CMD, and its words]"
        yield Finding("compose-health", "problem", what, "docker refuses it", do)
    elif ENDPOINTS.search(asked):
        yield from _of_ours(service, asked)
    elif THEIRS.search(asked):
        why = f"it is red while the model loads and while it steps down; {ACTED_ON}"
        yield Finding("compose-health", "note", "the health check asks for vLLM's /health", why, ASK)
    else:
        why = f"what it says about safe-vllm cannot be told; compose waits for it, {ACTED_ON}"
        yield Finding("compose-health", "note", "the health check asks for neither /readyz nor /livez", why, ASK)


def _of_ours(service: Service, asked: str) -> Iterator[Finding]:
    """Compare where it asks with where the status server is."""
    address, ports = service.started.option("--status-address"), ports_asked(asked)
    if address is None and service.spec.get("env_file"):
        return  # it may stand there, which is told
    if is_refused_address(address or ""):
        return
    told = PORT.match(address or "")
    if address is None:
        do = "SAFE_VLLM_STATUS_ADDRESS: 0.0.0.0:9464"
        what = "the health check asks for /livez or /readyz, and --status-address is not given"
        yield Finding("compose-health", "warning", what, "nothing answers there, unless the image says so", do)
    elif told is None or not ports:
        what = f"the health check asks for /livez or /readyz, and --status-address is {address[:40]}"
        why = "whether both name the same port cannot be told"
        yield Finding("compose-health", "note", what, why, "compare the ports yourself")
    elif lost := ports - {int(told[1])}:
        what = f"the health check asks at port {min(lost)}, and --status-address is {address[:40]}"
        yield Finding("compose-health", "warning", what, "nothing like it answers there", "name the same port in both")
    else:
        yield Finding("compose-health", "ok", "the health check asks for what safe-vllm answers")
