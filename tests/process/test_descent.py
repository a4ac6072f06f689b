"""DESIGN 4, 6 and 8: which rung follows which end, what changes, and what the launch ends with."""

from __future__ import annotations

import re

import pytest
from launch import Launch, Stage
from scenes import (
    BAD_CONFIGURATION,
    ILLEGAL_ACCESS,
    INITIALISATION_FAILED,
    MISSING_MODEL,
    PORT_IN_USE,
    REFUSED_BACKEND,
    TOO_LITTLE_MEMORY,
    Scene,
    argparse_error,
    die_at_startup,
    die_first_inference,
    fail,
    ima_at_startup,
    serve_ok,
)

from waiting import free_port

KERNEL_FAULTS = {
    "illegal-memory-access": ILLEGAL_ACCESS,
    "illegal-instruction": "CUDA error: an illegal instruction was encountered",
    "misaligned-address": "CUDA error: misaligned address",
    "launch-failure": "CUDA error: unspecified launch failure",
    "device-assert": "CUDA error: device-side assert triggered",
}
CORE_DUMP = (
    "[06:43:15.209195] coredump: Detected an exception of type CUDBG_EXCEPTION_WARP_ILLEGAL_ADDRESS (14)\n"
    "[06:43:15.209201] coredump:   - Device: 0\n"
    "[06:43:16.119195] coredump: Writing ELF file to /tmp/cuda_coredump_host.1.2"
)
AUTOTUNE_OFF = "--no-enable-flashinfer-autotune"
STRAIGHT_DOWN = ("--backoff", "0.01", "--pin", "caches")
"""Without the attempt with fresh caches, which the same fault at two rungs calls for."""


def refused(text: str = REFUSED_BACKEND) -> Scene:
    """Refuse to start for a reason that the settings are to blame for."""
    return fail(text, INITIALISATION_FAILED.rstrip("\n"))


def added(run: Launch, attempt: int) -> list[str]:
    """Return the words that an attempt has and the first one has not."""
    first = run.attempts()[0]["argv"]
    return [word for word in run.attempts()[attempt - 1]["argv"] if word not in first]


def variables(run: Launch, attempt: int) -> dict[str, str]:
    """Return the environment of an attempt."""
    pairs = [pair.partition("=") for pair in run.attempts()[attempt - 1]["environ"]]
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("fault", KERNEL_FAULTS)
def test_a_kernel_fault_is_answered_by_turning_the_autotuner_off(stage: Stage, fault: str) -> None:
    run = stage.start(ima_at_startup(KERNEL_FAULTS[fault]), argparse_error())
    run.finish()
    assert run.rungs()[:2] == ["as-asked", "no-autotune"]
    assert added(run, 2) == [AUTOTUNE_OFF]
    ended = run.events("attempt-ended")[0]
    assert (ended["fault"], ended["action"], ended["status"]) == (fault, "retry-safer", 1)


def test_a_gpu_core_dump_is_a_kernel_fault(stage: Stage) -> None:
    run = stage.start(fail(CORE_DUMP, INITIALISATION_FAILED.rstrip("\n")), argparse_error())
    run.finish()
    assert run.events("attempt-ended")[0]["fault"] == "gpu-coredump"
    assert added(run, 2) == [AUTOTUNE_OFF]


@pytest.mark.parametrize("number", ["SIGSEGV", "SIGABRT", "SIGILL"])
def test_an_engine_killed_by_a_signal_at_start_is_a_kernel_fault(stage: Stage, number: str) -> None:
    run = stage.start(die_at_startup(number), argparse_error())
    run.finish()
    ended = run.events("attempt-ended")[0]
    assert (ended["fault"], ended["action"]) == ("engine-signal", "retry-safer")
    assert added(run, 2) == [AUTOTUNE_OFF]


