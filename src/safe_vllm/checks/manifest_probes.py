"""The probes of a pod: whether one of them ends a launch in the middle of its ladder."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.checks.finding import Finding
from safe_vllm.checks.manifest_pods import PORT, Container, Probe
from safe_vllm.checks.options import is_refused_address
from safe_vllm.plan.intent import MAX_PAUSE_S, Limits
from safe_vllm.plan.ladder import RUNG_NAMES

LIVEZ, READYZ = "/livez", "/readyz"
ONE_START_S = 600.0
"""Until a large model is loaded and its kernels are tuned; vLLM's own limit for its engines is the same."""
FIRST_WORD_S = 30.0
"""A slow machine's time until /livez answers: the interpreter, and a look at the machine and the installation."""
BUSY_S = 30.0
"""A machine that is loading weights may let a process wait for seconds."""
SLOWEST_ANSWER_S = 3.0
"""/livez waits up to two seconds for the loop after a standstill."""
LOCAL = ("127.", "localhost", "[::1]")
ON_STATUS = "httpGet with path /livez and the port of --status-address"


def ladder_s(container: Container) -> float:
    """Return how long a launch may take until its last rung is ready, in seconds."""
    limits = Limits()
    rungs = int(min(len(RUNG_NAMES), container.started.number("--max-attempts") or limits.max_attempts))
    first = container.started.number("--backoff")
    pause = limits.backoff_s if first is None else first
    pauses = sum(min(MAX_PAUSE_S, pause * 2.0**step) for step in range(rungs - 1))
    return rungs * (container.started.number("--start-timeout") or ONE_START_S) + pauses


def status(container: Container) -> Iterator[Finding]:
    """Look whether the status server is on, and where the probes look for it."""
    address = container.started.option("--status-address")
    probes = [found for name in NAMES if (found := container.probe(name)) and found.path in (LIVEZ, READYZ)]
    port = PORT.match(address or "")
    if secure := next((probe for probe in probes if probe.scheme == "HTTPS"), None):
        what, why = f"{secure.name} asks for {secure.asks} with scheme HTTPS", "the status server speaks plain HTTP"
        yield Finding("manifest-status", "problem", what, why, "leave the scheme out")
        return
    if is_refused_address(address or ""):
        return
    if address is None and not (container.is_all_known and probes):
        return
    if address is None:
        what, why = f"{probes[0].asks} is asked, and --status-address is not given", "nothing answers there"
        yield Finding(
            "manifest-status", "problem", what, why, "SAFE_VLLM_STATUS_ADDRESS=0.0.0.0:9464, or the image sets it"
        )
        return
    if address.startswith(LOCAL) and any(not probe.is_command and probe.host is None for probe in probes):
        why = "probes come from the node to the address of the pod, where nothing listens"
        yield Finding(
            "manifest-status",
            "problem",
            f"--status-address is {address}",
            why,
            "0.0.0.0 or [::] instead, with the port",
        )
        return
    lost = [probe for probe in probes if port and probe.port not in (None, int(port[1]))]
    if lost:
        what = f"{lost[0].name} asks for {lost[0].asks} at port {lost[0].port}, and --status-address is {address}"
        yield Finding("manifest-status", "problem", what, "nothing like it answers there", "name the same port in both")
        return
    yield Finding("manifest-status", "ok", f"the status server is at {address}")


def startup(container: Container) -> Iterator[Finding]:
    """Compare how long a start may take with how long the ladder may need."""
    probe, needed = container.probe("startupProbe"), ladder_s(container)
    if probe is None:
        return
    given = probe.delay_s + probe.patience_s
    if probe.path == LIVEZ:
        yield from _first_word(probe, given)
    elif given < needed:
        what = f"startupProbe asks for {probe.asks} and gives up after {given:g} s; the ladder may need {needed:g} s"
        yield Finding("manifest-startup", "warning", what, KILLS, ON_STATUS)
    else:
        what = f"startupProbe waits for {given:g} s, longer than the {needed:g} s that the ladder may need"
        yield Finding("manifest-startup", "ok", what)


def _first_word(probe: Probe, given: float) -> Iterator[Finding]:
    if given < FIRST_WORD_S:
        what = f"{probe.name} gives up after {given:g} s"
        why = "on a busy machine it takes longer until safe-vllm answers for the first time"
        yield Finding("manifest-startup", "warning", what, why, "failureThreshold x periodSeconds of 60 or more")
    else:
        yield Finding("manifest-startup", "ok", "startupProbe asks for /livez, which stays green while stepping down")


def liveness(container: Container) -> Iterator[Finding]:
    """Look for a liveness probe that takes stepping down for death."""
    probe, needed = container.probe("livenessProbe"), ladder_s(container)
    if probe is None:
        why = "a safe-vllm that stands still is not noticed, and with it vLLM's next death"
        yield Finding("manifest-liveness", "note", "there is no livenessProbe", why, ON_STATUS)
        return
    if probe.path != LIVEZ and probe.patience_s < needed:
        what = f"livenessProbe asks for {probe.asks} and gives up after {probe.patience_s:g} s; "
        what += f"the ladder may need {needed:g} s"
        yield Finding("manifest-liveness", "warning", what, KILLS, ON_STATUS)
    elif probe.path != LIVEZ:
        what = f"livenessProbe asks for {probe.asks}, and waits for {probe.patience_s:g} s"
        yield Finding("manifest-liveness", "note", what, "a server that hangs stays for as long", ON_STATUS)
    elif probe.timeout_s < SLOWEST_ANSWER_S or probe.patience_s < BUSY_S:
        what = f"livenessProbe waits {probe.timeout_s:g} s for an answer and acts after {probe.patience_s:g} s"
        why = "a busy machine lets the loop wait for seconds, and a server that works would be ended"
        yield Finding(
            "manifest-liveness", "warning", what, why, "timeoutSeconds: 5, periodSeconds: 10, failureThreshold: 18"
        )
    elif container.probe("startupProbe") is None and probe.delay_s + probe.patience_s < FIRST_WORD_S:
        yield from _first_word(probe, probe.delay_s + probe.patience_s)
    else:
        yield Finding("manifest-liveness", "ok", "livenessProbe asks for /livez, which stays green while stepping down")


def readiness(container: Container) -> Iterator[Finding]:
    """Look at when a pod gets requests."""
    probe = container.probe("readinessProbe")
    do = "httpGet with path /readyz and the port of --status-address"
    if not container.started.has_api:
        if probe is not None:
            why = "a member without an API of its own never says that it is ready"
            yield Finding("manifest-readiness", "warning", "there is a readinessProbe beside --headless", why, NONE)
    elif probe is None:
        why = "requests are sent to it while the model loads, and while it steps down"
        yield Finding("manifest-readiness", "warning", "there is no readinessProbe", why, do)
    elif probe.path == LIVEZ:
        why = "/livez is green while the model loads: requests are sent to a pod that cannot answer them"
        yield Finding("manifest-readiness", "warning", "readinessProbe asks for /livez", why, do)
    elif probe.path != READYZ:
        why = "it may be green before a real completion came back, and while the server is being stopped"
        yield Finding("manifest-readiness", "note", f"readinessProbe asks for {probe.asks}", why, do)
    else:
        yield Finding("manifest-readiness", "ok", "readinessProbe asks for /readyz: green after a real completion")


NONE = "leave it out: livenessProbe is enough"
NAMES = ("startupProbe", "readinessProbe", "livenessProbe")
KILLS = "stepping down takes as long as loading again, and a container that is killed in between throws it away"
CHECKS = (status, startup, liveness, readiness)
