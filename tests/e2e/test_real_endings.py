"""However a launch of a real vLLM ends, nothing of it is left; a process that dies is named, and replaced (P8–P10)."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from real_launch import STOP_S, NotAsTold, RealLaunch
from starter import Starter, assert_it_stops_cleanly

from leftovers import Process, below

pytestmark = pytest.mark.e2e
Moment = Callable[[RealLaunch], object]
AT_ONCE = ("--backoff", "0")
PATIENT = ("--stop-timeout", "600")
"""So long that no SIGKILL of ours can hide a stop that vLLM did not heed."""


def said(words: str) -> Moment:
    """Return the moment at which vLLM says these words."""
    return lambda launch: words in launch.output()


def there(words: str) -> Moment:
    """Return the moment at which a process is there with these words in its title or command line."""
    return lambda launch: launch.pids(words)


def maps(library: str) -> Moment:
    """Return the moment at which a process of vLLM's has loaded this library."""
    return lambda launch: [process for process in tree(launch) if library in mapped(process.pid)]


def mapped(pid: int) -> str:
    """Return which files a process has in its memory."""
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def a_worker_is_born(launch: RealLaunch) -> bool:
    """Tell whether the engine core runs, and has a child that does not call itself a worker yet."""
    return bool(launch.pids("VLLM::EngineCore") and launch.pids("-B -c from multiprocessing.spawn"))


# In the order in which they come. The signal is sent some milliseconds later, so each is amidst of what began there.
MOMENTS: dict[str, Moment] = {
    "the first process is about to be started": lambda launch: launch.events("attempt-started"),
    "the first process loads PyTorch": maps("libtorch_cpu"),
    "the model's class is looked at in a process of its own": there("-m vllm.model_executor.models.registry"),
    "the engine core is born": there("-B -c from multiprocessing.spawn"),
    "a worker is born": a_worker_is_born,
    "the worker loads the model": said("Starting to load model"),
    "the worker warms up": said("KV cache size: "),
    "the server is set up": said("Starting vLLM server on "),
    "the first requests are under way": said('"GET /health HTTP/1.1" 200'),
    "it is ready": lambda launch: launch.events("ready"),
}