def test_the_ladder_of_the_cpu_ends_with_70_when_every_rung_has_failed(stage: Stage) -> None:
    """The CPU has no Triton: its safe backend is what ``auto`` finds, in the operator's own spelling."""
    words = ["tiny", "--port", "1", "--moe_backend=triton"]
    run = stage.start(*[ima_at_startup()] * 3, words=words, options=("--profile", "cpu", *STRAIGHT_DOWN))
    assert run.finish() == 70
    assert run.rungs() == ["as-asked", "no-autotune", "triton"]
    assert run.attempts()[1]["argv"] == ["serve", *words, AUTOTUNE_OFF]
    assert run.attempts()[2]["argv"] == ["serve", *words[:3], "--moe_backend=auto", AUTOTUNE_OFF]
    assert run.survivors() == []


def test_a_rung_that_changes_nothing_is_no_rung(stage: Stage) -> None:
    words = ["tiny", "--port", "1", AUTOTUNE_OFF]
    run = stage.start(ima_at_startup(), words=words, options=("--profile", "cpu", "--backoff", "0.01"))
    assert run.finish() == 70
    assert run.rungs() == ["as-asked"]


def test_the_attempts_are_counted(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), ima_at_startup(), options=("--max-attempts", "2", "--backoff", "0"))
    assert run.finish() == 70
    assert len(run.attempts()) == 2


def test_expert_parallelism_is_lowered_at_last(stage: Stage) -> None:
    words = ["tiny", "--port", "1", "--tensor-parallel-size", "2"]
    scenes = [*[ima_at_startup()] * 2, argparse_error()]
    run = stage.start(*scenes, words=[*words, "--enable-expert-parallel"], options=STRAIGHT_DOWN)
    run.finish()
    assert run.rungs() == ["as-asked", "no-autotune", "no-expert-parallel"]
    assert run.attempts()[2]["argv"] == ["serve", *words, AUTOTUNE_OFF]


def test_a_fault_at_the_first_inference_ends_up_with_expert_parallelism_off(stage: Stage) -> None:
    """What real vLLM 0.32 does on a CPU, and what cures it."""
    words = ["tiny", "--host", "127.0.0.1", "--port", str(free_port()), "-tp=2", "--enable-expert-parallel"]
    run = stage.start(*[die_first_inference()] * 2, serve_ok(), words=words, options=STRAIGHT_DOWN)
    run.wait_until_ready("no-expert-parallel")
    assert [event["attempt"] for event in run.events("ready")] == [3]
    assert "--enable-expert-parallel" not in run.attempts()[2]["argv"]
    assert run.stop() == 0


def three_rungs() -> list[str]:
    """Return words that have a rung ``triton`` on a CPU too."""
    return ["tiny", "--host", "127.0.0.1", "--port", str(free_port()), "--moe-backend", "triton"]


RUNGS_OWN_FAULTS = {
    "backend": REFUSED_BACKEND,
    "backend-by-name": "ValueError: moe_backend='triton' is not supported for NvFP4 MoE. Expected one of ['marlin'].",
    "backend-unavailable": "ValueError: FlashInfer TRTLLM MoE backend is not available for this configuration.",
    "no-backend": "NotImplementedError: No Fp8 MoE backend supports the deployment configuration",
    "configuration": BAD_CONFIGURATION,
    "memory": TOO_LITTLE_MEMORY,
    "kv-cache": "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
}


@pytest.mark.parametrize("text", RUNGS_OWN_FAULTS)
def test_a_rungs_own_fault_skips_the_rung_and_costs_no_attempt(stage: Stage, text: str) -> None:
    scenes = [ima_at_startup(), refused(RUNGS_OWN_FAULTS[text]), serve_ok()]
    run = stage.start(*scenes, words=three_rungs(), options=("--max-attempts", "2", "--backoff", "0.01"))
    run.wait_until_ready("triton")
    assert run.rungs() == ["as-asked", "no-autotune", "triton"]
    assert run.stop() == 0


