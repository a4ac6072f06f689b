"""What a launch knows of a failed attempt becomes a report, and a report becomes text that can be pasted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from incident_cases import ENVIRONMENT, autotune_fault, hang_at_start, segfault_in_service, tiny
from safe_vllm.attempt.event import Stack
from safe_vllm.machine.levels import GpuMemory, Level
from safe_vllm.plan.command import command
from safe_vllm.record.incident import Core, Incident, LogLine, StackOf, Variable
from safe_vllm.record.incident_making import Following, incident_of
from safe_vllm.record.incident_short import LINE_CHARACTERS, shortened
from safe_vllm.record.incident_text import PASTED_CHARACTERS, as_json, markdown, numbered, pasteable
from safe_vllm.record.incidents import contents
from safe_vllm.verdict.evidence import Evidence, GpuEvent, Kind, ProcessEnd

GIB = 1 << 30
KINDS: tuple[Kind, ...] = ("marker", "root", "advice", "echo", "benign", "marker")


def large(**changes: object) -> Incident:
    return replace(incident_of(autotune_fault()), **changes)  # type: ignore[arg-type]


def test_the_command_is_that_of_this_attempt_without_ours_and_the_hubs_variables() -> None:
    found = incident_of(hang_at_start())
    assert found.command.startswith("FLASHINFER_DISABLE_MOE_AUTOTUNE=1 LD_LIBRARY_PATH=/usr/local/cuda/lib64 ")
    assert found.command.endswith(
        "vllm serve org/moe -tp 2 --moe-backend flashinfer_trtllm --no-enable-flashinfer-autotune"
    )
    assert not [name for name in ("SAFE_VLLM_", "HF_", "PATH=/usr/bin", "HOME") if name in found.command]


def test_a_variable_that_a_rung_sets_is_in_the_command_whatever_its_name() -> None:
    base = tiny()
    rung = replace(base.rung, environment=(("ODD", "a b"),))
    found = incident_of(replace(base, rung=rung, command=command(rung, ("vllm",), {"OTHER": "x"})))
    assert found.command == "ODD='a b' vllm serve m"


def test_what_comes_next_is_told_with_its_command_and_changes() -> None:
    sequel = incident_of(autotune_fault()).sequel
    assert (sequel.rung, sequel.pause_s, sequel.status) == ("no-autotune", 2.3, None)
    assert "+ --no-enable-flashinfer-autotune" in sequel.changes
    assert sequel.command is not None and sequel.command.endswith("--no-enable-flashinfer-autotune")


def test_the_end_of_a_launch_is_told_with_its_status() -> None:
    sequel = incident_of(hang_at_start()).sequel
    assert (sequel.rung, sequel.command, sequel.changes, sequel.status) == (None, None, (), 70)
    assert "the launch ended with status 70 (attempts or rungs are spent)" in markdown(incident_of(hang_at_start()))


@pytest.mark.parametrize(
    ("was_ready", "uptime_s", "ended_at_s", "after_s", "for_s"),
    [(True, 4260.5, 4305.9, 45.4, 4260.5), (True, 3.0, 0.0, None, 3.0), (False, 41.0, 41.0, None, None)],
)
def test_how_long_it_took_to_be_ready_and_was_so(
    was_ready: bool, uptime_s: float, ended_at_s: float, after_s: float | None, for_s: float | None
) -> None:
    found = autotune_fault()
    seen = replace(found.seen, was_ready=was_ready, uptime_s=uptime_s, ended_at_s=ended_at_s)
    times = incident_of(replace(found, seen=seen)).times
    assert (times.ready_after_s, times.ready_for_s) == (after_s, for_s)
    assert times.started == "2026-09-21T14:13:20Z"


def test_only_variables_that_matter_are_told_and_of_the_hubs_the_names_alone() -> None:
    found = incident_of(autotune_fault()).environment
    assert Variable("HF_HOME", None) in found
    assert Variable("NCCL_DEBUG", "WARN") in found
    assert {"PATH", "HOME"}.isdisjoint(known.name for known in found)
    assert len(found) == len(ENVIRONMENT) - 2


def test_memory_before_and_after_is_told_also_of_a_gpu_that_was_lost() -> None:
    before = [GpuMemory("a", 0, 90, 100), GpuMemory("b", 1, 80, 100)]
    levels = [[Level("memory", "memory", 9 * GIB, 10 * GIB)], [Level("memory", "memory", 4 * GIB, 10 * GIB)]]
    found = incident_of(replace(autotune_fault(), gpus_before=before, gpus_after=before[1:], levels=levels))
    assert [(gpu.gpu, gpu.before_mib, gpu.after_mib) for gpu in found.gpu_memory] == [(0, 90, None), (1, 80, 80)]
    assert [(level.before_bytes, level.after_bytes) for level in found.host] == [(9 * GIB, 4 * GIB)]
    assert "| GPU 0 | 100 MiB | 90 MiB | not known |" in markdown(found)
    assert "| memory | 10.0 GiB | 9.0 GiB | 4.0 GiB |" in markdown(found)


@pytest.mark.parametrize(
    ("named", "suspects"),
    [
        ("/data/vllm/torch_compile_cache/ab/rank_0_0", ["/data/vllm/torch_compile_cache"]),
        ("/data/vllm/torch_compile_cache", ["/data/vllm/torch_compile_cache"]),
        ("/data/vllm/torch_compile_cache2/x", ["/data/vllm/torch_compile_cache2/x"]),
        (None, []),
    ],
)
def test_the_cache_that_the_verdict_names_is_suspect(named: str | None, suspects: list[str]) -> None:
    found = autotune_fault()
    found = replace(found, verdict=replace(found.verdict, cache=named), suspect_caches=())
    assert [cache.path for cache in incident_of(found).caches if cache.is_suspect] == suspects


@pytest.mark.parametrize("which", ["FlashInfer's tuned tactics", "/data/vllm/flashinfer_autotune_cache"])
def test_a_cache_may_be_suspect_for_other_reasons(which: str) -> None:
    [suspect] = [
        each for each in incident_of(replace(autotune_fault(), suspect_caches=(which,))).caches if each.is_suspect
    ]
    assert suspect.what == "FlashInfer's tuned tactics"


def test_lines_with_an_xid_are_found_wherever_they_stand_and_once() -> None:
    found = incident_of(segfault_in_service())
    assert len(found.xid) == 1 and "Xid (PCI:0000:3b:00): 31" in found.xid[0]
    assert "dmesg" not in markdown(found)
    assert "dmesg | grep -i xid" in markdown(incident_of(autotune_fault()))


def test_what_nvml_reported_is_listed_beside_the_lines_and_once() -> None:
    found = autotune_fault()
    events = (GpuEvent(43, 1, "PCI:0000:3b:00", 7.0), GpuEvent(43, 1, "PCI:0000:3b:00", 8.0), GpuEvent(None, 0))
    report = incident_of(replace(found, seen=replace(found.seen, gpu_events=events)))
    assert report.xid == ("NVML: Xid (PCI:0000:3b:00): 43 on GPU 1", "NVML: GPU is lost on GPU 0")
    assert "NVML: Xid (PCI:0000:3b:00): 43 on GPU 1" in markdown(report)


def test_stacks_are_taken_as_py_spy_gave_them() -> None:
    taken = [Stack(7, "VLLM::Worker", "Thread 7\n  f (a.py:1)")]
    given = [(stack.pid, stack.title, stack.text) for stack in taken]
    assert incident_of(replace(hang_at_start(), stacks=given)).stacks == (
        StackOf(7, "VLLM::Worker", "Thread 7\n  f (a.py:1)"),
    )
    without = incident_of(replace(hang_at_start(), stacks=(), stacks_problem="py-spy is not installed beside vLLM"))
    assert "None: py-spy is not installed beside vLLM." in markdown(without)


def test_where_nothing_is_known_there_is_still_a_report() -> None:
    found = incident_of(replace(tiny(), following=Following("why")))
    text = markdown(found)
    assert "(version unknown)" in markdown(replace(found, versions=replace(found.versions, vllm=None)))
    assert json.loads(as_json(found))["around"] == []
    assert "## Memory" not in text and "## Core files" not in text and "## End of the output" not in text


def test_an_end_without_a_line_that_names_a_cause_says_so() -> None:
    assert "**Root line:** none; no line of the output names a cause" in markdown(incident_of(hang_at_start()))
    assert "**Root line:** none names the cause; the first that tells" in markdown(incident_of(segfault_in_service()))


def test_of_the_evidence_the_first_line_and_what_came_of_it_are_told() -> None:
    found = autotune_fault()
    lines = tuple(Evidence(at, f"line {at}", kind, "x") for at, kind in enumerate(KINDS, 1))
    told = incident_of(replace(found, verdict=replace(found.verdict, evidence=lines))).death.evidence
    assert [line.kind for line in told] == ["marker", "root", "echo"]


def test_the_root_line_is_marked_among_its_neighbours() -> None:
    found = incident_of(autotune_fault())
    assert found.root is not None
    marked = [line for line in numbered(found.around, found.root.line) if line.startswith(">")]
    assert len(marked) == 1 and "illegal memory access" in marked[0]


def lettered(number: int) -> str:
    """Return a number in letters, so that lines with it are not alike."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def huge() -> Incident:
    """Return a report with more of everything than can be pasted."""
    lines = tuple(LogLine(at, f"{lettered(at)} " + "x" * 3000) for at in range(1, 400))
    stacks = tuple(StackOf(at, f"VLLM::Worker_{at}", f"frame {at}\n" * 3000) for at in range(600))
    found = large(around=lines[:300], tail=lines, stacks=stacks, cores=(Core("/c" * 100, 1, "gpu"),) * 64)
    seen = replace(segfault_in_service().seen, ends=(ProcessEnd("VLLM::" + "W" * 100, 1, -11),) * 500)
    ends = incident_of(replace(segfault_in_service(), seen=seen)).ends
    return replace(found, ends=ends, death=replace(found.death, evidence=found.death.evidence * 40))


