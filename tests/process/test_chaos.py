"""Random scenes: whatever happens, all that was promised holds. Many more: ``scripts/chaos``."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import trouble_with

from leftovers import Process

SCENES = 25
CHUNKS = 5
REGRESSIONS = (147, 2141)
"""Scenes that found something once."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_random_scene_violates_a_promise(
    tmp_path: Path, binaries: Path, older_processes: frozenset[Process], chunk: int
) -> None:
    for number in [*range(1 + chunk, 1 + SCENES, CHUNKS), *REGRESSIONS[chunk::CHUNKS]]:
        place = tmp_path / str(number)
        place.mkdir()
        if trouble := trouble_with(number, place, binaries, older_processes):
            pytest.fail(trouble, pytrace=False)
