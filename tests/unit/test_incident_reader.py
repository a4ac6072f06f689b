"""A report is understood by an engineer who knows vLLM and nothing of safe-vllm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from incident_cases import GB200, autotune_fault, hang_at_start, segfault_in_service
from safe_vllm import known
from safe_vllm.launch.autopsy import advised_anew
from safe_vllm.machine.cores import CoreFile, Cores
from safe_vllm.plan.command import Command
from safe_vllm.plan.grammar import FLAGS
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import LeftOut, Rung
from safe_vllm.plan.running import Running
from safe_vllm.plan.shape_table import MORE
from safe_vllm.preparing import prepare
from safe_vllm.record import incidents
from safe_vllm.record.incident import Earlier, Incident, LogLine
from safe_vllm.record.incident_collapse import collapsed, without_clients
from safe_vllm.record.incident_making import Following, Material, incident_of
from safe_vllm.record.incident_short import shortened
from safe_vllm.record.incident_text import markdown
from safe_vllm.verdict.advice import MOST_SHOWN
from safe_vllm.verdict.evidence import Advised, GpuEvent, ProcessEnd

NO_TUNING = "--no-enable-flashinfer-autotune avoids the tuner, which helped others"
CORE, GPU_CORE, STACKS = (Advised(made, makes=made) for made in ("process", "gpu", "stacks"))


def text_of(found: Material) -> str:
    return markdown(shortened(incident_of(found)))


def summary(found: Material) -> list[str]:
    return [line for line in text_of(found).splitlines() if line.startswith("- **")]


def advice(*cores: CoreFile, stacks: tuple[tuple[int, str, str], ...] = ()) -> tuple[str, ...]:
    found = hang_at_start()
    installation = replace(found.machine.installation, python="/venv/bin/python")
    return incident_of(
        replace(
            found,
            verdict=replace(found.verdict, advised=(CORE, GPU_CORE, STACKS)),
            machine=replace(found.machine, installation=installation),
            cores=Cores(cores),
            stacks=stacks,
        )
    ).death.advice


# Words


def test_names_of_ours_are_explained_before_they_are_used() -> None:
    top = text_of(autotune_fault()).split("## ")[0]
    assert "A *rung* is one set of settings" in top
    assert not any(word in text_of(autotune_fault()) for word in ("retry-safer", "echo", "exit status"))


def test_an_observed_launch_is_said_to_be_one_and_its_status_is_vllms_own() -> None:
    found = hang_at_start()
    text = text_of(replace(found, plan=replace(found.plan, observed=found.rung)))
    assert "safe-vllm only observed this launch" in text
    assert "ended with status 70" in text and "spent" not in text


def test_who_ended_with_which_status_is_told_of_the_server_and_of_who_crashed() -> None:
    [when] = [line for line in summary(segfault_in_service()) if "**When:**" in line]
    assert "the API server, ended with status 0; VLLM::Worker_TP1 was killed by SIGSEGV" in when


def test_processes_that_vllm_cleared_away_are_not_named_as_the_first_to_die() -> None:
    found = segfault_in_service()
    ends = (ProcessEnd("VLLM::Other", 1, -9), *found.seen.ends)
    [when] = [line for line in summary(replace(found, seen=replace(found.seen, ends=ends))) if "**When:**" in line]
    assert "VLLM::Other" not in when and "Worker_TP1 was killed by SIGSEGV" in when


def test_a_fault_that_cuda_reports_late_is_said_to_be_one_unless_something_told_which_kernel_it_was() -> None:
    found = autotune_fault()
    assert "CUDA reports such a fault late" in text_of(found)
    assert "reports such a fault late" not in text_of(
        replace(found, verdict=replace(found.verdict, is_suspect_known=True))
    )
    blocking = Command(found.command.argv, {**found.command.environment, "CUDA_LAUNCH_BLOCKING": "1"})
    assert "reports such a fault late" not in text_of(replace(found, command=blocking))
    assert "reports such a fault late" not in text_of(segfault_in_service())


def test_what_no_progress_means_is_told_of_a_hang_and_every_hang_has_its_own_limit() -> None:
    text = text_of(hang_at_start())
    assert "No progress means:" in text and "No progress means:" not in text_of(autotune_fault())
    assert "for 3600 s while kernels were being autotuned" in text
    assert "for 1800 s while CUDA graphs were being captured" in text


# What was tried


def test_rungs_that_were_not_run_are_listed_with_the_reason() -> None:
    untried = {each.rung: each.because for each in incident_of(hang_at_start()).untried}
    assert untried["triton"] == "not on this ladder: it would change moe-backend, which is pinned with --pin"
    assert "| triton | not run | not on this ladder: it would change moe-backend" in text_of(hang_at_start())


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"action": "stop"}, "no change of kernels or parallelism answers this fault"),
        ({"is_suspect_known": True, "suspect": "sampler"}, "its change does not answer a fault of sampler"),
        ({}, "the launch ended before its turn"),
    ],
)
def test_why_a_rung_of_the_ladder_was_not_run_before_the_launch_ended(changes: dict[str, object], because: str) -> None:
    found = autotune_fault()
    found = replace(found, verdict=replace(found.verdict, **changes), following=Following("spent", status=70))  # type: ignore[arg-type]
    assert {each.because for each in incident_of(found).untried} == {because}


def test_rungs_above_the_first_are_said_to_be_where_the_launch_did_not_begin() -> None:
    found = autotune_fault()
    plan = replace(found.plan, entry=1, entry_because="it held")
    below = replace(found, plan=plan, rung=plan.ladder.rungs[1], history=[Earlier(1, "no-autotune", "x", "init", 1.0)])
    [first, *_] = incident_of(replace(below, following=Following("why"))).untried
    assert (first.rung, first.because) == ("as-asked", "this launch began below it, at no-autotune: it held")


def test_a_rung_between_two_that_ran_is_said_to_be_passed_over() -> None:
    found = autotune_fault()
    rungs = found.plan.ladder.rungs
    history = [Earlier(1, "as-asked", "x", "init", 1.0), Earlier(2, "triton", "x", "init", 1.0)]
    untried = incident_of(replace(found, rung=rungs[2], history=history, following=Following("why"))).untried
    assert "passed over" in next(each.because for each in untried if each.rung == "no-autotune")


def test_rungs_that_the_ladder_does_not_have_are_told_beside_those_that_ran() -> None:
    found = autotune_fault()
    ladder = replace(found.plan.ladder, left_out=(LeftOut("odd", "no reason"),))
    assert "| odd | not run | not on this ladder: no reason |" in text_of(
        replace(found, plan=replace(found.plan, ladder=ladder))
    )


def test_the_decision_stands_where_it_is_said_what_helps_and_does_not_repeat_the_reason() -> None:
    found = hang_at_start()
    reason = found.verdict.reason
    decision = f"no rung is left that answers a fault of moe: {reason}"
    [then] = [line for line in summary(replace(found, following=Following(decision, status=70))) if "**Then:**" in line]
    assert then == (
        "- **Then:** safer settings may help, but there is no further attempt: no rung is left that answers a fault of "
        "moe; the launch ended with status 70 (attempts or rungs are spent)"
    )


def test_the_same_command_is_not_printed_twice() -> None:
    text = text_of(segfault_in_service())
    assert text.count(incident_of(segfault_in_service()).command) == 1
    assert "Attempt 2 runs the same command as this one." in text


# Advice


TUNER = Advised("x", sets=("--no-enable-flashinfer-autotune",), needs_tuning=True)
TRITON = Advised("x", sets=("--moe-backend triton",))
EAGER, NOT_EAGER = Advised("x", sets=("--enforce-eager",)), Advised("x", leaves_out="--enforce-eager")
NO_P2P = Advised("x", sets=("NCCL_P2P_DISABLE=1", "NCCL_DEBUG=INFO"))


@pytest.mark.parametrize(
    ("advised", "words", "variables"),
    [
        (TUNER, "m --no-enable-flashinfer-autotune", {}),
        (TUNER, "m --kernel-config.enable_flashinfer_autotune=false", {}),
        (TRITON, "m --moe-backend=triton", {}),
        (Advised("x", sets=("--attention-backend TRITON_ATTN",)), "m --attention_backend TRITON_ATTN", {}),
        (EAGER, "--enforce-eager m", {}),
        (EAGER, "--enforce m", {}),
        (NOT_EAGER, "m", {}),
        (NO_P2P, "m", {"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "INFO"}),
    ],
)
def test_what_is_in_effect_already_is_no_advice(advised: Advised, words: str, variables: dict[str, str]) -> None:
    assert Running(tuple(words.split()), variables).has_effect_of(advised)


@pytest.mark.parametrize(
    ("advised", "words", "variables"),
    [
        (TUNER, "m", {}),
        (TRITON, "m --moe-backend marlin", {}),
        (TRITON, "m --no-enable-flashinfer-autotune", {}),
        (EAGER, "m -- --enforce-eager", {}),
        (NOT_EAGER, "m --enforce-eager", {}),
        (NO_P2P, "m", {"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "TRACE"}),
        (Advised("lower --max-num-seqs"), "m --max-num-seqs 8", {}),
    ],
)
def test_what_is_not_in_effect_is_advice(advised: Advised, words: str, variables: dict[str, str]) -> None:
    assert not Running(tuple(words.split()), variables).has_effect_of(advised)


def test_every_flag_that_advice_names_is_one_that_can_be_looked_for() -> None:
    named = {setting.split()[0] for one in known.advice() for setting in (*one.sets, one.leaves_out or "--dtype")}
    flags = {**FLAGS, **MORE}
    assert {name for name in named if name.startswith("--")} <= {*flags, *(flag.negative for flag in flags.values())}


def test_advice_to_make_a_core_file_gives_way_to_how_the_one_that_there_is_can_be_opened() -> None:
    process, gpu = CoreFile("/srv/core 1", 1, "process"), CoreFile("/srv/g.nvcudmp", 1, "gpu")
    assert advice(process, replace(process, path="/srv/core 2")) == (
        "open the core file, which shows where the process crashed: gdb /venv/bin/python '/srv/core 1'",
        "gpu",
        "stacks",
    )
    opened, *kept = advice(gpu)
    assert "cuda-gdb -ex 'target cudacore /srv/g.nvcudmp'" in opened and kept == ["process", "stacks"]


def test_advice_to_take_stacks_is_given_only_where_there_are_none() -> None:
    assert advice() == ("process", "gpu", "stacks")
    assert advice(stacks=((1, "VLLM::Worker", "x"),)) == ("process", "gpu")


def test_advice_that_the_next_attempt_follows_is_said_to_be_tried() -> None:
    assert f"{NO_TUNING} (attempt 2 tries it)" in incident_of(autotune_fault()).death.advice
    ended = replace(autotune_fault(), following=Following("why", status=70))
    assert NO_TUNING in incident_of(ended).death.advice


def test_advice_for_another_compute_capability_or_backend_than_the_commands_is_not_given() -> None:
    told = " ".join(incident_of(autotune_fault()).death.advice)
    assert "flashinfer_trtllm crashed" in told  # the output says no more than FlashInfer, and the command says which
    assert "MXFP4" not in told and "10.3" not in told and "is in use" not in told


def test_advice_that_is_left_out_makes_room_for_other_advice() -> None:
    found = autotune_fault()
    prepared = prepare(Intent(found.rung.words, machine=str(GB200)))
    verdict = replace(found.verdict, setup=replace(found.verdict.setup, vllm="0.26.0"))
    only = {"VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS": "flashinfer::trtllm_bf16_moe"}
    before, after = (
        advised_anew(verdict, found.rung, Command(found.command.argv, each), prepared).advice for each in ({}, only)
    )
    assert len(before) == len(after) == MOST_SHOWN
    assert [text for text in before if "SKIP_OPS" in text] and not [text for text in after if "SKIP_OPS" in text]


# Xids


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("Xid (PCI:0000:3b:00): 31, pid=92, name=VLLM::Worker_TP", "by pid 92, which is VLLM::Worker_TP1 of this"),
        ("Xid (PCI:0000:3b:00): 31, pid=90, name=x", "by pid 90, which is VLLM::EngineCore of this attempt"),
        ("Xid (PCI:0000:3b:00): 31, pid=5, name=x", "by pid 5 (x), which is not known as one of vLLM's here"),
        ("Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "Xid 79 on the GPU at PCI:0000:3b:00"),
    ],
)
def test_an_xid_is_told_at_the_top_with_its_gpu_and_whose_process_it_was(line: str, note: str) -> None:
    found = segfault_in_service()
    lines = [(at, f"NVRM: {line}" if "Xid" in text else text) for at, text in found.around]
    verdict = replace(found.verdict, evidence=found.verdict.evidence[:1])
    [told] = [
        line
        for line in summary(replace(found, verdict=verdict, around=lines, tail=lines))
        if line.startswith("- **GPU fault:**")
    ]
    assert note in told and "PCI:0000:3b:00" in told


def test_the_gpu_of_an_xid_has_the_number_that_cuda_gives_it_where_nvml_told() -> None:
    found = segfault_in_service()
    seen = replace(found.seen, gpu_events=(GpuEvent(31, 1, "PCI:0000:3b:00"),))
    notes = incident_of(replace(found, seen=seen)).xid_notes
    assert "(GPU 1 as CUDA counts), by pid 92" in notes[0]
    assert "reported by NVML, which does not tell the process" in notes[1]


def test_lines_that_stand_around_the_root_line_are_not_printed_again() -> None:
    text = text_of(segfault_in_service())
    assert text.count("MMU Fault") == 1 and text.count("EngineDeadError") == 1
    assert "- line 46 below, written by APIServer, only repeats it or follows from it" in text
    elsewhere = text_of(replace(segfault_in_service(), around=()))
    assert "- line 46, written by APIServer, only repeats it or follows from it: `(APIServer pid=77)" in elsewhere


# Surroundings


def test_what_is_hidden_of_the_command_is_named_and_said_to_be_replaceable() -> None:
    text = text_of(autotune_fault())
    assert "`HF_HOME` and `HF_TOKEN` were set as well and are not shown: use your own." in text
    assert "For an API key any dummy does" in text


def test_variables_that_the_installed_versions_do_not_read_are_marked_and_stay_in_the_command() -> None:
    found = replace(hang_at_start(), unread={"VLLM_CACHE_ROOT"})
    text = text_of(found)
    assert "| `VLLM_CACHE_ROOT` | `/data/vllm` (not read by the installed version) |" in text
    assert "| `TRTLLM_MOE_MAX_WORKSPACE` | `8192` (not read by the installed version) |" in text
    assert "VLLM_CACHE_ROOT=/data/vllm" in incident_of(found).command


def test_a_suspect_cache_has_a_reason_and_what_to_do() -> None:
    text = text_of(autotune_fault())
    assert "suspect: the output names it" in text
    assert "safe-vllm changed nothing in what is suspect. Move it aside" in text
    assert "no attempt of this launch had fresh caches so far" in text
    found = autotune_fault()
    fresh = [replace(past, has_fresh_caches=True) for past in found.history]
    assert "attempt 1 had fresh caches" in text_of(replace(found, history=fresh))
    assert "Move it aside" not in text_of(segfault_in_service())


@pytest.mark.parametrize(
    ("words", "row"),
    [
        ("--revision abc --dtype=half", "| --revision | abc |"),
        ("--revision abc --dtype=half", "| --dtype | half |"),
        ("", "| --dtype | not given, so that of the model |"),
        ("-tp 2 -dp 4 -ep", "| parallelism | TP 2, DP 4, PP 1, expert parallelism on |"),
        ("", "| CUDA_VISIBLE_DEVICES | 2,3 |"),
        ("--attention-backend FLASHINFER", "| --attention-backend | FLASHINFER |"),
        ("--moe-backend marlin", "| MoE backend asked for | marlin |"),
    ],
)
def test_model_parallelism_and_backends_are_told_as_the_command_says(words: str, row: str) -> None:
    found = autotune_fault()
    rung = Rung("as-asked", ("org/m", *words.split()))
    command = Command(("vllm", "serve", *rung.words), {"CUDA_VISIBLE_DEVICES": "2,3"})
    text = text_of(replace(found, rung=rung, command=command))
    assert "| model | org/m |" in text and row in text.replace("`", "")


def test_backends_are_told_as_the_output_says_too() -> None:
    assert "| attention backend, by its output | `FLASH_ATTN` |" in text_of(segfault_in_service()).replace(
        "| FLASH_ATTN |", "| `FLASH_ATTN` |"
    )
    assert "| MoE backend, by its output | FlashInfer |" in text_of(autotune_fault())


def test_new_core_files_are_counted() -> None:
    assert "New files while it ran: 2, 55.0 GiB in all." in text_of(segfault_in_service())
    none = replace(segfault_in_service(), cores=Cores((), "they go to /x"))
    assert "New files while it ran: none." in text_of(none)
    assert "Where the kernel puts them: they go to /x." in text_of(none)
    many = tuple(CoreFile(f"/c{at}", 1) for at in range(3))
    assert "New files while it ran: 3," in text_of(replace(none, cores=Cores(many, "x")))


# Output


def test_a_run_of_lines_alike_is_one_line_and_a_count_in_what_is_pasted_alone(tmp_path: Path) -> None:
    incident = incident_of(autotune_fault())
    text = markdown(shortened(incident))
    assert "28 more lines like it" in text
    assert "Loading shard 0\n" in text and "Loading shard 29\n" in text and "Loading shard 14" not in text
    path, _ = incidents.record(tmp_path, incident, 1_790_000_000.0)
    assert path is not None and "Loading shard 14" in (path / "log-tail.txt").read_text()


def test_only_runs_are_collapsed_and_never_a_line_that_tells() -> None:
    def shown(texts: list[str], kept: set[int]) -> list[tuple[int, int]]:
        lines = [LogLine(at, text) for at, text in enumerate(texts, 1)]
        return [(line.line, line.alike) for line in collapsed(lines, kept)]

    assert shown(["a 1", "a 2", "a 3"], set()) == [(1, 0), (2, 0), (3, 0)]
    assert shown(["a 1", "a 2", "a 3", "a 44"], set()) == [(1, 2), (4, 0)]
    assert shown(["a 1", "b 2"] * 4, set()) == [(at, 0) for at in range(1, 9)]
    assert shown([f"a {at}" for at in range(9)], {5}) == [(1, 2), (4, 0), (5, 0), (6, 2), (9, 0)]
    assert shown([f"x {at}%|{'#' * at}{' ' * (9 - at)}| {at}/9" for at in range(9)], set()) == [(1, 7), (9, 0)]


@pytest.mark.parametrize("client", ["10.1.2.3:5000", "[2001:db8::1]:80", "2001:db8::1:80"])
def test_addresses_of_clients_are_in_no_line_that_is_pasted(client: str) -> None:
    line = f'(APIServer pid=77) INFO:     {client} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    assert client not in without_clients(line) and "POST /v1" in without_clients(line)
    found = replace(segfault_in_service(), around=((44, "x"), (45, line)), tail=((44, "x"), (45, line), (46, line)))
    incident = shortened(incident_of(found))
    assert client not in markdown(incident) and len(incident.around) == 2 and len(incident.tail) == 1


# Other files


def kept(tmp_path: Path, incident: Incident, at: float) -> str:
    path, problem = incidents.record(tmp_path, incident, at)
    assert path is not None and problem is None
    assert f"In `{path}` are also, in full: log-tail.txt" in (path / "incident.md").read_text()
    return path.name


def test_a_report_says_where_its_other_files_are_also_where_its_name_was_taken(tmp_path: Path) -> None:
    incident = incident_of(autotune_fault())
    names = [kept(tmp_path, incident, 1_790_000_000.0) for _ in range(3)]
    assert [name.partition(".")[2] for name in names] == ["", "2", "3"]


def test_a_report_names_those_on_earlier_attempts_of_its_own_launch(tmp_path: Path) -> None:
    later = incident_of(hang_at_start())
    kept(tmp_path, replace(later, attempt=1, launch="another"), 1_790_000_000.0)
    first = kept(tmp_path, replace(later, attempt=1), 1_790_000_001.0)
    second = kept(tmp_path, later, 1_790_000_002.0)
    text = (tmp_path / "incidents" / second / "incident.md").read_text()
    assert f"| as-asked | 1: 3660.5 s, never ready, report `{first}` |" in text
    assert "1 (this one)" not in text and "2 (this one): 1890.0 s, never ready |" in text