def test_a_report_is_never_too_long_to_be_pasted() -> None:
    assert len(markdown(huge())) > 1_000_000
    short = pasteable(huge())
    assert 20_000 < len(markdown(short)) <= PASTED_CHARACTERS
    assert short.stacks and short.tail and short.around
    assert json.loads(as_json(short))["tail"]


def test_a_command_that_is_very_long_is_cut_in_what_is_pasted_and_whole_in_a_file_of_its_own() -> None:
    command = "vllm serve m --hf-overrides " + "x" * 60_000
    found = replace(huge(), command=command)
    found = replace(
        found, sequel=replace(found.sequel, command=f"{command} --enforce-eager", changes=(f"+ {command}",))
    )
    files = contents(found)
    assert len(files["incident.md"]) <= PASTED_CHARACTERS
    assert files["command.sh"] == f"{command}\n"
    assert "It is cut here; command.sh has all of it." in files["incident.md"]
    assert pasteable(found).around and pasteable(found).tail
    assert "It is cut here" not in markdown(pasteable(huge()))


def test_what_is_shortened_stays_around_the_root_line_and_at_the_end() -> None:
    lines = tuple(LogLine(at, lettered(at) + "x" * 400) for at in range(1, 300))
    found = large(around=lines[:200], tail=lines)
    found = replace(found, death=replace(found.death, evidence=(replace(found.death.evidence[0], line=100),)))
    short = shortened(found)
    assert [line.line for line in short.around] == list(range(short.around[0].line, short.around[-1].line + 1))
    assert short.around[0].line < 100 < short.around[-1].line - 10
    assert short.tail[-1].line == 299
    assert short.tail[0].line > short.around[-1].line


