"""Where it will run: the port, the kernel, process 1, Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.plan.dialect_table import numbers
from safe_vllm.plan.intent import Limits

ENDINGS_SINCE = (6, 15)
"""From here on a pidfd tells how a process ended that is not our child (PIDFD_INFO_EXIT):

https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/linux/pidfd.h?h=v6.15
"""
LARGEST_PORT = 65535
LONGEST = 100
"""Characters that are shown of what was written."""
PIDFDS_SINCE = (5, 3)
SHELLS = ("sh", "bash", "dash", "ash", "zsh")


def port(case: Case) -> Iterator[Finding]:
    """Tell whether the server's address is free."""
    asked = case.reading.setting("--port")
    number = case.reading.number("--port")
    if asked.value is not None and (number is None or number > LARGEST_PORT):
        what, why = f"--port {str(asked.value)[:LONGEST]!r} is no port", "vLLM ends with an error after all its imports"
        yield Finding("port", "problem", what, why, f"name a port from 0 to {LARGEST_PORT}")
        return
    found = case.state.port
    if found is None:
        return
    where = f"{found.host or '*'}:{found.number}"
    if found.trouble is None:
        yield Finding("port", "ok", f"{where} is free")
        return
    held = f", held by {found.holder}" if found.holder else ""
    what = f"{where} cannot be bound: {found.trouble}{held}"
    why = "vLLM ends with the same message after all its imports"
    do = "end what holds it, or choose another --port" if "use" in found.trouble else "correct --host or --port"
    yield Finding("port", "problem", what, why, do)


def kernel(case: Case) -> Iterator[Finding]:
    """Tell what this kernel lets us know about ended processes."""
    release = case.state.kernel
    at = numbers(release or "")
    if not at:
        return
    if at < PIDFDS_SINCE:
        why = "there is no pidfd, so a process cannot be watched or signalled without mistaking another for it"
        yield Finding("kernel", "problem", f"Linux {release}", why, "update the kernel to 5.3 or later")
    elif at[:2] < ENDINGS_SINCE:
        why = "how an engine process ended can be missed where its parent was faster; the log then decides alone"
        yield Finding("kernel", "note", f"Linux {release}", why, "nothing; Linux 6.15 and later tell it always")
    else:
        yield Finding("kernel", "ok", f"Linux {release}")


def init(case: Case) -> Iterator[Finding]:
    """Tell who is process 1, which is the one that a container's runtime signals."""
    condition = case.state
    if condition.is_init:
        yield Finding("init", "ok", "safe-vllm is process 1 here: it reaps zombies and forwards signals")
    elif condition.container and condition.init in SHELLS:
        what = f"process 1 of this container is {condition.init}"
        why = "a shell does not pass SIGTERM on: a server behind it is killed when the time to stop is over"
        do = 'start safe-vllm as process 1: ENTRYPOINT ["safe-vllm", "serve"], or exec safe-vllm in the script'
        yield Finding("init", "note", what, why, do)
    elif condition.init:
        where = f" of this {condition.container} container" if condition.container else ""
        yield Finding("init", "ok", f"process 1{where} is {condition.init}")


def kubernetes(case: Case) -> Iterator[Finding]:
    """Say what the probes of a pod must allow for, which cannot be read from inside."""
    if not case.state.in_kubernetes:
        return
    rungs = len(case.plan.ladder.rungs) if case.plan else None
    what = "this is a pod: its probes cannot be read from inside"
    why = "a start-up probe that fails sooner kills the pod in the middle of the ladder"
    times = (
        f"the time of one start x {rungs} (the rungs of this ladder)" if rungs else "the time of one start x the rungs"
    )
    do = (
        "startupProbe and livenessProbe on /livez of --status-address, or failureThreshold x periodSeconds above "
        f"{times}, plus back-off; terminationGracePeriodSeconds above {Limits().stop_timeout_s:.0f}, the default of "
        "--stop-timeout; `safe-vllm doctor --manifest FILE` compares them"
    )
    yield Finding("kubernetes", "note", what, why, do)