def test_a_rung_that_was_skipped_is_not_counted_when_a_later_one_fails(stage: Stage) -> None:
    words = [*three_rungs(), "--tensor-parallel-size", "2", "--enable-expert-parallel"]
    scenes = [ima_at_startup(), refused(), ima_at_startup(), serve_ok()]
    run = stage.start(*scenes, words=words, options=("--max-attempts", "3", *STRAIGHT_DOWN))
    run.wait_until_ready("no-expert-parallel")
    assert run.stop() == 0


def test_a_bad_argument_of_a_rungs_own_skips_the_rung(stage: Stage) -> None:
    """P5 should not let it come to this; a version that nobody knows may."""
    run = stage.start(ima_at_startup(), argparse_error(), serve_ok(), words=three_rungs())
    run.wait_until_ready("triton")
    assert run.stop() == 0


def test_a_refused_backend_is_skipped_at_the_first_rung_too_and_not_asked_for_again(stage: Stage) -> None:
    words = ["tiny", "--host", "127.0.0.1", "--port", str(free_port()), "--moe-backend", "flashinfer_trtllm"]
    run = stage.start(refused(), serve_ok(), words=words, options=("--max-attempts", "1"))
    run.wait_until_ready("no-autotune")
    assert run.attempts()[1]["argv"] == ["serve", *words[:-1], "auto", AUTOTUNE_OFF]
    assert run.stop() == 0


FINAL = {
    "argparse": (argparse_error(), 2, "unrecognized arguments: --bogus"),
    "port": (fail(PORT_IN_USE), 75, "Address already in use"),
    "model": (fail(MISSING_MODEL), 78, "Repo id must be in the form"),
    "memory": (refused(TOO_LITTLE_MEMORY), 78, "Free memory on device cuda:0"),
    "configuration": (fail(BAD_CONFIGURATION), 78, "data_parallel_size_local"),
    "shared-memory": (die_at_startup("SIGBUS"), 78, "/dev/shm"),
    "no-gpu": (fail("RuntimeError: No CUDA GPUs are available"), 78, "No CUDA GPUs are available"),
    "board": (fail("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"), 69, "ECC"),
}


@pytest.mark.parametrize("kind", FINAL)
def test_what_no_rung_can_help_ends_the_launch_with_its_status_and_the_reason(stage: Stage, kind: str) -> None:
    scene, status, words = FINAL[kind]
    run = stage.start(scene)
    assert run.finish() == status
    assert len(run.attempts()) == 1
    assert words in run.ours()
    assert run.events("launch-ended")[0]["status"] == status


@pytest.mark.parametrize("kind", ["port", "board"])
def test_what_no_rung_can_help_ends_the_launch_at_any_rung(stage: Stage, kind: str) -> None:
    scene, status, _ = FINAL[kind]
    run = stage.start(ima_at_startup(), scene)
    assert run.finish() == status
    assert len(run.attempts()) == 2


def test_the_block_at_a_step_quotes_the_root_line_and_tells_what_changes(stage: Stage) -> None:
    """P16: what follows from the fault is not the fault."""
    run = stage.start(ima_at_startup(), argparse_error())
    run.finish()
    block = run.ours().partition(" ended after ")[2]
    assert ILLEGAL_ACCESS in block
    assert "Engine core initialization failed" not in block
    assert re.search(rf"^safe-vllm: +\+ ?{AUTOTUNE_OFF}", run.ours(), re.MULTILINE)


CARD = {"FLASHINFER_DISABLE_MOE_AUTOTUNE": "1", "TRTLLM_MOE_MAX_WORKSPACE": "8192"}


@pytest.mark.parametrize("profile", ["b200", "gb200"])
def test_the_cards_variables_come_with_the_second_rung(stage: Stage, profile: str) -> None:
    """P6: they are set because the profile asks, and it is said that nobody reads them."""
    run = stage.start(ima_at_startup(), argparse_error(), options=("--profile", profile, "--backoff", "0.01"))
    run.finish()
    assert not set(CARD) & set(variables(run, 1))
    assert CARD.items() <= variables(run, 2).items()
    for name in CARD:
        assert re.search(rf"{name}.*not read", run.ours())


