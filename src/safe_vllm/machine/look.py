"""Looks at this machine once, before anything is planned."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from safe_vllm.machine.facts import Machine
from safe_vllm.machine.gpus import gpus
from safe_vllm.machine.libraries import cuda12_directories, cuda_libraries
from safe_vllm.machine.model import described
from safe_vllm.machine.model_flags import asked
from safe_vllm.machine.packages import survey
from safe_vllm.machine.surface import surface


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
    found = survey(vllm, environment, root)
    name, model = described(asked(words, config), environment)
    return Machine(
        architecture=architecture,
        gpus=seen.found,
        gpu_note=seen.note,
        has_driver=seen.has_driver,
        driver=seen.driver,
        driver_cuda=seen.driver_cuda,
        visible_devices=environment.get("CUDA_VISIBLE_DEVICES"),
        installation=replace(found.installation, surface=surface(found.package("vllm"), environment, root)),
        cuda12_libraries=cuda12_directories(architecture, root),
        cuda_libraries=cuda_libraries(architecture, found.places, environment, root),
        model=model,
        model_name=name,
    )
