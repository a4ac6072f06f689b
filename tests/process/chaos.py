"""Plays random scenes, and checks after each what must always hold.

Every scene has a number, and is drawn from it alone. To play one again: ``scripts/chaos 1 NUMBER``.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from chaos_act import draw
from chaos_check import troubles
from chaos_deeds import play
from chaos_play import begin
from launch import XDG, Stage, install

from leftovers import Process, adopt_orphans, end_all

PARALLEL = 2
"""A scene has a dozen processes at most."""


def trouble_with(number: int, root: Path, binaries: Path, older: frozenset[Process]) -> str:
    """Play the scene of that number; return what is wrong and all that is known of it, nothing when all is well."""
    act = draw(number)
    stage = Stage(root, binaries, older)
    played = begin(act, stage)
    try:
        play(played)
        played.close()
        if not (found := troubles(played)):
            return ""
        heading = f"scene {number} (again: scripts/chaos 1 {number})"
        return "\n".join(
            [heading, *(f"  ! {each}" for each in found), str(act), f"done: {played.done}", played.run.story()]
        )
    finally:
        end_all(os.getpid(), older)
        played.run.process.wait()


def _prepare(root: Path) -> None:
    """Make a process ready to play: away from the operator's places, and the one who gets every orphan."""
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # whoever plays us ends us; what we start does not inherit this
    for number in (signal.SIGHUP, signal.SIGQUIT):  # ignored under nohup or in the background
        signal.signal(number, signal.SIG_DFL)
    for name in [name for name in os.environ if name.startswith(("SAFE_VLLM_", "VLLM_"))]:
        del os.environ[name]
    for name in ("HOME", *XDG):
        (root / name).mkdir(mode=0o700, exist_ok=True)
        os.environ[name] = str(root / name)


def _play(number: int, root: Path) -> str:
    place = root / str(number)
    place.mkdir()
    return trouble_with(number, place, root / "venv" / "bin", frozenset())


def play_all(numbers: range, root: Path) -> int:
    """Play scenes, a few at a time; print what is wrong, and return how many violate something."""
    install(root / "venv")
    began, bad = time.monotonic(), 0
    pool = ProcessPoolExecutor(PARALLEL, get_context("fork"), _prepare, (root,))
    try:
        for played in as_completed([pool.submit(_play, number, root) for number in numbers]):
            if trouble := played.result():
                bad += 1
                print(trouble, flush=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_all(os.getpid(), frozenset())
    print(f"{len(numbers)} scenes from number {numbers[0]}: {bad} with violations, {time.monotonic() - began:.0f} s")
    return bad


def main() -> int:
    """Play so many scenes, from the given number on, or from one that nobody had before."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    first = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as root:
        try:
            return 1 if play_all(range(first, first + count), Path(root)) else 0
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130


if __name__ == "__main__":
    sys.exit(main())
