"""``CUDA_LIB_PATH`` is set where FlashInfer reads it and the directory holds what it looks for, and nowhere else.

Only ``libcudart.so.12`` is ever loaded from it:
https://github.com/flashinfer-ai/flashinfer/blob/v0.6.12/flashinfer/jit/__init__.py
"""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
from launch import Stage, install
from scenes import argparse_error

TARGET = f"/usr/local/cuda/targets/{'sbsa' if platform.machine() == 'aarch64' else platform.machine()}-linux/lib"
IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-euc")


def with_toolkit(upper: Path, library: str) -> tuple[str, ...]:
    """Return a prefix that runs a command where CUDA's toolkit is installed, seen by that command alone."""
    place = f"$upper/local{TARGET.removeprefix('/usr/local')}"
    script = (
        f'upper={upper}; mount -t tmpfs tmpfs "$upper"; mkdir -p "$upper/work" "{place}"; : >"{place}/{library}"; '
        'mount -t overlay overlay -o "lowerdir=/usr/local,upperdir=$upper/local,workdir=$upper/work" /usr/local; '
        'exec "$0" "$@"'
    )
    return (*IN_A_NAMESPACE, script)


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """Return a directory to mount on, where this machine lets us."""
    upper = tmp_path / "overlay"
    upper.mkdir()
    probe = subprocess.run([*with_toolkit(upper, "probe"), "/bin/true"], capture_output=True, text=True, timeout=30)
    if probe.returncode:
        pytest.skip(f"no mount namespaces here: {probe.stderr.strip()}")
    return upper


def value(
    stage: Stage, overlay: Path, *, library: str = "libcudart.so.12", profile: str = "b200", **given: str
) -> str | None:
    """Return what the first attempt finds in the variable."""
    options = ("--profile", profile)
    run = stage.start(argparse_error(), prefix=with_toolkit(overlay, library), options=options, environment=given)
    assert run.finish() == 2
    found = [entry.partition("=")[2] for entry in run.attempts()[0]["environ"] if entry.startswith("CUDA_LIB_PATH=")]
    return found[0] if found else None


@pytest.fixture
def cuda12(stage: Stage) -> Stage:
    """Return a stage whose torch was built for CUDA 12."""
    return Stage(stage.root, install(stage.root / "venv12", torch="2.11.0", cuda="12.9"), stage.older)


@pytest.fixture
def cuda13(stage: Stage) -> Stage:
    """Return a stage whose torch was built for CUDA 13."""
    return Stage(stage.root, install(stage.root / "venv13", torch="2.13.0", cuda="13.0"), stage.older)


@pytest.mark.parametrize("profile", ["b200", "gb200"])
def test_it_is_set_where_torch_is_built_for_cuda_12_and_the_library_is_there(
    cuda12: Stage, overlay: Path, profile: str
) -> None:
    assert value(cuda12, overlay, profile=profile) == TARGET


def test_it_is_not_set_where_the_library_is_not_there(cuda12: Stage, overlay: Path) -> None:
    assert value(cuda12, overlay, library="libcudart.so.13") is None


def test_it_is_not_set_where_torch_is_built_for_cuda_13(cuda13: Stage, overlay: Path) -> None:
    assert value(cuda13, overlay) is None


def test_it_is_not_set_where_torch_is_built_for_the_cpu(stage: Stage, overlay: Path) -> None:
    assert value(stage, overlay) is None


def test_it_stays_what_the_operator_made_it(cuda12: Stage, overlay: Path) -> None:
    assert value(cuda12, overlay, CUDA_LIB_PATH="/mine") == "/mine"


def test_it_stays_empty_where_the_operator_made_it_empty(cuda12: Stage, overlay: Path) -> None:
    assert value(cuda12, overlay, CUDA_LIB_PATH="") == ""


def test_a_profile_that_does_not_ask_for_it_does_not_set_it(cuda12: Stage, overlay: Path) -> None:
    assert value(cuda12, overlay, profile="cpu") is None
