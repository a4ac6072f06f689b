"""The stage of the process tests, for tests that put it into a namespace."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.with_name("process")))

from process.conftest import binaries, pytest_runtest_makereport, stage

__all__ = ["binaries", "pytest_runtest_makereport", "stage"]