def boot_time() -> float:
    """Return the seconds since the machine was started, the clock of a process's birth."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def tree(launch: RealLaunch) -> list[Process]:
    """Return what runs of vLLM, its first process first: everything below the guardian."""
    return [process for guardian in launch.pids("guardian of process") for process in below(guardian)]


def when_all_have_ended(processes: Sequence[Process], deed: Callable[[], object]) -> float:
    """Do the deed, wait until the last one has ended, and return when that was, on the clock of ``boot_time``."""
    with ExitStack() as stack:
        poller, left = select.poll(), set[int]()
        for process in processes:
            descriptor = os.pidfd_open(process.pid)
            stack.callback(os.close, descriptor)
            poller.register(descriptor, select.POLLIN)
            left.add(descriptor)
        deed()
        until = time.monotonic() + STOP_S
        while left:
            if time.monotonic() > until:
                raise NotAsTold(f"still there: {[str(process) for process in processes if process.is_alive]}")
            for descriptor, _ in poller.poll(1000):
                poller.unregister(descriptor)
                left.remove(descriptor)
        return boot_time()


def wait_until_nothing_is_left(launch: RealLaunch) -> None:
    """Wait until the launch, whose safe-vllm was killed, has no process any more."""
    until = time.monotonic() + STOP_S
    while left := launch.survivors():
        if time.monotonic() > until:
            raise NotAsTold(f"still there after {STOP_S:.0f} s: {left}")
        time.sleep(0.02)


def assert_a_second_attempt_serves(launch: RealLaunch, rungs: Sequence[str]) -> None:
    """One replacement was started, on this rung, and it answers."""
    assert launch.wait_until_ready(2)["attempt"] == 2
    assert launch.complete()
    assert launch.rungs() == list(rungs)


@pytest.mark.parametrize("moment", MOMENTS)
def test_p9_a_stop_ends_with_status_0_and_leaves_nothing_when(moment: str, start: Starter) -> None:
    launch = start(options=PATIENT)
    launch.wait_for(moment, lambda: MOMENTS[moment](launch))
    running = [str(process) for process in below(os.getpid(), launch.older)]
    asked_at = time.monotonic()
    launch.process.send_signal(signal.SIGTERM)
    launch.process.wait(STOP_S)
    print(f"\nfigure: stop when {moment}: {len(running)} processes gone in {time.monotonic() - asked_at:.2f} s")
    assert launch.process.returncode == 0
    assert launch.survivors() == []
    (ended,) = launch.events("launch-ended")
    assert (ended["status"], len(launch.events("attempt-started"))) == (0, 1)
    assert ended["reason"].startswith("asked to stop")
    # Nothing was ready that had not been before the stop.
    assert len(launch.events("ready")) == (moment == "it is ready")


def test_p10_vllm_goes_when_safe_vllm_is_killed_while_it_serves(start: Starter) -> None:
    launch = start()
    launch.wait_until_ready()
    assert launch.pids("VLLM::Worker")
    killed_at = time.monotonic()
    launch.process.kill()
    wait_until_nothing_is_left(launch)
    print(f"\nfigure: safe-vllm killed: nothing left after {time.monotonic() - killed_at:.2f} s")
    assert launch.process.wait() == -signal.SIGKILL


def test_p10_vllm_goes_when_its_guardian_is_killed_and_the_next_attempt_serves(start: Starter) -> None:
    launch = start(options=AT_ONCE)
    launch.wait_until_ready()
    old, (guardian,) = tree(launch), launch.pids("guardian of process")
    assert len(old) > 2
    killed_at = boot_time()
    gone_at = when_all_have_ended(old, lambda: os.kill(guardian, signal.SIGKILL))
    print(f"\nfigure: guardian killed: vLLM gone after {gone_at - killed_at:.2f} s")
    assert_a_second_attempt_serves(launch, ["as-asked", "as-asked"])
    ended = launch.events("attempt-ended")[0]
    assert (ended["action"], ended["phase"], ended["status"]) == ("retry-same", "serving", None)
    assert "the guardian of this attempt was killed" in launch.ours()
    assert_it_stops_cleanly(launch)


@pytest.mark.parametrize(
    ("title", "words"),
    [("VLLM::EngineCore", ()), ("VLLM::Worker", ()), ("VLLM::Worker", ("--tensor-parallel-size", "2"))],
    ids=["the engine core", "the only worker", "one of two workers"],
)
def test_p14_a_process_killed_by_sigsegv_is_named_with_its_signal_and_replaced(
    start: Starter, title: str, words: tuple[str, ...]
) -> None:
    launch = start(*words, options=AT_ONCE)
    launch.wait_until_ready()
    old, victim = tree(launch), launch.pids(title)[-1]
    assert len(launch.pids(title)) == 1 + bool(words)
    killed_at = boot_time()
    gone_at = when_all_have_ended(old, lambda: os.kill(victim, signal.SIGSEGV))
    launch.wait_for("the replacement", lambda: tree(launch))
    replaced_at = float(tree(launch)[0].born) / os.sysconf("SC_CLK_TCK")
    print(f"\nfigure: SIGSEGV of {title}: tree gone after {gone_at - killed_at:.2f} s, ", end="")
    print(f"replacement exec'd {1000 * (replaced_at - gone_at):.0f} ms later")
    assert_a_second_attempt_serves(launch, ["as-asked", "no-autotune"])
    ended = launch.events("attempt-ended")[0]
    assert (ended["fault"], ended["action"], ended["phase"]) == ("engine-signal", "retry-safer", "serving")
    assert -signal.SIGSEGV in [end["status"] for end in ended["ended"] if end["title"].startswith(title)]
    assert [line for line in launch.ours().splitlines() if title in line and "SIGSEGV" in line]
    assert_it_stops_cleanly(launch)
