"""What to do with the core files that there are, as the first advice of a report."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from safe_vllm.record.incident import Core

OPEN = "open the core file, which shows where the process crashed: "
OPEN_GPU = "open the GPU core dump, which names the kernel: "


def opening(cores: Sequence[Core], python: str | None) -> Iterator[str]:
    """Yield what to do with the core files that there are, one of each kind."""
    firsts = {core.kind: core.path for core in reversed(cores)}
    for kind, path in sorted(firsts.items()):
        with_python = f"gdb {shlex.quote(python or 'python3')} {shlex.quote(path)}"
        on_gpu = f"cuda-gdb -ex {shlex.quote(f'target cudacore {path}')}"
        yield OPEN_GPU + on_gpu if kind == "gpu" else OPEN + with_python
