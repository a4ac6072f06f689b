"""What supervision costs those who are served: plain ``vllm serve`` and ``safe-vllm serve``, run after run in turn."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SUPPORT = Path(__file__).parent
sys.path[:0] = [str(SUPPORT), str(SUPPORT.parents[1] / "tests")]

import cpu_vllm  # noqa: E402  needs the path above
import request_load  # noqa: E402
import tiny_model  # noqa: E402
from real_launch import cpu_environment, serve_words  # noqa: E402
from request_load import Answered  # noqa: E402

from leftovers import adopt_orphans, below, end_all  # noqa: E402
from waiting import free_port  # noqa: E402

CLIENTS = 64
REQUESTS = 2560
TOKENS = 32
START_S = 300.0
STOP_S = 60.0
WORDS = ("--max-num-seqs", str(CLIENTS))


@dataclass(frozen=True)
class Contestant:
    """One way to serve."""

    name: str
    command: Sequence[str]
    ready: bytes
    """What it prints when it may be asked."""


@dataclass(frozen=True)
class Run:
    """What one run gave."""

    answered: Answered
    cpu_s: float
    """Spent on the load by all processes of the server and of safe-vllm. It depends less on who else is busy here."""


Figure = tuple[str, Callable[[Run], float]]
FIGURES: tuple[Figure, ...] = (
    ("requests/s", lambda run: len(run.answered.took_s) / run.answered.wall_s),
    ("tokens/s", lambda run: run.answered.tokens / run.answered.wall_s),
    ("p50 latency, ms", lambda run: run.answered.latency_s(0.50) * 1000),
    ("p95 latency, ms", lambda run: run.answered.latency_s(0.95) * 1000),
    ("CPU, ms/request", lambda run: run.cpu_s * 1000 / len(run.answered.took_s)),
)


@contextmanager
def serving(contestant: Contestant, model: Path, log: Path) -> Iterator[int]:
    """Serve the model while the block lasts, and yield the port."""
    port, older = free_port(), frozenset(below(os.getpid()))
    command = [*contestant.command, "serve", *serve_words(model, port), *WORDS]
    environment = {**os.environ, **cpu_environment()}
    with log.open("wb") as out:
        # A session of its own, as a service manager gives it; safe-vllm gives one to vLLM in any case.
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        wait_until_ready(process, contestant.ready, log)
        yield port
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)
    finally:
        end_all(os.getpid(), older)
        process.wait()


@contextmanager
def first_on_every_core() -> Iterator[str]:
    """Let the load generator have a core whenever it wants one while the block lasts; yield what came of it.

    vLLM's processes poll: they keep every core of a small machine busy. Linux shares the cores among sessions first
    (sched_autogroup), and a generator that comes late sends its requests one by one, which no batch is made of.
    """
    group = Path("/proc/self/autogroup")
    try:
        usual = group.read_text().split()[-1]
        group.write_text("-15")
    except (OSError, IndexError) as error:
        yield f"the load generator competes with the server for the cores: {error}"
        return
    try:
        yield "the load generator comes first on every core"
    finally:
        group.write_text(usual)


def wait_until_ready(process: subprocess.Popen[bytes], ready: bytes, log: Path) -> None:
    """Wait until the server says that it is ready."""
    until = time.monotonic() + START_S
    while ready not in (said := log.read_bytes()):
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(
                f"bench-serving: the server did not come up; it said last:\n{said[-3000:].decode(errors='replace')}"
            )
        time.sleep(0.1)


def one_run(contestant: Contestant, model: Path, log: Path) -> Run:
    """Start a server, warm it up, and measure it."""
    with serving(contestant, model, log) as port:
        request_load.put_on(port, model, iter(range(4 * CLIENTS)), clients=CLIENTS, tokens=TOKENS)
        before_s = spent_s()
        answered = request_load.put_on(port, model, iter(range(REQUESTS)), clients=CLIENTS, tokens=TOKENS)
        return Run(answered, spent_s() - before_s)


def spent_s() -> float:
    """Return the CPU time that the living processes below us have used; nothing else runs below us."""
    stats = [Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split() for process in below(os.getpid())]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def contestants() -> tuple[Contestant, Contestant]:
    """Find both programs."""
    chosen = os.environ.get("SAFE_VLLM_E2E_VLLM") or cpu_vllm.on_path()
    vllm = str(chosen or sys.exit("bench-serving: no CPU build of vllm on PATH; scripts/support/cpu_vllm.py makes one"))
    beside = Path(sys.executable).with_name("safe-vllm")
    found = str(beside) if beside.exists() else shutil.which("safe-vllm")
    safe_vllm = found or sys.exit("bench-serving: no safe-vllm found beside this Python or on PATH")
    plain = Contestant("plain vllm serve", (vllm,), b"Application startup complete.")
    return plain, Contestant("safe-vllm serve", (safe_vllm, "--vllm", vllm), b"safe-vllm: ready after ")


def row(name: str, cells: Sequence[str]) -> str:
    """Return one line of a table."""
    return f"  {name:26}" + "".join(f"{cell:>22}" for cell in cells)


def summary(figures: Sequence[float]) -> str:
    """Return the median and the spread."""
    median, least, most = (
        f"{figure:.{0 if figure >= 100 else 1}f}" for figure in (statistics.median(figures), min(figures), max(figures))
    )
    return f"{median} ({least}–{most})"


def measure(runs: int) -> dict[str, list[Run]]:
    """Run both in turn, telling every run, until all are done or we are told to stop."""
    taken: dict[str, list[Run]] = {contestant.name: [] for contestant in contestants()}
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory() as place:
        model = Path(place) / "tiny"
        tiny_model.write_model(model)
        for contestant in contestants() * runs:
            run = one_run(contestant, model, Path(place) / "log")
            taken[contestant.name].append(run)
            print(row(contestant.name, [f"{figure(run):.1f}" for _, figure in FIGURES]), flush=True)
    return taken


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = [name for name, _ in FIGURES]
    print(f"{CLIENTS} clients, {REQUESTS} completions of {TOKENS} tokens in a run, {runs} runs each in turn")
    with first_on_every_core() as said:
        print(said)
        print(row("every run", names), flush=True)
        taken = measure(runs)
    print(row("median (least–most)", names))
    for name, each in taken.items():
        if each:
            print(row(f"{name}, {len(each)} runs", [summary([*map(figure, each)]) for _, figure in FIGURES]))


if __name__ == "__main__":
    main()
