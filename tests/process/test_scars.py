"""What once went wrong, each with the scene in which it did."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from launch import Launch, Stage
from scenes import (
    DEAF,
    HOLD,
    argparse_error,
    engine,
    fork,
    ima_at_startup,
    leave,
    mark,
    on_signal,
    serve,
    serve_ok,
    wait_for_file,
    write,
)

from leftovers import Process, below


def test_p7_where_both_streams_are_one_our_line_still_starts_on_a_new_line(stage: Stage) -> None:
    reader, writer = os.pipe()
    run = stage.start([write("stdout", b"Loading  50%"), leave(2)], stdout=writer, stderr=writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert b"\nLoading  50%\nsafe-vllm: attempt 1 " in file.read()
    assert run.finish() == 2


@pytest.mark.parametrize(
    "line", ["PermissionError: [Errno 13] Permission denied: 'usage_stats.json'", "Max retries exceeded with url: /x"]
)
def test_p15_a_line_that_nobody_dies_of_does_not_end_a_server_that_loads_in_silence(stage: Stage, line: str) -> None:
    go = stage.root / "go"
    steps = [write("stderr", f"{line}\n"), mark("said"), wait_for_file(go), engine(), serve()]
    run = stage.start(steps, options=("--fault-grace", "0.1"))
    run.wait_for_mark("said")
    run.let_pass(0.5)
    go.touch()
    run.wait_until_ready("as-asked")
    assert run.stop() == 0
    assert len(run.attempts()) == 1


def test_p9_without_a_back_off_a_stop_is_still_seen_before_the_next_attempt(stage: Stage) -> None:
    last = [fork("parent", HOLD, ignores=DEAF), *ima_at_startup()]
    run = stage.start(last, serve_ok(), options=("--backoff", "0"))
    run.wait_for("the fault", lambda: "illegal memory access" in run.stderr_text())
    run.signal(signal.SIGTERM)
    assert run.finish() == 0
    assert len(run.attempts()) == 1


SLOW_PROFILE = ("bash", "-c", 'SAFE_VLLM_PROFILE=<(exec cat "$SLOW") exec "$0" "$@"')
"""Starts with a profile that is read from a pipe, so that a test says how long that takes."""


def slow_profile(stage: Stage) -> tuple[Path, dict[str, str]]:
    """Return a FIFO that feeds the pipe, and the variable that names it."""
    fifo = stage.root / "slow"
    os.mkfifo(fifo)
    return fifo, {"SLOW": str(fifo)}


def wait_until_reading(run: Launch, pid: int) -> None:
    """Wait until the profile's pipe, which the shell handed over, has been opened once more."""

    def is_reading() -> bool:
        with suppress(OSError):  # a descriptor that is just being closed
            links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
            is_ours = b"safe-vllm" in Path(f"/proc/{pid}/cmdline").read_bytes()
            return is_ours and any(links.count(link) > 1 for link in links if link.startswith("pipe:"))
        return False

    run.wait_for("the profile being read", is_reading)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_p9_a_stop_while_the_plan_is_made_starts_nothing(stage: Stage, number: signal.Signals) -> None:
    fifo, environment = slow_profile(stage)
    run = stage.start(serve_ok(), prefix=SLOW_PROFILE, environment=environment)
    with fifo.open("w") as file:
        wait_until_reading(run, run.process.pid)
        run.signal(number)
        file.write("name: slow\ndescription: slow\nladder:\n  - rung: as-asked\n")
    assert run.finish() == 0
    assert run.attempts() == []


def test_a_key_with_a_newline_is_used_and_never_shown(stage: Stage) -> None:
    run = stage.start(serve_ok(), environment={"VLLM_API_KEY": "sk-secret\n"})
    run.wait_until_ready()
    assert run.stop() == 0
    assert "sk-secret" not in run.stderr_text()


