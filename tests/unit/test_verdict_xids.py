"""An Xid counts for a death soon after it, a broken board for any; another process's counts for nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doc_tables import rows

from safe_vllm.data.strict_yaml import read_data
from safe_vllm.verdict.advice_table import parse as parse_advice
from safe_vllm.verdict.evidence import GpuEvent, Observations, ProcessEnd, Verdict
from safe_vllm.verdict.judge import judge
from safe_vllm.verdict.scan import Scan
from safe_vllm.verdict.signatures import parse

SIGNATURES = parse(read_data("signatures.yaml"))
ADVICE = parse_advice(read_data("advice.yaml"))
BOARD = (48, 62, 74, 79, 94, 95, 119, 120, 154)
LINKS = (144, 145, 146, 147, 148, 149, 150)
KERNEL = {13: "illegal-memory-access", 31: "illegal-memory-access", 43: "launch-failure"}
BUS = "PCI:0000:65:00"
FAULT = "(Worker_TP1 pid=7) ERROR 07-19 08:20:16 [m.py:1007] torch.AcceleratorError: CUDA error: misaligned address\n"
DIED_AT_S = 100.0
SILENT = Observations(0, phase="serving", health_answered=True, was_ready=True, ended_at_s=DIED_AT_S + 3)
SILENT = replace(SILENT, ends=(ProcessEnd("VLLM::EngineCore", 4242, 1, DIED_AT_S),))


def died(*happened: GpuEvent | str, seen: Observations = SILENT, at_s: float = 99.0) -> Verdict:
    """Return the verdict on an attempt that printed these lines, and of whose GPUs this was reported."""
    scan = Scan(SIGNATURES)
    scan.ready()
    for each in happened:
        if isinstance(each, str):
            scan.feed("stderr", each.encode(), at_s)
        else:
            scan.gpu_event(each)
    return judge(replace(seen, evidence=scan.evidence), ADVICE)


def xid(number: int | None, at_s: float = 99.0) -> GpuEvent:
    return GpuEvent(number, 2, BUS, at_s)


def kernel(number: int, rest: str) -> str:
    return f"[66021.114092] NVRM: Xid ({BUS}): {number}, {rest}\n"


def of(pid: int, name: str, number: int = 31) -> str:
    return kernel(number, f"pid={pid}, name={name}, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS")


# ---- what NVML reports


@pytest.mark.parametrize("number", BOARD)
def test_a_broken_board_is_the_cause_of_a_death_without_a_word(number: int) -> None:
    verdict = died(xid(number))
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("board", "stop", 69)
    assert f"hardware fault of the GPU while serving: NVML: Xid ({BUS}): {number} on GPU 2" in verdict.reason
    assert verdict.evidence[0].text == f"NVML: Xid ({BUS}): {number} on GPU 2"


def test_a_gpu_that_is_gone_is_a_broken_board() -> None:
    assert (died(xid(None)).fault, died(GpuEvent(None)).fault) == ("board", "board")


@pytest.mark.parametrize(("number", "fault"), KERNEL.items())
def test_a_fault_of_a_kernel_is_the_cause_of_a_death_without_a_word(number: int, fault: str) -> None:
    verdict = died(xid(number))
    assert (verdict.fault, verdict.action) == (fault, "retry-safer")
    assert verdict.reason.endswith(f"Xid ({BUS}): {number} on GPU 2")


@pytest.mark.parametrize("number", [45, 63, 92, 8, 137])
def test_other_xids_are_the_cause_of_nothing(number: int) -> None:
    assert died(xid(number)).fault == "unknown"


@pytest.mark.parametrize(("at_s", "counts"), [(39.0, False), (41.0, True), (DIED_AT_S, True), (DIED_AT_S + 1, False)])
def test_a_fault_of_a_kernel_counts_for_a_death_soon_after_it(at_s: float, counts: bool) -> None:
    """When one rank dies, others may reach for memory that is gone with it."""
    assert (died(xid(31, at_s)).fault == "illegal-memory-access") is counts


@pytest.mark.parametrize(
    ("at_s", "counts"), [(DIED_AT_S - 600, True), (DIED_AT_S - 1000, False), (DIED_AT_S + 2, True)]
)
def test_a_broken_board_counts_for_as_long_as_ranks_may_wait_for_it(at_s: float, counts: bool) -> None:
    assert (died(xid(79, at_s)).fault == "board") is counts


def test_an_answer_after_it_clears_a_broken_board() -> None:
    scan = Scan(SIGNATURES)
    scan.ready()
    scan.gpu_event(xid(94, 20.0))
    scan.settled(25.0)
    assert judge(replace(SILENT, evidence=scan.evidence)).fault == "unknown"
    assert not any(line.arms for number in KERNEL for line in scan.gpu_event(xid(number)))
    assert all(line.arms for line in scan.gpu_event(xid(94)))


def test_nothing_is_made_of_a_server_that_has_not_ended() -> None:
    alive = Observations(None, phase="serving", was_ready=True, ended_at_s=DIED_AT_S)
    assert died(xid(31), seen=alive).fault == "none"


def test_an_engine_that_aborts_after_a_fault_of_a_kernel_died_of_that() -> None:
    ends = (ProcessEnd("VLLM::EngineCore", 4242, -6, DIED_AT_S),)
    assert died(xid(31), seen=replace(SILENT, ends=ends)).fault == "illegal-memory-access"


@pytest.mark.parametrize("signal", [-11, -4])
def test_a_fault_of_the_cpu_speaks_for_itself(signal: int) -> None:
    ends = (ProcessEnd("VLLM::EngineCore", 4242, signal, DIED_AT_S),)
    assert died(xid(31), seen=replace(SILENT, ends=ends)).fault == "engine-signal"


def test_a_line_of_vllm_tells_better_than_an_xid_what_the_kernel_did() -> None:
    verdict = died(xid(31), FAULT)
    assert verdict.fault == "misaligned-address"
    assert f"NVML: Xid ({BUS}): 31 on GPU 2" in [line.text for line in verdict.evidence]


def test_a_broken_board_comes_before_whatever_vllm_says() -> None:
    assert died(FAULT, xid(79)).fault == "board"


def test_a_stop_that_was_asked_for_is_a_stop() -> None:
    assert died(xid(79), seen=replace(SILENT, stop_requested=True)).fault == "stopped"


def test_a_flood_of_xids_does_not_make_the_evidence_grow() -> None:
    scan = Scan(SIGNATURES)
    for _ in range(1000):
        scan.gpu_event(xid(13))
    assert len(scan.evidence) < 20


# ---- lines of the kernel


@pytest.mark.parametrize("name", ["train.py", "blender", "ollama", "sglang::sched"])
def test_a_fault_of_another_process_is_ignored(name: str) -> None:
    for line in (of(84797, name), of(84797, name).replace("84797", "'84797'")):
        verdict = died(line)
        assert verdict.fault == "unknown"
        assert not verdict.evidence


@pytest.mark.parametrize(
    "name", ["VLLM::EngineCor", "VLLM::Worker_TP", "vllm", "python3", "pt_main_thread", "ray::RayWorkerW", "<unknown>"]
)
def test_a_fault_of_a_process_that_may_be_ours_counts_whatever_its_number(name: str) -> None:
    """In a container it has another number than the kernel gives."""
    assert died(of(84797, name)).fault == "illegal-memory-access"


def test_a_process_of_ours_is_known_by_its_number_whatever_its_name() -> None:
    assert died(of(4242, "serve-7b")).fault == "illegal-memory-access"
    lived = replace(SILENT, ends=())
    assert died(of(4242, "serve-7b"), seen=lived).fault == "unknown"
    said = "(EngineCore_DP0 pid=4242) ERROR 07-19 08:20:16 [core.py:1] EngineCore encountered a fatal error.\n"
    assert died(said, of(4242, "serve-7b"), seen=lived).fault == "illegal-memory-access"


@pytest.mark.parametrize(
    "rest", ["pid=99, name=train.py, Contained", "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."]
)
def test_a_broken_board_counts_whoever_met_it(rest: str) -> None:
    assert died(kernel(94, rest)).fault == "board"


@pytest.mark.parametrize(
    ("rest", "fault"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "board"),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "board"),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "unknown"),
    ],
)
def test_a_board_that_has_recovered_is_not_broken(rest: str, fault: str) -> None:
    assert died(kernel(154, rest)).fault == fault


@pytest.mark.parametrize("number", LINKS)
def test_a_fault_of_nvlink_5_is_the_boards_where_the_kernel_calls_it_fatal(number: int) -> None:
    verdict = died(kernel(number, "RLW_RXPIPE Fatal XC0 i0 Link 08 (0x008a0485 0x80000000)"))
    assert (verdict.fault, verdict.action, verdict.exit_status) == ("board", "stop", 69)
    assert "NVLink fabric" in verdict.advice[0]
    assert died(kernel(number, "RLW_RXPIPE Nonfatal XC0 i0 Link 08 (0x008a0485)")).fault == "unknown"
    assert died(xid(number)).fault == "unknown"


def test_an_instance_of_a_divided_gpu_is_read_as_well() -> None:
    line = "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: SM (0x1). RST: No, D-RST: No\n"
    assert died(line).fault == "board"


# ---- what to do


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (79, "RESTART_BM"),
        (95, "RESET_GPU"),
        (119, "RESET_GPU"),
        (94, "RESTART_APP"),
        (74, "nvlink"),
        (48, "ECC"),
        (154, "154"),
    ],
)
def test_the_first_advice_on_a_broken_board_is_what_nvidia_asks_for(number: int, words: str) -> None:
    for verdict in (died(xid(number)), died(kernel(number, "GPU trouble"))):
        assert words in verdict.advice[0]
        assert verdict.links[0] == "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


@pytest.mark.parametrize("number", BOARD)
def test_every_xid_of_a_broken_board_has_advice_of_its_own(number: int) -> None:
    assert [entry.text for entry in ADVICE if number in entry.xids]


def test_a_broken_board_without_an_xid_has_the_general_advice() -> None:
    verdict = died("RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert verdict.fault == "board"
    assert len(verdict.advice) == 1


def test_the_table_in_the_documents_names_each_xid_and_what_it_is_read_as() -> None:
    told = {
        int(number): cells[1].split()[0].strip(",;")
        for cells in rows("how-it-decides.md", "Xid")
        for number in cells[0].split(",")
    }
    assert told == {**KERNEL, **dict.fromkeys(BOARD + LINKS, "board")}
