"""Looks at this machine once, before anything is planned."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from safe_vllm.machine.facts import Machine
from safe_vllm.machine.gpus import gpus
from safe_vllm.machine.libraries import cuda12_directories
from safe_vllm.machine.model import candidates, shape
from safe_vllm.machine.packages import installation


def look(
    vllm: str | None,
    words: Sequence[str],
    environment: Mapping[str, str],
    config: Mapping[str, object] | None = None,
    *,
    root: Path = Path("/"),
    architecture: str | None = None,
) -> Machine:
    """Return this machine and what is installed on it; ``vllm`` is the resolved path of the executable."""
    architecture = architecture or platform.machine()
    seen = gpus(environment, root)
    return Machine(
        architecture=architecture,
        gpus=seen.found,
        gpu_note=seen.note,
        has_driver=seen.has_driver,
        installation=installation(vllm, environment, root),
        cuda12_libraries=cuda12_directories(architecture, root),
        model=shape(candidates(words, config)),
    )