def test_p12_without_a_canary_no_real_request_is_ever_sent(stage: Stage) -> None:
    run = stage.start(serve_ok(), options=("--no-canary", "--fault-grace", "0.1"))
    run.wait_until_ready()
    run.play(write("stderr", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"))
    run.wait_for("a second look", lambda: len([e for e in run.entries("request") if e["path"] == "/health"]) > 1)
    assert run.stop() == 0
    assert not [entry for entry in run.entries("request") if entry["path"] == "/v1/completions"]
    assert len(run.attempts()) == 1


def test_a_member_without_an_address_is_not_ended_for_not_being_ready(stage: Stage) -> None:
    words = ["tiny", "--headless"]
    run = stage.start([engine(), mark("works"), HOLD], words=words, options=("--start-timeout", "0.1"))
    run.wait_for_mark("works")
    run.let_pass(0.5)
    assert run.process.poll() is None
    assert run.stop() == 0
    assert len(run.attempts()) == 1


def test_p10_who_left_the_session_and_lost_his_parent_does_not_outlive_a_killed_guardian(stage: Stage) -> None:
    run = stage.start([fork("double", HOLD, leaves_session=True, double=True, ignores=DEAF), *serve_ok()], serve_ok())
    run.wait_until_ready()
    first = [Process(entry["pid"], entry["born"]) for entry in (*run.attempts(), *run.entries("process"))]
    os.kill(run.attempts()[0]["parent"], signal.SIGKILL)
    run.wait_for_event("ready", 2)
    assert not any(process.is_alive for process in first)
    assert run.stop() == 0


def test_p8_a_reader_that_stands_still_does_not_hold_up_the_next_attempt(stage: Stage) -> None:
    """P13, too."""
    reader, writer = os.pipe()
    run = stage.start([write("stdout", b"x" * 100_000), *ima_at_startup()], serve_ok(), stdout=writer)
    os.close(writer)
    run.wait_for_event("ready")
    assert len(run.attempts()) == 2
    with os.fdopen(reader, "rb") as file:
        assert file.read(100_000) == b"x" * 100_000
        assert run.stop() == 0


def test_p9_sigterm_stops_even_where_it_was_ignored_at_the_start(stage: Stage) -> None:
    run = stage.start(serve_ok(), prefix=("/bin/sh", "-c", 'trap "" TERM; exec "$0" "$@"'))
    run.wait_until_ready()
    assert run.stop() == 0


@pytest.mark.parametrize("name", ["SAFE_VLLM_VERSION", "SAFE_VLLM_HELP"])
def test_a_variable_that_an_image_may_set_for_itself_is_none_of_our_options(stage: Stage, name: str) -> None:
    run = stage.start(argparse_error(), environment={name: "1"})
    assert run.finish() == 2
    assert len(run.attempts()) == 1


def test_a_helpless_command_line_shows_the_help_as_it_is(stage: Stage) -> None:
    run = stage.start(words=[], subcommand=(), options=())
    assert run.finish() == 2
    assert run.stderr_text().startswith("Usage: safe-vllm ")


def test_p9_the_stop_timeout_is_raised_above_the_time_that_vllm_gives_its_requests(stage: Stage) -> None:
    go = stage.root / "go"
    drains = on_signal("SIGTERM", steps=[mark("draining"), wait_for_file(go), leave(0)])
    words = ["tiny", "--headless", "--shutdown-timeout", "60"]
    run = stage.start([drains, mark("works"), HOLD], words=words, options=("--stop-timeout", "0.1"))
    run.wait_for_mark("works")
    run.signal(signal.SIGTERM)
    run.wait_for_mark("draining")
    run.let_pass(0.5)
    assert run.process.poll() is None
    go.touch()
    assert run.finish() == 0
    assert "vLLM has 75 s to end" in run.ours()


def test_p8_more_processes_than_descriptors_are_all_ended(stage: Stage) -> None:
    crowd = [fork(f"one-of-{place}", HOLD) for place in range(60)]
    run = stage.start([*crowd, *serve_ok()], prefix=("/bin/sh", "-c", 'ulimit -Sn 40; exec "$0" "$@"'))
    run.wait_until_ready()
    assert run.stop() == 0
    assert run.survivors() == []


def test_a_stop_timeout_without_an_end_is_one(stage: Stage) -> None:
    run = stage.start(serve_ok(), options=("--stop-timeout", "inf"))
    run.wait_until_ready()
    assert run.stop() == 0


def test_a_duration_that_is_no_number_is_refused(stage: Stage) -> None:
    run = stage.start(serve_ok(), options=("--stop-timeout", "nan"))
    assert run.finish() == 2
    assert run.attempts() == []


def test_a_title_cannot_speak_for_the_guardian(stage: Stage) -> None:
    run = stage.start([fork("VLLM::E\nleft 0\nx", mark("forged"), leave(3)), engine(), serve(notices=False)])
    run.wait_until_ready("as-asked")
    run.wait_for_mark("forged")
    assert run.stop() == 0
    assert len(run.attempts()) == 1


def test_switched_off_it_does_not_mind_a_bad_variable_of_its_own(stage: Stage) -> None:
    variables = {"SAFE_VLLM_OFF": "true", "SAFE_VLLM_STOP_TIMEOUT": "soon"}
    run = stage.start([leave(7)], options=(), environment=variables)
    assert run.finish() == 7
    assert run.attempts()[0]["pid"] == run.process.pid


IN_A_CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


def test_p11_as_pid_1_a_stop_that_comes_before_anything_else_is_not_lost(stage: Stage) -> None:
    fifo, environment = slow_profile(stage)
    run = stage.start(serve_ok(), prefix=(*IN_A_CONTAINER, *SLOW_PROFILE), environment=environment)
    with fifo.open("w") as file:
        run.wait_for("the launcher", lambda: any("bin/safe-vllm" in str(p) for p in below(os.getpid(), run.older)))
        (first,) = [process for process in below(os.getpid(), run.older) if "bin/safe-vllm" in str(process)][-1:]
        wait_until_reading(run, first.pid)
        os.kill(first.pid, signal.SIGTERM)
        file.write("name: slow\ndescription: slow\nladder:\n  - rung: as-asked\n")
    assert run.finish() == 0
    assert run.attempts() == []


def test_p11_as_pid_1_it_steps_down_reaps_and_stops(stage: Stage) -> None:
    orphan = fork("parent", fork("orphan", leave(0), double=True, leaves_session=True), leave(0))
    run = stage.start([orphan, *ima_at_startup()], serve_ok(), prefix=IN_A_CONTAINER)
    run.wait_until_ready()
    assert not [process for process in below(os.getpid(), run.older) if "defunct" in str(process)]
    (first,) = [process for process in below(os.getpid(), run.older) if "bin/safe-vllm" in str(process)][-1:]
    os.kill(first.pid, signal.SIGTERM)
    assert run.finish() == 0
    assert run.survivors() == []


def test_p8_where_the_kernel_hides_its_figures_processes_are_followed_all_the_same(stage: Stage) -> None:
    hidden = 'mount -t proc -o subset=pid proc /proc; exec "$0" "$@"'
    prefix = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "/bin/sh", "-euc", hidden)
    run = stage.start(serve_ok(), prefix=prefix)
    run.wait_until_ready("as-asked")
    (first,) = [process for process in below(os.getpid(), run.older) if "bin/safe-vllm" in str(process)][-1:]
    os.kill(first.pid, signal.SIGTERM)
    assert run.finish() == 0
