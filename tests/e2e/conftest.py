"""What the tests on real vLLM need: a vLLM that runs on the CPU, two tiny models, and a way to start safe-vllm."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import cast

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts" / "support"))

import cpu_vllm
import tiny_model
from starter import Starter

SAFE_VLLM = Path(sys.executable).with_name("safe-vllm")
# Read now: during a test these variables point elsewhere.
CHOSEN_VLLM = os.environ.get("SAFE_VLLM_E2E_VLLM")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safe-vllm-e2e"


@pytest.fixture(scope="session")
def vllm(request: pytest.FixtureRequest) -> Path:
    """A vLLM for the CPU: the one that ``SAFE_VLLM_E2E_VLLM`` names, the one on PATH, or one made in the cache."""
    if CHOSEN_VLLM:
        return Path(CHOSEN_VLLM)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with cast("AbstractContextManager[None]", capture.global_and_fixture_disabled()):  # the first time it takes minutes
        return cpu_vllm.on_path() or cpu_vllm.make(CACHE / "vllm")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that serves."""
    directory = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model.write_model(directory)
    return directory


@pytest.fixture(scope="session")
def model_that_cannot_infer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with which vLLM answers ``/health`` on the CPU, and dies at the first inference."""
    directory = tmp_path_factory.mktemp("models") / "no-kernel-for-it"
    tiny_model.write_model(directory, head_dim=16)
    return directory


@pytest.fixture
def start(vllm: Path, model: Path, tmp_path: Path) -> Iterator[Starter]:
    """Starts ``safe-vllm serve`` in a session of its own; what is left of it after the test is ended."""
    with ExitStack() as stack:
        yield Starter(SAFE_VLLM, vllm, model, tmp_path, stack)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the launches of a failed test said."""
    report = yield
    start: Starter | None = getattr(item, "funcargs", {}).get("start")
    if report.failed and report.when == "call" and start:
        for launch in start.launches:
            events = "\n".join(str(event)[:400] for event in launch.events())
            report.sections.append((f"{launch.place}", f"{events}\n{launch.ours()}\n{launch.output()[-6000:]}"))
    return report
