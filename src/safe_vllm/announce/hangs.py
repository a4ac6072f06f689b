"""What people are told of a server that hangs, and of one whose hangs cannot be noticed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

FRAMES = 12
"""Innermost frames of the main thread that people are shown; programs get all of every thread."""

HANGS = "vLLM hangs, and is ended now"

Stack = tuple[int, str, str]
"""The number, title and stacks of a process, as py-spy prints them: the innermost frame first."""


def stacks(taken: Sequence[Stack], processes: int, problem: str) -> list[str]:
    """Say where the processes were before they were ended; those that were at the same place together."""
    whose = "its 1 process" if processes == 1 else f"its {processes} processes"
    if problem:
        return [HANGS, f"  no stacks of {whose}: {problem}"]
    alike: dict[tuple[str, ...], list[str]] = {}
    for pid, title, text in taken:
        alike.setdefault(tuple(_innermost(text)), []).append(f"{title} ({pid})")
    lines = [HANGS, f"  stacks of {len(taken)} of {whose}, innermost frame first:"]
    for frames, titles in alike.items():
        lines += [f"  {', '.join(titles)}", *(f"    {frame}" for frame in frames)]
    return lines


def blind(reason: str) -> list[str]:
    """Say that hangs in service will not be noticed."""
    return [f"hangs in service will not be noticed: {reason}"]


def _innermost(text: str) -> Iterator[str]:
    """Yield the innermost frames of the main thread, or of the first one where none is called so."""
    threads = text.split("\nThread ")
    main = next((thread for thread in threads[1:] if '"MainThread"' in thread.partition("\n")[0]), threads[-1])
    frames = [line.strip() for line in main.splitlines()[1:] if line.strip()]
    yield from frames[:FRAMES]