@pytest.mark.parametrize("profile", ["cpu", "default"])
def test_other_profiles_do_not_set_the_cards_variables(stage: Stage, profile: str) -> None:
    run = stage.start(ima_at_startup(), argparse_error(), options=("--profile", profile, "--backoff", "0.01"))
    run.finish()
    assert [set(CARD) & set(variables(run, attempt)) for attempt in (1, 2)] == [set(), set()]


def test_a_variable_that_the_operator_set_stays_as_it_is_at_the_first_rung(stage: Stage) -> None:
    mine = {"TRTLLM_MOE_MAX_WORKSPACE": "77", "CUDA_LIB_PATH": "/mine"}
    run = stage.start(argparse_error(), options=("--profile", "b200"), environment=mine)
    run.finish()
    assert mine.items() <= variables(run, 1).items()


def test_every_attempt_is_told_as_events(stage: Stage) -> None:
    run = stage.start(ima_at_startup(), serve_ok())
    run.wait_until_ready()
    assert run.stop() == 0
    told = [event["event"] for event in run.events()]
    expected = ["attempt-started", "attempt-ended", "step", "attempt-started", "ready", "attempt-ended", "launch-ended"]
    assert [name for name in told if name in expected] == expected
    times = [event["at_s"] for event in run.events()]
    assert times == sorted(times)
    assert [event["attempt"] for event in run.events("attempt-started")] == [1, 2]
    assert {"fault", "action", "phase", "reason", "status"} <= set(run.events("attempt-ended")[0])
    assert run.events("launch-ended")[0]["status"] == 0


def test_every_event_is_of_one_launch_and_the_first_says_what_is_run(stage: Stage) -> None:
    run = stage.start(argparse_error(), words=("tiny", "--port", str(free_port()), "--api-key", "geheim"))
    run.finish()
    events = run.events()
    assert {(event["v"], event["launcher_pid"]) for event in events} == {(1, run.process.pid)}
    assert len({event["launch"] for event in events}) == 1
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    started = events[0]
    assert (started["event"], started["entry"]) == ("launch-started", started["ladder"][0])
    assert started["argv"][1] == "serve" and started["argv"][-2:] == ["--api-key", "***"]
    assert set(started["versions"]) == {"vllm", "flashinfer", "torch"}
    assert "geheim" not in run.events_path.read_text()


def test_ready_is_said_in_one_line_with_the_rung(stage: Stage) -> None:
    run = stage.start(serve_ok())
    run.wait_until_ready()
    assert run.stop() == 0
    assert len(re.findall(r"^safe-vllm: ready after \d+ s at rung as-asked\b", run.stderr_text(), re.MULTILINE)) == 1


def test_below_a_refused_rung_its_own_change_is_not_made(stage: Stage) -> None:
    words = [*three_rungs(), "--tensor-parallel-size", "2", "--enable-expert-parallel"]
    scenes = [ima_at_startup(), ima_at_startup(), refused(), serve_ok()]
    run = stage.start(*scenes, words=words, options=STRAIGHT_DOWN)
    run.wait_until_ready("no-expert-parallel")
    tried = [attempt["argv"] for attempt in run.attempts()]
    assert [argv[argv.index("--moe-backend") + 1] for argv in tried] == ["triton", "triton", "auto", "triton"]
    assert run.stop() == 0


def test_refusals_after_a_fault_end_the_launch_with_70_and_the_fault(stage: Stage) -> None:
    scenes = [ima_at_startup(), refused(), refused()]
    run = stage.start(*scenes, words=three_rungs(), options=("--backoff", "0.01"))
    assert run.finish() == 70
    assert "illegal memory access" in run.events("launch-ended")[0]["reason"]
