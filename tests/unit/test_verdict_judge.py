"""The judge weighs lines, exits and what was asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safe_vllm.verdict.actions import action_for, status_for
from safe_vllm.verdict.advice import Advice
from safe_vllm.verdict.evidence import FAULTS, PHASES, SUSPECTS, Evidence, Observations, ProcessEnd, Setup
from safe_vllm.verdict.judge import judge

ROOT = Evidence(
    number=10,
    text="torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    kind="root",
    signature="cuda-illegal-memory-access",
    fault="illegal-memory-access",
    process="Worker_TP1",
    phase="serving",
    at_s=100.0,
)
ANSWER = Evidence(20, "200 OK", "marker", "answered", phase="serving", at_s=110.0)
STOPPING = Evidence(30, "shutdown triggered", "marker", "shutdown-triggered", phase="shutdown", at_s=200.0)
ORDERLY = replace(STOPPING, signature="orderly-shutdown")
DEATH = Evidence(12, "EngineCore encountered a fatal error.", "echo", "death-in-service", phase="serving", at_s=101.0)
WAIT = Evidence(5, "No available shared memory", "echo", "shm-broadcast-wait", "hang", phase="serving", at_s=60.0)
TIMEOUT = Evidence(8, "RPC call to x timed out.", "echo", "engine-timeout", "hang", phase="serving", at_s=300.0)
STALL = Evidence(3, "Waiting: 1 reqs", "echo", "no-tokens", "hang", phase="serving", at_s=10.0)
BENIGN = Evidence(1, "Found ulimit of 20000", "benign", "optional-part-missing", at_s=1.0)
TORCH = Evidence(11, "For debugging consider passing", "advice", "torch-advice", phase="serving", at_s=100.0)
SERVING = Observations(
    0, phase="serving", health_answered=True, was_ready=True, canary="answered", uptime_s=150.0, ended_at_s=300.0
)
STARTING = Observations(1, phase="init", uptime_s=150.0, ended_at_s=150.0)


def end(status: int | None, name: str = "VLLM::Worker_TP1", at_s: float = 100.0) -> ProcessEnd:
    return ProcessEnd(name, 7, status, at_s)


def root(fault: str, number: int = 10, phase: str = "init", **more: object) -> Evidence:
    return replace(ROOT, fault=fault, number=number, phase=phase, signature=f"a-{fault}", **more)  # type: ignore[arg-type]


# ---- the server in front of the engine


def test_an_engine_that_had_ended_before_the_server_failed_was_not_well() -> None:
    failed = Evidence(
        20, "RuntimeError: x", "echo", "guess-error", "unknown", process="APIServer", phase="capture", at_s=90.0
    )
    gone = replace(STARTING, evidence=(failed,), phase="capture")
    assert judge(replace(gone, ends=(end(1, "VLLM::EngineCore", at_s=95.0),))).action == "stop"
    assert judge(replace(gone, ends=(end(1, "VLLM::EngineCore", at_s=85.0),))).action == "retry-safer"


# ---- signals


@pytest.mark.parametrize("signal", [-11, -6, -4, -8])
def test_an_engine_process_that_crashed_means_a_safer_rung(signal: int) -> None:
    verdict = judge(replace(STARTING, leader_status=0, ends=(end(signal),), phase="first-inference"))
    assert (verdict.fault, verdict.action, verdict.phase) == ("engine-signal", "retry-safer", "first-inference")


def test_p17_the_reason_names_process_signal_and_phase() -> None:
    seen = replace(STARTING, leader_status=0, ends=(end(-11),), phase="first-inference")
    assert judge(seen).reason == "VLLM::Worker_TP1 was killed by SIGSEGV at the first inference"


def test_the_exit_of_a_process_adds_the_signal_to_a_line_that_only_says_that_it_crashed() -> None:
    line = replace(root("engine-signal"), process=None)
    assert (
        "VLLM::Worker_TP1 was killed by SIGSEGV" in judge(replace(STARTING, evidence=(line,), ends=(end(-11),))).reason
    )


@pytest.mark.parametrize("name", ["ninja", "python3", "resource_tracker", "cc1plus", "nvcc"])
def test_only_processes_of_vllm_count(name: str) -> None:
    assert judge(replace(STARTING, ends=(end(-11, name),))).fault == "unknown"


@pytest.mark.parametrize("name", ["VLLM::EngineCor", "EngineCore_DP0", "VllmWorker-1", "Worker_TP0", "APIServer"])
def test_all_processes_of_vllm_count(name: str) -> None:
    assert judge(replace(STARTING, ends=(end(-6, name),))).fault == "engine-signal"


def test_a_bus_error_at_the_start_is_shared_memory() -> None:
    verdict = judge(replace(STARTING, ends=(end(-7),)))
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("shm", "stop", 78)


def test_a_bus_error_in_service_is_a_crash() -> None:
    assert judge(replace(SERVING, ends=(end(-7),))).fault == "engine-signal"


@pytest.mark.parametrize("status", [-11, 139, -6, 134])
def test_a_leader_that_crashed_is_a_crash_in_any_notation(status: int) -> None:
    assert judge(replace(STARTING, leader_status=status)).fault == "engine-signal"


def test_a_kill_by_someone_unknown_may_pass() -> None:
    verdict = judge(replace(STARTING, ends=(end(-9), end(1, "VLLM::EngineCore", 101.0))))
    assert (verdict.fault, verdict.action) == ("unknown", "retry-same")
    assert "VLLM::Worker_TP1 was killed by SIGKILL" in verdict.reason


def test_workers_that_vllm_cleared_up_were_not_killed_by_someone_unknown() -> None:
    verdict = judge(replace(STARTING, ends=(end(1, "VLLM::EngineCore", 99.0), end(-9))))
    assert (verdict.fault, verdict.action) == ("unknown", "retry-safer")


def test_a_kill_that_the_kernel_explains_is_host_memory() -> None:
    seen = replace(STARTING, ends=(end(-9),), evidence=(root("host-oom"),))
    assert (judge(seen).fault, judge(seen).action) == ("host-oom", "stop")


# ---- an end that nobody asked for, and one that somebody did


def test_status_0_that_nobody_asked_for_is_a_failure() -> None:
    verdict = judge(SERVING)
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("unknown", "retry-same", None)


def test_our_own_stop_is_a_stop_whatever_else_was_seen() -> None:
    verdict = judge(replace(SERVING, stop_requested=True, evidence=(ROOT, DEATH), ends=(end(-6),)))
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("stopped", "stop", 0)


@pytest.mark.parametrize("status", [-15, -2, 143, 130])
def test_a_leader_ended_by_a_request_was_stopped_by_someone_else(status: int) -> None:
    verdict = judge(replace(SERVING, leader_status=status))
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("stopped", "stop", 0)


def test_an_orderly_end_was_told_by_someone_else() -> None:
    late = replace(DEATH, number=40, at_s=201.0)
    verdict = judge(replace(SERVING, evidence=(STOPPING, late), ends=(end(-9, at_s=202.0),)))
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("stopped", "stop", 0)


def test_a_fault_before_the_request_to_stop_stays_the_cause() -> None:
    assert judge(replace(SERVING, evidence=(ROOT, DEATH, STOPPING))).fault == "illegal-memory-access"


def test_a_fault_while_winding_down_is_part_of_the_stop() -> None:
    assert judge(replace(SERVING, evidence=(STOPPING, replace(ROOT, number=35, at_s=201.0)))).fault == "stopped"


def test_a_crash_before_the_request_to_stop_stays_the_cause() -> None:
    assert judge(replace(SERVING, evidence=(STOPPING,), ends=(end(-11, at_s=150.0),))).fault == "engine-signal"


def test_the_note_of_older_versions_is_no_failure() -> None:
    verdict = judge(replace(SERVING, evidence=(ORDERLY, replace(DEATH, number=40))))
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("none", "none", 0)


# ---- roots, echoes, answers


def test_p16_a_root_line_decides_and_stands_first() -> None:
    verdict = judge(replace(SERVING, evidence=(WAIT, ROOT, DEATH)))
    assert (verdict.fault, verdict.action, verdict.phase) == ("illegal-memory-access", "retry-safer", "serving")
    assert verdict.evidence[0] is ROOT
    assert verdict.reason == "Worker_TP1 hit an illegal memory access on the GPU while serving"


def test_the_first_of_several_roots_wins() -> None:
    second = root("launch-failure", number=11, phase="serving")
    assert judge(replace(SERVING, evidence=(ROOT, second))).fault == "illegal-memory-access"


def test_the_board_is_named_before_what_it_caused() -> None:
    verdict = judge(replace(SERVING, evidence=(ROOT, root("board", number=14, phase="serving"))))
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("board", "stop", 69)


@pytest.mark.parametrize("vague", ["engine-signal", "nccl-init"])
def test_a_gpu_fault_explains_a_break_down_that_was_printed_first(vague: str) -> None:
    fault = root("illegal-memory-access", number=11, phase="serving")
    assert judge(replace(SERVING, evidence=(root(vague, phase="serving"), fault))).fault == "illegal-memory-access"


def test_an_exception_in_service_is_named_without_a_guess_at_its_fault() -> None:
    line = Evidence(11, "AssertionError", "echo", "guess-setup", "bad-config", None, "EngineCore", "serving", 100.0)
    verdict = judge(replace(SERVING, evidence=(line, DEATH)))
    assert (verdict.fault, verdict.action) == ("unknown", "retry-same")
    assert verdict.reason == "EngineCore failed while serving: AssertionError"


def test_an_answered_request_clears_a_line() -> None:
    late = replace(SERVING, ended_at_s=5000.0)
    assert judge(replace(late, leader_status=None, evidence=(ROOT, ANSWER))).action == "none"
    assert judge(replace(late, evidence=(ROOT, ANSWER))).fault == "unknown"


@pytest.mark.parametrize(
    "end_of_it",
    [
        {"ended_at_s": 600.0},
        {"ended_at_s": 600.0, "ends": (end(-9, at_s=600.0),)},
        {"ends": (end(-9, at_s=600.0),)},
    ],
)
def test_the_time_from_a_line_to_the_end_does_not_count_from_when_the_server_was_ready(
    end_of_it: dict[str, object],
) -> None:
    seen = replace(SERVING, uptime_s=100.0, evidence=(ROOT, ANSWER), **{"ended_at_s": 0.0, **end_of_it})  # type: ignore[arg-type]
    assert judge(seen).fault == "unknown"


def test_an_end_right_after_an_answer_is_put_down_to_the_fault_before_it_however_long_the_start_took() -> None:
    seen = replace(SERVING, leader_status=-9, evidence=(ROOT, ANSWER), uptime_s=5000.0, ended_at_s=130.0)
    assert judge(seen).fault == "illegal-memory-access"
    assert judge(replace(seen, ended_at_s=0.0)).fault == "illegal-memory-access"


def test_an_answer_of_another_engine_does_not_clear_a_gpu_fault() -> None:
    after = replace(DEATH, number=25, at_s=112.0)
    assert judge(replace(SERVING, evidence=(ROOT, ANSWER, after))).fault == "illegal-memory-access"


def test_a_server_that_came_up_cleared_what_was_printed_before() -> None:
    up = replace(ANSWER, signature="startup-complete")
    assert judge(replace(SERVING, leader_status=None, evidence=(root("toolchain"), up))).action == "none"


def test_a_fault_that_the_start_went_past_is_not_its_cause() -> None:
    later = Evidence(15, "Autotuning process starts", "marker", "autotune-begins", phase="autotune", at_s=50.0)
    crash = root("illegal-instruction", number=16, phase="autotune")
    assert judge(replace(STARTING, evidence=(root("permission"), later, crash))).fault == "illegal-instruction"


def test_words_of_a_bad_request_do_not_explain_a_death_in_service() -> None:
    line = root("bad-model", phase="serving")
    assert judge(replace(SERVING, evidence=(line, DEATH))).fault == "unknown"


def test_an_echo_that_names_a_fault_decides_where_there_is_no_root() -> None:
    line = Evidence(9, "exit code: -11", "echo", "death-by-signal", "engine-signal", phase="capture")
    verdict = judge(replace(STARTING, evidence=(line,), phase="capture"))
    assert (verdict.fault, verdict.action, verdict.phase) == ("engine-signal", "retry-safer", "capture")


def test_the_type_of_an_exception_decides_last() -> None:
    line = Evidence(9, "ValueError: no", "echo", "guess-setup", "bad-config", process="EngineCore")
    assert judge(replace(STARTING, evidence=(line,))).fault == "bad-config"
    assert judge(replace(STARTING, evidence=(line,), ends=(end(-11),))).fault == "engine-signal"
    assert judge(replace(SERVING, evidence=(replace(line, phase="serving"), DEATH))).fault == "unknown"


def test_an_exception_while_the_model_is_read_is_put_down_to_the_model() -> None:
    frame = Evidence(8, "in load_weights", "marker", "model-frame", process="EngineCore")
    line = Evidence(9, "KeyError: 'layers.0'", "echo", "guess-setup", "bad-config", process="EngineCore")
    assert judge(replace(STARTING, evidence=(frame, line))).fault == "bad-model"


@pytest.mark.parametrize("names", ["import-frame", "import-frame model-frame"])
def test_an_exception_while_vllm_itself_is_imported_is_put_down_to_what_is_installed(names: str) -> None:
    frames = tuple(Evidence(8, "in <module>", "marker", name) for name in names.split())
    line = Evidence(9, "ValueError: 'x' is already used", "echo", "guess-setup", "bad-config")
    verdict = judge(replace(STARTING, evidence=(*frames, line)))
    assert (verdict.fault, verdict.action) == ("toolchain", "stop")


def test_a_package_that_is_missing_is_no_fault_of_the_model() -> None:
    frame = Evidence(8, "/transformers/models/", "marker", "model-frame")
    line = Evidence(9, "ImportError: cannot import name", "echo", "guess-import", "toolchain")
    verdict = judge(replace(STARTING, evidence=(frame, line)))
    assert verdict.fault == "toolchain"
    assert verdict.reason == (
        "vLLM could not build or load code that it needs while it was starting: ImportError: cannot import name"
    )


@pytest.mark.parametrize("precise", ["shm", "gpu-oom", "host-oom", "driver"])
def test_the_cause_that_nccl_names_behind_its_own_failure_decides(precise: str) -> None:
    behind = root(precise, number=11)
    assert judge(replace(STARTING, evidence=(root("nccl-init"), behind))).fault == precise


# ---- the lines that a verdict rests on


@pytest.mark.parametrize(
    "seen",
    [
        replace(STARTING, leader_status=-9),
        replace(STARTING, leader_status=0),
        replace(STARTING, ends=(end(-11),)),
        replace(STARTING, leader_status=None, ended_by_us="no progress"),
        replace(STARTING, stop_requested=True),
        replace(SERVING, leader_status=None),
    ],
)
def test_without_a_line_that_tells_harmless_lines_and_advice_are_not_shown(seen: Observations) -> None:
    assert judge(replace(seen, evidence=(BENIGN, TORCH))).evidence == ()


def test_harmless_lines_and_advice_are_no_part_of_a_report() -> None:
    verdict = judge(replace(SERVING, evidence=(BENIGN, WAIT, ROOT, TORCH, DEATH)))
    assert verdict.evidence == (ROOT, WAIT, DEATH)


def test_a_crash_that_only_a_status_tells_is_shown_with_the_echoes_of_it() -> None:
    assert judge(replace(SERVING, ends=(end(-11),), evidence=(BENIGN, DEATH))).evidence == (DEATH,)


def test_a_line_that_an_answer_cleared_is_no_part_of_a_later_report() -> None:
    late = replace(DEATH, number=40, at_s=900.0)
    assert judge(replace(SERVING, ended_at_s=900.0, evidence=(ROOT, ANSWER, late))).evidence == (late,)


def test_a_line_is_shown_once() -> None:
    line = Evidence(9, "KeyError: 'layers.0'", "echo", "guess-setup", "bad-config", phase="serving")
    assert [found.number for found in judge(replace(SERVING, evidence=(line, DEATH))).evidence] == [9, 12]


# ---- a request that failed


@pytest.mark.parametrize(
    ("was_ready", "phase", "action", "when"),
    [
        (False, "first-inference", "retry-safer", "at the first inference"),
        (True, "serving", "retry-same", "while serving"),
    ],
)
def test_a_request_that_the_server_could_not_answer_is_no_hang(
    was_ready: bool, phase: str, action: str, when: str
) -> None:
    seen = Observations(
        None, phase=phase, canary="failed", was_ready=was_ready, ended_by_us="/v1/completions says 500", ended_at_s=9.0
    )
    verdict = judge(seen)
    assert (verdict.fault, verdict.action) == ("unknown", action)
    assert verdict.reason == f"a real request was not answered {when}: /v1/completions says 500"


def test_the_line_that_tells_why_a_request_failed_is_the_cause() -> None:
    seen = Observations(None, (ROOT,), canary="failed", ended_by_us="/v1/completions says 500", ended_at_s=101.0)
    assert judge(seen).fault == "illegal-memory-access"


def test_a_request_without_any_answer_stays_a_hang() -> None:
    seen = Observations(None, canary="hung", ended_by_us="no answer for 300 s", ended_at_s=9.0)
    assert judge(seen).fault == "hang"


# ---- hangs


def test_an_end_of_ours_without_a_fault_line_was_a_hang() -> None:
    verdict = judge(replace(STARTING, leader_status=None, ended_by_us="no progress for 900 s"))
    assert (verdict.fault, verdict.action) == ("hang", "retry-safer")
    assert verdict.reason == "no progress for 900 s while it was starting"


def test_an_end_of_ours_takes_the_fault_that_was_printed() -> None:
    seen = replace(SERVING, leader_status=None, ended_by_us="a fault that vLLM did not notice", evidence=(ROOT,))
    assert judge(seen).fault == "illegal-memory-access"


def test_ranks_that_wait_for_each_other_mean_a_safer_rung() -> None:
    seen = replace(SERVING, evidence=(WAIT, replace(WAIT, number=6), TIMEOUT, DEATH))
    assert (judge(seen).fault, judge(seen).action) == ("hang", "retry-safer")


def test_a_time_out_alone_means_the_same_rung() -> None:
    seen = replace(SERVING, evidence=(TIMEOUT, DEATH))
    assert (judge(seen).fault, judge(seen).action) == ("hang", "retry-same")


def test_no_tokens_for_a_while_is_a_hang_and_for_a_moment_is_not() -> None:
    seen = replace(SERVING, leader_status=None)
    assert judge(replace(seen, evidence=(STALL, replace(STALL, number=4, at_s=80.0)))).fault == "hang"
    assert judge(replace(seen, evidence=(STALL, replace(STALL, number=4, at_s=20.0)))).fault == "none"


# ---- actions and statuses


@pytest.mark.parametrize(
    ("fault", "before", "after"),
    [
        ("illegal-memory-access", "retry-safer", "retry-safer"),
        ("device-assert", "retry-safer", "retry-safer"),
        ("gpu-oom", "stop", "retry-same"),
        ("host-oom", "stop", "retry-same"),
        ("collective-timeout", "retry-safer", "retry-same"),
        ("nccl-init", "stop", "retry-same"),
        ("backend-refused", "stop", "stop"),
        ("board", "stop", "stop"),
        ("disk-full", "stop", "stop"),
        ("unknown", "retry-safer", "retry-same"),
        ("none", "none", "none"),
    ],
)
def test_the_action_depends_on_the_fault_and_on_having_been_ready(fault: str, before: str, after: str) -> None:
    assert (action_for(fault, before_ready=True), action_for(fault, before_ready=False)) == (before, after)


@pytest.mark.parametrize(
    ("fault", "status"),
    [("bad-argument", 2), ("board", 69), ("port-in-use", 75), ("hub", 75), ("bad-model", 78), ("stopped", 0)],
)
def test_the_status_tells_a_supervisor_what_to_do(fault: str, status: int) -> None:
    assert judge(replace(STARTING, evidence=(root(fault),))).exit_status == status


def test_a_retry_has_no_status() -> None:
    assert all(status_for(fault, "retry-safer") is None for fault in FAULTS)


def test_a_port_of_the_last_attempts_ranks_may_be_free_in_a_moment() -> None:
    line = root("port-in-use", suspect="parallel")
    assert judge(replace(STARTING, evidence=(line,))).action == "retry-same"


def test_status_2_at_the_start_is_the_command_line() -> None:
    verdict = judge(Observations(2, uptime_s=20.0))
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("bad-argument", "stop", 2)


def test_a_stop_quotes_the_line_of_vllm() -> None:
    line = root("bad-argument", process=None)
    reason = judge(
        replace(STARTING, evidence=(replace(line, text="vllm serve: error: unrecognized arguments: -z"),))
    ).reason
    assert reason.endswith(": vllm serve: error: unrecognized arguments: -z")


def test_a_quote_is_short_and_without_prefix() -> None:
    text = "(EngineCore pid=92) ERROR 03-28 07:56:12 [core.py:1108] ValueError: " + "x" * 1000
    reason = judge(replace(STARTING, evidence=(replace(root("bad-config"), text=text),))).reason
    assert len(reason) < 330
    assert ": ValueError: xxx" in reason


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("phase", PHASES)
def test_every_fault_has_a_sentence_and_words_of_the_vocabulary(fault: str, phase: str) -> None:
    verdict = judge(replace(STARTING, evidence=(root(fault, phase=phase),), phase=phase))
    assert verdict.reason
    assert "\n" not in verdict.reason
    assert verdict.fault in FAULTS
    assert verdict.suspect in SUSPECTS


@pytest.mark.parametrize("fault", sorted(FAULTS - {"none", "stopped"}))
def test_a_sentence_is_told_in_the_past(fault: str) -> None:
    told = judge(replace(STARTING, evidence=(root(fault, text="x"),))).reason
    assert " while it was starting" in told
    assert not {"cannot", "does", "is", "has", "can"} & set(told.split())


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-9, "vLLM was killed by SIGKILL while serving"),
        (137, "vLLM was killed by SIGKILL while serving"),
        (-13, "vLLM was killed by SIGPIPE while serving, and no known cause was printed"),
        (141, "vLLM was killed by SIGPIPE while serving, and no known cause was printed"),
        (-40, "vLLM was killed by signal 40 while serving, and no known cause was printed"),
        (3, "vLLM ended with status 3 while serving, and no known cause was printed"),
        (0, "vLLM ended with status 0 while serving, and no known cause was printed"),
    ],
)
def test_an_end_without_a_cause_is_told_in_words(status: int, words: str) -> None:
    assert judge(replace(SERVING, leader_status=status, evidence=(DEATH,))).reason == words


@pytest.mark.parametrize(
    ("suspect", "backend"),
    [
        ("moe", "TRITON"),
        ("attention", "FLASHINFER"),
        ("all-to-all", "DeepEPLL"),
        ("unknown", "TRITON"),
        (None, "TRITON"),
    ],
)
def test_the_backend_is_that_of_the_suspect(suspect: str | None, backend: str) -> None:
    setup = Setup(attention_backend="FLASHINFER", all2all_backend="DeepEPLL")
    line = root("illegal-memory-access", suspect=suspect)
    verdict = judge(replace(STARTING, evidence=(line,), backend="TRITON", setup=setup))
    assert (verdict.backend, verdict.setup) == (backend, setup)


def test_the_moe_backend_does_not_stand_in_for_one_that_was_not_told() -> None:
    line = root("illegal-memory-access", suspect="attention")
    assert judge(replace(STARTING, evidence=(line,), backend="TRITON")).backend is None


def test_what_a_log_told_counts_before_what_a_machine_tells() -> None:
    told, found = Setup(vllm="0.26.0", attention_backend="FLASHINFER"), Setup(vllm="0.32.0", gpu="NVIDIA B200")
    assert told.or_else(found) == Setup(vllm="0.26.0", gpu="NVIDIA B200", attention_backend="FLASHINFER")


def test_the_advice_is_that_for_the_suspect_that_is_named() -> None:
    table = (Advice("try this", "https://example.org/1", suspects=("autotune",)), Advice("not this", suspects=("moe",)))
    verdict = judge(replace(STARTING, evidence=(root("illegal-memory-access", phase="autotune"),)), table)
    assert (verdict.suspect, verdict.advice, verdict.links) == ("autotune", ("try this",), ("https://example.org/1",))


@pytest.mark.parametrize(
    ("kind", "fault", "arms"),
    [
        ("root", "illegal-memory-access", True),
        ("root", "engine-signal", True),
        ("root", "board", True),
        ("echo", "illegal-memory-access", False),
        ("root", "permission", False),
        ("root", "hub", False),
        ("root", "gpu-oom", False),
        ("root", None, False),
    ],
)
def test_only_what_no_process_survives_arms(kind: str, fault: str | None, arms: bool) -> None:
    assert replace(ROOT, kind=kind, fault=fault).arms is arms  # type: ignore[arg-type]


def test_a_refusal_that_leaves_the_gpu_as_it_was_does_not_arm() -> None:
    assert not replace(ROOT, fault="launch-failure", can_be_caught=True).arms


@pytest.mark.parametrize("phase", ["autotune", "capture"])
def test_a_fault_while_tuning_is_put_down_to_the_tuner(phase: str) -> None:
    verdict = judge(replace(STARTING, evidence=(root("illegal-memory-access", phase=phase),)))
    assert verdict.suspect == ("autotune" if phase == "autotune" else "unknown")


def test_a_kernel_that_a_core_dump_names_is_the_suspect() -> None:
    dump = replace(root("gpu-coredump", phase="serving"), number=10)
    frame = Evidence(18, "coredump:   #0 bmm_", "echo", "coredump-moe-kernel", suspect="moe", phase="serving")
    assert judge(replace(SERVING, evidence=(dump, frame))).suspect == "moe"