def test_the_end_of_the_output_is_not_repeated_where_the_root_line_is_near_it() -> None:
    found = shortened(incident_of(autotune_fault()))
    assert found.tail == ()
    assert "The output ends with the lines above." in markdown(found)


def test_a_long_line_is_cut_in_what_is_pasted_and_whole_up_to_2000_characters_in_the_files() -> None:
    line = LogLine(1, "x" * 5000)
    assert len(shortened(large(around=(), tail=(line,))).tail[0].text) == LINE_CHARACTERS
    assert len(numbered([line])[0]) == 8 + 2000


HOSTILE = "``` </details> <script>x</script> | `a` @someone #1 \\ $x$ _y_ \u202e"


def test_nothing_that_others_wrote_does_anything_in_the_markdown() -> None:
    lines = (LogLine(1, HOSTILE), LogLine(2, "````"))
    found = large(around=lines, tail=(), stacks=(StackOf(1, HOSTILE, f"{HOSTILE}\n```\n<script>"),))
    found = replace(found, rung=HOSTILE, launch=HOSTILE, death=replace(found.death, reason=HOSTILE, advice=(HOSTILE,)))
    outside, fence = [], None
    for line in markdown(found).splitlines():
        if fence is None and line.startswith("```"):
            fence = line[: len(line) - len(line.lstrip("`"))]
        elif fence is not None and line == fence:
            fence = None
        elif fence is None:
            outside.append(line)
    assert fence is None
    assert "\n".join(outside).count("</details>") - 1 == "\n".join(outside).count("```` ``` </details>")
    assert [line for line in outside if "<script>" in line and "````" not in line] == []
