"""What only safe-vllm does: how long it takes to look at a machine, and to read floods of one kind of line."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench_measure import Settings, relayed_s
from bench_output import FLOODS, flood
from bench_scene import plain_environment
from bench_systems import OURS


def beginnings(settings: Settings, place: Path) -> dict[str, float]:
    """Return how many milliseconds it takes to say or start something, with what was read before and without."""
    witness = place / "vllm"
    witness.write_text(f"#!{settings.interpreter}\nprint(1, flush=True)\n")
    witness.chmod(0o755)
    cache = place / "cache"
    environment = {**plain_environment(place), "XDG_CACHE_HOME": str(cache)}
    options = (OURS.path() or "", "--max-attempts", "1", "--no-canary", "--vllm", str(witness))
    runs = 2 * settings.runs + 1
    click = (sys.executable, "-c", "import click; print(1, flush=True)")
    python = _until_median_ms((sys.executable, "-c", "print(1, flush=True)"), environment, runs)
    return {
        "bare Python": python,
        "import click": _until_median_ms(click, environment, runs),
        "plan, first time": _until_median_ms((*options, "plan", "m"), environment, runs, cache),
        "plan, cached": _until_median_ms((*options, "plan", "m"), environment, runs),
        "serve to exec, first time": _until_median_ms((*options, "serve", "m"), environment, runs, cache) - python,
        "serve to exec, cached": _until_median_ms((*options, "serve", "m"), environment, runs) - python,
    }


def _until_median_ms(
    command: Sequence[str], environment: Mapping[str, str], runs: int, forget: Path | None = None
) -> float:
    """Return the median; ``forget`` is removed before each run."""
    taken = []
    for _ in range(runs):
        if forget:
            shutil.rmtree(forget, ignore_errors=True)
        taken.append(_until_first_byte_s(command, environment))
    return statistics.median(taken) * 1000


def _until_first_byte_s(command: Sequence[str], environment: Mapping[str, str]) -> float:
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 1)
    taken_s = time.monotonic() - started
    process.communicate()
    return taken_s


def floods(settings: Settings, place: Path) -> dict[str, float]:
    """Return how many megabytes of each kind of line pass in a second, a tenth of the ordinary output's size."""
    log = place / "flood"
    rates = {}
    for name, kind in FLOODS.items():
        size = flood(log, max(1, settings.megabytes // 10), kind)
        rates[name] = size / 1e6 / statistics.median(relayed_s(OURS, log) for _ in range(settings.runs))
    return rates
