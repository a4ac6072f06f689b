"""Where a model that lies on this machine really is: ``./model`` and ``/models/current`` name another one tomorrow."""

from __future__ import annotations

import os
from pathlib import Path

from safe_vllm.machine.rooted import exists


def model_place(name: str | None) -> str | None:
    """Return the real path of a model that is a directory or a file, without any link; ``None``: it is neither."""
    return os.path.realpath(name) if name and exists(Path(name)) else None
