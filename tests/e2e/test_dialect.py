"""Real releases of vLLM take every rung of every shipped profile, and read each safety setting as the rung means it.

vLLM's own parser and configuration classes answer; nothing is started.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import dialect_check
import dialect_vllm
import pytest
from dialect_lines import LINES
from dialect_plan import Hardware, every_kind

from safe_vllm.machine.packages import survey

pytestmark = pytest.mark.e2e
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safe-vllm-dialect"
NEWEST = "0.33.0"


def assert_all_is_right(vllm: Path, version: str, kinds: Sequence[Hardware], place: Path) -> None:
    """Everything was asked, and nothing was other than it should be."""
    report = dialect_check.check(vllm, version, LINES, kinds, place)
    assert "\n".join(report.wrong) == ""
    assert report.rungs == report.right > len(LINES)


@pytest.mark.e2e_ci
def test_the_cpu_build_takes_every_rung_for_blackwell_and_for_a_cpu(vllm: Path, tmp_path: Path) -> None:
    version = survey(str(vllm), {}).installation.vllm
    assert version
    kinds = [kind for kind in every_kind() if kind.is_cpu or kind.capability == "10.0"]
    assert_all_is_right(vllm, version.partition("+")[0], kinds, tmp_path)


@pytest.mark.parametrize("version", ["0.17.1", "0.23.0", "0.28.0", NEWEST])
def test_a_release_takes_every_rung_of_every_profile(vllm: Path, version: str, tmp_path: Path) -> None:
    of_version = dialect_vllm.make(CACHE, version, vllm.parent.parent)
    assert_all_is_right(of_version, version, every_kind(), tmp_path)
