"""A report as Markdown, to be read and to be pasted into an issue of vLLM's, and as JSON with the same content."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from safe_vllm.record.incident import Death, Incident, LogLine, Root, Variable
from safe_vllm.record.incident_short import CUT, cut, shortest
from safe_vllm.record.incident_tables import attempts, caches, core_files, endings, machine, memory, variables
from safe_vllm.record.incident_words import (
    ACTIONS,
    KINDS,
    LATE,
    NO_PROGRESS,
    NOTICED_LATE,
    STATUSES,
    ending,
    place,
    title,
)
from safe_vllm.record.markdown import block, code, folded, said, section

PASTED_CHARACTERS = 64_000
"""GitHub takes 65,536."""
WHOLE_LINE_CHARACTERS = 2000
GPU_FAULTS = frozenset(
    "illegal-memory-access illegal-instruction misaligned-address launch-failure device-assert gpu-coredump board "
    "library-exec-failed".split()
)
BLOCKING = Variable("CUDA_LAUNCH_BLOCKING", "1")
INTRODUCTION = (
    "safe-vllm starts vLLM, and after a GPU fault starts it again one step safer. A *rung* is one set of settings of "
    "the *ladder* that it goes down; the first, as-asked, is what the operator typed."
)
OBSERVED = "safe-vllm only observed this launch (`--observe-only`): vLLM ran as it was typed, and was started once."
SECRETS = (
    "`***` and what follows it stands for a secret; the same secret has the same four digits. For an API key any dummy "
    "does; a token of the model hub must be one of your own, if the model needs one."
)
KERNEL_LOG = "No Xid is named in the output; the kernel log may have one: `dmesg | grep -i xid`"


def pasteable(incident: Incident) -> Incident:
    """Return the report short enough for an issue."""
    return shortest(incident, lambda short: len(markdown(short)), PASTED_CHARACTERS)


def pasted(text: str) -> str:
    """Return a text that an issue takes, whatever it has come to: what was shortened may still be many rows."""
    if len(text) <= PASTED_CHARACTERS:
        return text
    return text[:PASTED_CHARACTERS].rpartition("\n")[0] + "\n\n… the rest is in the other files of this report\n"


def as_json(incident: Incident) -> str:
    """Return the report for programs."""
    return json.dumps(asdict(incident), indent=1, ensure_ascii=False) + "\n"


def numbered(lines: Sequence[LogLine], root: int | None = None) -> list[str]:
    """Return lines of output with their numbers, the root line marked."""
    return [text for line in lines for text in _numbered(line, root)]


def _numbered(line: LogLine, root: int | None) -> Iterator[str]:
    yield f"{'>' if line.line == root else ' '}{line.line:>6} {_whole(line.text)}"
    if line.alike:
        yield f"     … {line.alike} more lines like it, which differ in figures alone"


def markdown(incident: Incident) -> str:
    """Return the report for people."""
    return "\n".join(_lines(incident)) + "\n"


def _whole(text: str) -> str:
    return cut(text, WHOLE_LINE_CHARACTERS)


def _lines(incident: Incident) -> Iterator[str]:
    yield f"# {title(incident)}"
    yield from ("", OBSERVED if incident.is_observed else INTRODUCTION)
    yield from ("", *_summary(incident))
    yield from section("What safe-vllm tried", list(_sequel(incident)))
    yield from section("What may help", [f"- {said(advice)}" for advice in incident.death.advice])
    yield from section("Reproduce", list(_reproduce(incident)))
    yield from section("Environment", machine(incident))
    yield from section("The root line and the lines around it", list(_around(incident)))
    yield from section("Python stacks", list(_stacks(incident)))
    yield from section("Processes that ended", endings(incident))
    yield from section("End of the output", list(_tail(incident)))
    yield from section("Core files", core_files(incident))
    yield from section("Caches in use", caches(incident))
    yield from section("Memory", memory(incident))
    yield from section("Environment variables", variables(incident))
    yield from ("", *_origin(incident))


def _summary(incident: Incident) -> Iterator[str]:
    death = incident.death
    yield f"- **What died:** {said(death.reason)}"
    yield f"- **When:** {_when(incident)}; {ending(incident)}"
    yield f"- **Root line:** {_root(incident.root)}"
    for note in incident.xid_notes:
        yield f"- **GPU fault:** {said(note)}"
    yield f"- **Verdict:** {_verdict(death)}"
    yield f"- **Then:** {_then(incident)}"
    if death.fault in LATE and not death.is_suspect_known and BLOCKING not in incident.environment:
        yield from ("", NOTICED_LATE)
    if death.fault == "hang":
        yield from ("", NO_PROGRESS)


def _when(incident: Incident) -> str:
    times = incident.times
    if times.ready_for_s is None:
        spent = incident.history[-1].seconds if incident.history else None
        return "before it was ready" + ("" if spent is None else f", {spent} s after its start")
    after = "" if times.ready_after_s is None else f" {times.ready_after_s} s after its start"
    return f"it was ready{after}, and served for {times.ready_for_s} s"


def _root(root: Root | None) -> str:
    if root is None:
        return "none; no line of the output names a cause"
    where = f"{place(root)}, {code(root.text)}"
    return where if root.kind == "root" else f"none names the cause; the first that tells of it is {where}"


def _verdict(death: Death) -> str:
    backend = f"; backend {said(death.backend)}, by its output" if death.backend else ""
    ground = "named by the output" if death.is_suspect_known else "a guess, by when and where it was noticed"
    suspect = "not known" if death.suspect in ("none", "unknown") else f"{death.suspect} ({ground})"
    return f"fault {death.fault}, phase {death.phase}, suspect {suspect}{backend}"


def _then(incident: Incident) -> str:
    sequel, helps = incident.sequel, ACTIONS[incident.death.action]
    decision = "" if sequel.decision == incident.death.reason else f": {said(sequel.decision)}"
    if sequel.rung is not None:
        when = "" if sequel.pause_s is None else f" {sequel.pause_s} s later"
        is_later = sequel.rung == incident.rung and incident.death.action == "retry-safer"
        link = "; but first" if is_later else ", so"
        return f"{helps}{link} attempt {incident.attempt + 1} starts{when}, at rung {said(sequel.rung)}{decision}"
    return f"{helps}, but there is no further attempt{decision}{_end(incident)}"


def _end(incident: Incident) -> str:
    status = incident.sequel.status
    if status is None:
        return ""
    words = "" if incident.is_observed or status not in STATUSES else f" ({STATUSES[status]})"
    return f"; the launch ended with status {status}{words}"


def _sequel(incident: Incident) -> Iterator[str]:
    sequel = incident.sequel
    yield from attempts(incident)
    if sequel.rung is None or sequel.command is None:
        return
    if sequel.command == incident.command:
        yield from ("", f"Attempt {incident.attempt + 1} runs the same command as this one.")
        return
    yield from ("", f"Attempt {incident.attempt + 1} differs from this one in:") if sequel.changes else ()
    yield from ("", *block(sequel.changes, "diff")) if sequel.changes else ()
    yield from ("", "Its command:", "", *block([sequel.command], "sh"))


def _reproduce(incident: Incident) -> Iterator[str]:
    is_first = incident.rung == incident.ladder[0] if incident.ladder else False
    which = f"rung {said(incident.rung)}" + (", what the operator asked for" if is_first else "")
    yield f"This is the command that died ({which}), without safe-vllm:"
    yield from ("", *block([incident.command], "sh"))
    if incident.command.endswith(CUT):
        yield from ("", "It is cut here; command.sh has all of it.")
    if "***" in incident.command:
        yield from ("", SECRETS)
    if hidden := [code(known.name) for known in incident.environment if known.value is None]:
        verb = "was set as well and is" if len(hidden) == 1 else "were set as well and are"
        yield from ("", f"{' and '.join(hidden)} {verb} not shown: use your own.")


def _around(incident: Incident) -> Iterator[str]:
    root, shown = incident.root, {line.line for line in incident.around}
    yield from block(numbered(incident.around, root.line if root else None)) if incident.around else ()
    others = incident.death.evidence[1:]
    if others:
        yield from ("", "What else points there:", "")
        yield from (f"- {_other(line, is_shown=line.line in shown)}" for line in others)
    xid = [text for text in incident.xid if not any(text in line.text for line in incident.around)]
    if xid:
        yield from ("", "Xid:", "", *block(xid))
    elif not incident.xid and incident.death.fault in GPU_FAULTS:
        yield from ("", f"{KERNEL_LOG}.")


def _other(root: Root, *, is_shown: bool) -> str:
    where, comma = place(root), "," if root.process else ""
    told = f"{where}{comma} {KINDS.get(root.kind, said(root.kind))}"
    return told if is_shown else f"{told.replace(' below', '', 1)}: {code(root.text)}"


def _stacks(incident: Incident) -> Iterator[str]:
    if incident.stacks_problem:
        yield f"None: {said(incident.stacks_problem)}."
    for at, stack in enumerate(incident.stacks):
        heading = f"{stack.title} (pid {stack.pid}), innermost frame first"
        yield from ("",) if at or incident.stacks_problem else ()
        yield from folded(heading, stack.text.splitlines())


def _tail(incident: Incident) -> Iterator[str]:
    if incident.tail:
        yield from folded(f"The last {_count(incident.tail)} lines", numbered(incident.tail))
    elif incident.around:
        yield "The output ends with the lines above."


def _count(lines: Sequence[LogLine]) -> int:
    return len(lines) + sum(line.alike for line in lines)


def _origin(incident: Incident) -> Iterator[str]:
    times = incident.times
    yield "---"
    yield (
        f"Attempt {incident.attempt} of launch {said(incident.launch)} at rung {said(incident.rung)}, from "
        f"{times.started} to {times.ended}. Profile {said(incident.profile)}, ladder "
        f"{' → '.join(map(said, incident.ladder))}. Written by safe-vllm {incident.versions.safe_vllm}."
    )
    if incident.directory:
        yield ""
        yield (
            f"In {code(incident.directory)} are also, in full: log-tail.txt (the end of the output), root-lines.txt "
            "(what stood around the root line), stacks.txt (where there are stacks), command.sh (what was run), "
            "incident.json (this report)."
        )
