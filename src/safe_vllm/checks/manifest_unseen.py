"""What a manifest refers to and was not given: what cannot be looked at is said, not guessed."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.checks.finding import Finding, Level
from safe_vllm.checks.manifest_pods import Container
from safe_vllm.checks.manifest_sources import CLAIM, MAP, SECRET, Reference, keys

OPTIONS = "options of safe-vllm may stand there, such as its time to stop and its address for probes"
KINDS = {MAP: "configmap", SECRET: "secret", CLAIM: "pvc"}


def unseen(container: Container) -> Iterator[Finding]:
    """Tell which objects were not looked at, and what depends on them."""
    told: set[str] = set()
    for reference in container.references:
        if reference.name in container.objects:
            yield from _without_key(reference, container)
        elif reference.matters and reference.name not in told:
            told.add(reference.name)
            yield _unseen(reference)


def _unseen(reference: Reference) -> Finding:
    kind, _, name = reference.name.partition("/")
    what = f"{reference.name} is not in the files given: {_held(reference)} was not looked at"
    do = f"give it too: --manifest FILE, or pipe `kubectl get {KINDS[kind]} {name} -o yaml` into --manifest -"
    if reference.variable is None:
        why = "whether it is there, and can be written, is known to the cluster alone"
        return Finding("manifest-unseen", "note", what, why, do)
    if kind == SECRET:
        why = f"{OPTIONS}; keys are of no interest here"
        return Finding("manifest-unseen", "note", what, why, "nothing, where it has keys alone")
    level: Level = "note" if reference.is_optional else "warning"
    return Finding("manifest-unseen", level, what, OPTIONS, do)


def _held(reference: Reference) -> str:
    if reference.variable is None:
        return f"what is mounted at {reference.mounted}"
    return f"the value of {reference.variable}" if reference.variable else "what it sets"


def _without_key(reference: Reference, container: Container) -> Iterator[Finding]:
    """Look for keys that an object lacks."""
    is_there = reference.key is None or reference.key in keys(container.objects[reference.name])
    if not is_there and not reference.is_optional:
        what = f"{reference.name} has no {reference.key}, from which {reference.variable} is taken"
        why = "the container is not started: CreateContainerConfigError"
        yield Finding("manifest-unseen", "problem", what, why, "correct the key, or add it")


def config_file(container: Container) -> Iterator[Finding]:
    """Tell that a file with flags is not read."""
    if any(word.partition("=")[0] == "--config" for word in container.started.start.words):
        what = "--config names a file in the container, which was not looked at"
        why = "a --shutdown-timeout in it makes a stop take longer"
        yield Finding("manifest-unseen", "note", what, why, "compare it with terminationGracePeriodSeconds yourself")


CHECKS = (unseen, config_file)
