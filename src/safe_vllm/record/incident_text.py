"""A report as Markdown, to be read and to be pasted into an issue of vLLM's, and as JSON with the same content."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from safe_vllm.record.incident import Incident, LogLine, Root
from safe_vllm.record.incident_short import cut, shortest
from safe_vllm.record.incident_tables import attempts, caches, core_files, endings, machine, memory, variables
from safe_vllm.record.markdown import block, code, folded, said, section
from safe_vllm.verdict.evidence import signal_name

PASTED_CHARACTERS = 64_000
"""GitHub takes 65,536."""
WHOLE_LINE_CHARACTERS = 2000
ACTIONS = {
    "retry-safer": "safer settings may help (retry-safer)",
    "retry-same": "it may pass by itself (retry-same)",
    "stop": "no change of kernels or parallelism helps (stop)",
    "none": "nothing needs to be done (none)",
}
GPU_FAULTS = frozenset(
    "illegal-memory-access illegal-instruction misaligned-address launch-failure device-assert gpu-coredump board "
    "library-exec-failed".split()
)
KERNEL_LOG = "No Xid is named in the output; the kernel log may have one: `dmesg | grep -i xid`"


def pasteable(incident: Incident) -> Incident:
    """Return the report short enough for an issue."""
    return shortest(incident, lambda short: len(markdown(short)), PASTED_CHARACTERS)


def as_json(incident: Incident) -> str:
    """Return the report for programs."""
    return json.dumps(asdict(incident), indent=1, ensure_ascii=False) + "\n"


def numbered(lines: Sequence[LogLine], root: int | None = None) -> list[str]:
    """Return lines of output with their numbers, the root line marked."""
    return [f"{'>' if line.line == root else ' '}{line.line:>6} {_whole(line.text)}" for line in lines]


def markdown(incident: Incident) -> str:
    """Return the report for people."""
    return "\n".join(_lines(incident)) + "\n"


def _whole(text: str) -> str:
    return cut(text, WHOLE_LINE_CHARACTERS)


def _lines(incident: Incident) -> Iterator[str]:
    death, version = incident.death, incident.versions.vllm or "(version unknown)"
    yield f"# vLLM {version}: {death.fault} in phase {death.phase}"
    yield from ("", *_summary(incident))
    yield from section("What safe-vllm did next", list(_sequel(incident)))
    yield from section("What may help", [f"- {said(advice)}" for advice in death.advice])
    yield from section("Reproduce", list(_reproduce(incident)))
    yield from section("Environment", machine(incident))
    yield from section("The root line and the lines around it", list(_around(incident)))
    yield from section("Python stacks", list(_stacks(incident)))
    yield from section("Processes that ended", endings(incident))
    yield from section("End of the output", list(_tail(incident)))
    yield from section("Attempts of this launch", attempts(incident))
    yield from section("Core files", core_files(incident))
    yield from section("Caches in use", caches(incident))
    yield from section("Memory", memory(incident))
    yield from section("Environment variables", variables(incident))
    yield from ("", *_origin(incident))


def _summary(incident: Incident) -> Iterator[str]:
    death = incident.death
    backend = f", backend {said(death.backend)}" if death.backend else ""
    yield f"- **What died:** {said(death.reason)}"
    yield f"- **When:** phase {death.phase}; {_when(incident)}; {_ending(death.exit_status)}"
    yield f"- **Root line:** {_root(incident.root)}"
    yield ""
    ground = "named by the output" if death.is_suspect_known else "a guess"
    suspect = "not known" if death.suspect in ("none", "unknown") else f"{death.suspect} ({ground})"
    yield f"Fault {death.fault}, suspect {suspect}{backend}: {ACTIONS[death.action]}."


def _when(incident: Incident) -> str:
    times = incident.times
    if times.ready_for_s is None:
        return "before it was ready"
    after = "" if times.ready_after_s is None else f" after {times.ready_after_s} s"
    return f"it was ready{after}, and served for {times.ready_for_s} s"


def _ending(status: int | None) -> str:
    if status is None:
        return "safe-vllm ended it"
    return f"exit status {status}" + (f" ({signal_name(-status)})" if status < 0 else "")


def _root(root: Root | None) -> str:
    if root is None:
        return "none; no line of the output names a cause"
    process = f" of {said(root.process)}" if root.process else ""
    place = f"line {root.line}{process}, {code(root.text)}"
    return place if root.kind == "root" else f"none names the cause; the first that tells of it is {place}"


def _sequel(incident: Incident) -> Iterator[str]:
    sequel = incident.sequel
    if sequel.decision != incident.death.reason:
        yield from (said(sequel.decision), "")
    if sequel.rung is not None:
        when = "" if sequel.pause_s is None else f", {sequel.pause_s} s later"
        changes = "with these changes:" if sequel.changes else "with the same settings."
        yield (f"Attempt {incident.attempt + 1} starts at rung {said(sequel.rung)}{when}, {changes}")
        yield from ("", *block(sequel.changes, "diff")) if sequel.changes else ()
    if sequel.status is not None:
        yield f"The launch ended with status {sequel.status}."
    if sequel.command is not None:
        yield from ("", *block([sequel.command], "sh"))


def _reproduce(incident: Incident) -> Iterator[str]:
    is_first = incident.rung == incident.ladder[0] if incident.ladder else False
    which = "what the operator asked for" if is_first else f"rung {said(incident.rung)}"
    yield f"This is the command that died ({which}), without safe-vllm:"
    yield from ("", *block([incident.command], "sh"))
    if "***" in incident.command:
        yield from ("", "`***` and what follows it stands for a secret; the same secret has the same four digits.")


def _around(incident: Incident) -> Iterator[str]:
    root = incident.root
    yield from block(numbered(incident.around, root.line if root else None)) if incident.around else ()
    others = incident.death.evidence[1:]
    if others:
        yield from ("", "What else points there:", "")
        yield from block([f" {line.line:>6} {line.kind} {line.process or '-'} {line.text}" for line in others])
    if incident.xid:
        yield from ("", "Xid:", "", *block(incident.xid))
    elif incident.death.fault in GPU_FAULTS:
        yield from ("", f"{KERNEL_LOG}.")


def _stacks(incident: Incident) -> Iterator[str]:
    if incident.stacks_problem:
        yield f"None: {said(incident.stacks_problem)}."
    for stack in incident.stacks:
        title = f"{stack.title} (pid {stack.pid}), innermost frame first"
        yield from ("", *folded(title, stack.text.splitlines()))


def _tail(incident: Incident) -> Iterator[str]:
    if incident.tail:
        yield from folded(f"The last {len(incident.tail)} lines", numbered(incident.tail))
    elif incident.around:
        yield "The output ends with the lines above."


def _origin(incident: Incident) -> Iterator[str]:
    times = incident.times
    yield "---"
    yield (
        f"Attempt {incident.attempt} of launch {said(incident.launch)} at rung {said(incident.rung)}, from "
        f"{times.started} to {times.ended}. Profile {said(incident.profile)}, ladder "
        f"{' → '.join(map(said, incident.ladder))}. Written by safe-vllm {incident.versions.safe_vllm}, which starts "
        "vLLM again one step safer after a GPU fault. A rung is one set of settings; the first is the operator's own."
    )
