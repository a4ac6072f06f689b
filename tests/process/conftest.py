"""The stage that every process test plays on."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from fuse import SilentFileSystem
from gpus import WITH_DRIVER, Gpus
from launch import Stage, install

from leftovers import Process


@pytest.fixture(scope="session")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One environment with a fake vLLM for all tests: nothing writes into it."""
    return install(tmp_path_factory.mktemp("installation") / "venv")


@pytest.fixture
def stage(tmp_path: Path, binaries: Path, older_processes: frozenset[Process]) -> Stage:
    """A place of this test's own."""
    return Stage(tmp_path, binaries, older_processes)


@pytest.fixture
def gpus(tmp_path: Path) -> Gpus:
    """Return GPUs, where this machine lets us pretend to have a driver."""
    probe = subprocess.run([*WITH_DRIVER, "/bin/true"], capture_output=True, text=True, timeout=30)
    if probe.returncode:
        pytest.skip(f"no mount namespaces here: {probe.stderr.strip()}")
    return Gpus(tmp_path / "gpus.json")


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[SilentFileSystem]:
    """A directory whose file system never answers: who asks it can be killed by nothing."""
    place = tmp_path / "silent"
    place.mkdir()
    try:
        system = SilentFileSystem(place)
    except OSError as error:
        pytest.skip(f"no file system may be mounted here: {error}")
    yield system
    system.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the launches of a failed test said and did."""
    report = yield
    stage: Stage | None = getattr(item, "funcargs", {}).get("stage")
    if report.failed and report.when == "call" and stage:
        report.sections += [(f"launch {number}", launch.story()) for number, launch in enumerate(stage.launches)]
    return report
