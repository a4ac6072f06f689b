"""Starts ``safe-vllm`` with a real vLLM on the CPU, and sees what comes of it. Waits on conditions, with a deadline."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leftovers import Process, adopt_orphans, below, end_all
from waiting import free_port

FAULT_PLUGIN = Path(__file__).with_name("fault_plugin")
START_S = 600.0
"""For what may hold several starts of vLLM. Nothing is asserted about how long it really takes."""
STOP_S = 120.0
EXPERT_PARALLEL = ("--tensor-parallel-size", "2", "--enable-expert-parallel")

Event = dict[str, Any]


class NotAsTold(AssertionError):
    """The launch did not do what it should have; the message says what was waited for."""


def fault(**description: object) -> dict[str, str]:
    """Return the variables that inject a fault; the keys are explained in the plugin."""
    return {"PYTHONPATH": str(FAULT_PLUGIN), "SAFE_VLLM_FAULT": json.dumps(description)}


def cpu_environment() -> dict[str, str]:
    """Return what a small vLLM on the CPU needs: little memory, one core for each of two workers, nothing online."""
    cores = sorted(os.sched_getaffinity(0))
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"{cores[0]}|{cores[min(1, len(cores) - 1)]}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def serve_words(model: Path, port: int) -> list[str]:
    """Return what follows ``serve`` for the tiny model."""
    limits = ["--max-model-len", "256", "--max-num-batched-tokens", "256", "--max-num-seqs", "8"]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    return [str(model), "--load-format", "dummy", *limits, "--enforce-eager", *where]


@dataclass(repr=False)
class RealLaunch:
    """One ``safe-vllm serve`` under way, in a session of its own."""

    process: subprocess.Popen[bytes]
    command: Sequence[str]
    model: Path
    port: int
    place: Path
    """Where its output and its events are."""
    older: frozenset[Process]
    """What ran below us before it was started."""
    meanwhile: Callable[[RealLaunch], None] = lambda _: None
    """Called again and again while waiting."""

    def wait_for(self, what: str, condition: Callable[[], object], deadline_s: float = START_S) -> None:
        """Wait until the condition holds, the deadline comes, or safe-vllm has ended."""
        until = time.monotonic() + deadline_s
        while not condition():
            self.meanwhile(self)
            if self.process.poll() is not None and not condition():
                raise NotAsTold(f"safe-vllm ended with status {self.process.returncode} while waiting for: {what}")
            if time.monotonic() > until:
                raise NotAsTold(f"waited {deadline_s:.0f} s in vain for: {what}")
            time.sleep(0.05)
        self.meanwhile(self)

    def wait_until_ready(self, count: int = 1) -> Event:
        """Wait for our line which says that the server answers, the ``count``th, and return its event."""
        self.wait_for("ready", lambda: self.ours().count("safe-vllm: ready after ") >= count)
        self.wait_for("the event ready", lambda: len(self.events("ready")) >= count)
        return self.events("ready")[count - 1]

    def complete(self, prompt: str = "Once upon a time") -> str:
        """Return the server's answer to a real request."""
        request = {"model": str(self.model), "prompt": prompt, "max_tokens": 8, "ignore_eos": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STOP_S)
        try:
            connection.request("POST", "/v1/completions", json.dumps(request), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise NotAsTold(f"a completion was not answered: {error!r}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise NotAsTold(f"a completion was answered with {answer.status}: {body[:300]!r}")
        return str(json.loads(body)["choices"][0]["text"])

    def let_pass(self, seconds: float) -> None:
        """Let time pass: what must not happen offers no condition to wait for."""
        until = time.monotonic() + seconds
        self.wait_for("time to pass", lambda: time.monotonic() > until)

    def finish(self, deadline_s: float = START_S) -> int:
        """Wait for the end and return the status; a signal is a negative number."""
        self.wait_for("the end", lambda: self.process.poll() is not None, deadline_s)
        return self.process.returncode

    def stop(self) -> int:
        """Ask for the end as an operator does, and return the status."""
        self.process.send_signal(signal.SIGTERM)
        return self.finish(STOP_S)

    def survivors(self) -> list[str]:
        """Return the command lines of what was started for this launch and still runs, safe-vllm aside."""
        return [str(left) for left in below(os.getpid(), self.older) if left.pid != self.process.pid]

    def pids(self, title: str) -> list[int]:
        """Return vLLM's processes whose title begins so."""
        return [left.pid for left in below(os.getpid(), self.older) if f" {title}" in str(left)]

    def events(self, name: str | None = None) -> list[Event]:
        """Return the events so far, all of them or those of one name."""
        path = self.place / "events.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [event for event in map(json.loads, lines) if name in (None, event["event"])]

    def rungs(self) -> list[str]:
        """Return the rung of every attempt, in order."""
        return [event["rung"] for event in self.events("attempt-started")]

    def output(self) -> str:
        """Return what came out so far, on both streams."""
        return "".join((self.place / name).read_text(errors="replace") for name in ("stdout", "stderr"))

    def ours(self) -> str:
        """Return our own lines."""
        text = (self.place / "stderr").read_text(errors="replace")
        return "".join(re.findall(r"^safe-vllm: [^\n]*\n", text, re.MULTILINE))


@contextmanager
def launched(
    safe_vllm: Path,
    vllm: Path,
    model: Path,
    place: Path,
    words: Sequence[str] = (),
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    meanwhile: Callable[[RealLaunch], None] = lambda _: None,
) -> Iterator[RealLaunch]:
    """Start ``safe-vllm OPTIONS serve MODEL … WORDS``; when the block is left, nothing of it runs any more."""
    adopt_orphans()
    place.mkdir(parents=True)
    port, older = free_port(), frozenset(below(os.getpid()))
    ours = ["--events", str(place / "events.jsonl"), "--vllm", str(vllm), *options]
    command = [str(safe_vllm), *ours, "serve", *serve_words(model, port), *words]
    with (place / "stdout").open("wb") as stdout, (place / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            command,
            env={**os.environ, **cpu_environment(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        yield RealLaunch(process, command, model, port, place, older, meanwhile)
    finally:
        end_all(os.getpid(), older)
        process.wait()
