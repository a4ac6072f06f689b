"""A rung's variables reach workers of a Ray cluster that ran before, by the code of real releases of vLLM.

Ray is not installed for it: ``SAFE_VLLM_E2E_RAY`` names a directory that has it (``pip install --target DIR ray``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dialect_vllm
import pytest
from ray_cluster import cluster

from safe_vllm import known
from safe_vllm.machine.packages import survey
from safe_vllm.plan.command import command
from safe_vllm.plan.flags import read
from safe_vllm.plan.fresh_caches import with_fresh_caches
from safe_vllm.plan.ladder import Rung
from safe_vllm.plan.ray import means_of

CHOSEN_RAY = os.environ.get("SAFE_VLLM_E2E_RAY")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safe-vllm-dialect"
SAFE_VLLM = Path(sys.executable).with_name("safe-vllm")
STAND_IN = Path(__file__).with_name("ray_stand_in.py")
EXECUTOR = "--distributed-executor-backend"
ENGINES = "--data-parallel-backend"
PROFILE = """\
name: ours
description: one variable that vLLM knows nothing of
fits: {}
cuda_lib_path: unset
because: a test
links: [https://example.com]
environment: {FLASHINFER_PROBE: from the rung}
ladder:
  - rung: as-asked
    because: a test
    links: [https://example.com]
reasons: {}
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not CHOSEN_RAY, reason="no Ray: pip install --target DIR ray, and SAFE_VLLM_E2E_RAY=DIR"),
]


@dataclass(frozen=True)
class Release:
    """One release of vLLM whose Ray code answers for ``vllm serve``, and a cluster that runs already."""

    vllm: Path
    place: Path
    address: str

    @property
    def environment(self) -> dict[str, str]:
        """Return an operator's environment."""
        ours = {"RAY_ADDRESS": self.address, "RAY_AUTH_MODE": "disabled", "RAY_PACKAGES": str(CHOSEN_RAY)}
        return {**os.environ, **ours, "SEEN": str(self.place / "seen.json")}

    def seen(self) -> dict[str, Any]:
        """Return what the worker had."""
        found = json.loads((self.place / "seen.json").read_text())
        assert isinstance(found, dict)
        return found

    def launch(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one attempt of ``safe-vllm serve``."""
        profile = self.place / "ours.yaml"
        profile.write_text(PROFILE)
        options = ["--vllm", str(self.vllm), "--profile", str(profile), "--max-attempts", "1"]
        return self._run([str(SAFE_VLLM), *options, "serve", "m", *words], {**self.environment, **environment})

    def run(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run what an attempt would."""
        return self._run([*argv], environment)

    def _run(self, argv: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=240, check=False)
        assert (self.place / "seen.json").exists(), done.stdout[-3000:] + done.stderr[-3000:]
        return done


@pytest.fixture
def release(request: pytest.FixtureRequest, vllm: Path, tmp_path: Path) -> Any:
    """A release by its number; a script in its environment stands in for ``vllm``."""
    python = dialect_vllm.make(CACHE, request.param, vllm.parent.parent).with_name("python")
    stand_in = tmp_path / "vllm"
    stand_in.write_text(f"#!{python}\n{STAND_IN.read_text()}")
    stand_in.chmod(0o755)
    with cluster(python, Path(str(CHOSEN_RAY)), tmp_path / "ray.log") as address:
        yield Release(stand_in, tmp_path, address)


@pytest.mark.parametrize("release", ["0.17.1", "0.33.0"], indirect=True)
@pytest.mark.parametrize("backend", [EXECUTOR, ENGINES])
def test_a_worker_in_a_cluster_that_ran_before_has_the_variables_of_the_rung(release: Release, backend: str) -> None:
    theirs = {"VLLM_RAY_EXTRA_ENV_VARS_TO_COPY": "MINE", "MINE": "the operator's"}
    done = release.launch(backend, "ray", **theirs)
    seen = release.seen()
    assert seen["started_with"] == ["serve", "m", backend, "ray"]
    assert seen["worker"].get("FLASHINFER_PROBE") == "from the rung", done.stderr[-3000:]
    assert seen["worker"].get("MINE") == "the operator's"


@pytest.mark.parametrize(
    ("release", "backend", "lost"),
    [
        ("0.17.1", EXECUTOR, ()),
        ("0.17.1", ENGINES, ()),
        ("0.33.0", EXECUTOR, ("TORCHINDUCTOR_CACHE_DIR",)),  # RayExecutorV2 comes too late; the plan says so
        ("0.33.0", ENGINES, ()),
    ],
    indirect=["release"],
)
def test_a_worker_in_a_cluster_that_ran_before_has_fresh_caches(
    release: Release, backend: str, lost: tuple[str, ...]
) -> None:
    dialect = known.dialects().of(survey(str(release.vllm), {}).installation.vllm)
    fresh = with_fresh_caches(Rung("as-asked", ("m", backend, "ray")), "/ours", release.environment, dialect)
    means = means_of(read(fresh.words), {}, dialect)
    assert means and set(lost) <= set(means.missed)
    run = command(fresh, (str(release.vllm),), release.environment)
    release.run(run.argv, run.environment)
    worker = release.seen()["worker"]
    places = {name: value for name, value in fresh.environment if value.startswith("/ours/")}
    assert {"TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT"} <= set(places)
    assert {name: worker.get(name) for name in places if name not in lost} == {
        name: place for name, place in places.items() if name not in lost
    }
    assert all(worker.get(name) != places[name] for name in lost)


@pytest.mark.parametrize("release", ["0.17.1"], indirect=True)
def test_without_being_asked_vllm_does_not_hand_it_over(release: Release) -> None:
    release.run((str(release.vllm), "serve", "m", EXECUTOR, "ray"), {**release.environment, "FLASHINFER_PROBE": "x"})
    assert "FLASHINFER_PROBE" not in release.seen()["worker"]


@pytest.mark.parametrize("release", ["0.16.0"], indirect=True)
@pytest.mark.parametrize("backend", [EXECUTOR, ENGINES])
def test_what_an_old_release_cannot_hand_over_is_told(release: Release, backend: str) -> None:
    release.launch(backend, "ray")
    assert "FLASHINFER_PROBE" not in release.seen()["worker"]
    options = ["--vllm", str(release.vllm), "--profile", str(release.place / "ours.yaml")]
    plan = release.run((str(SAFE_VLLM), *options, "plan", "m", backend, "ray"), release.environment)
    assert "note: vLLM 0.16.0 cannot hand FLASHINFER_PROBE to Ray's workers" in plan.stdout
