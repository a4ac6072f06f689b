"""P11: real vLLM on the CPU in the unit that we ship, under a real systemd."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_launch import FAULT_PLUGIN, START_S, cpu_environment, fault, serve_words

import safe_vllm

sys.path.append(str(Path(__file__).parents[1] / "namespace"))

from systemd_stage import SERVICE_UID, Manager, managed, seen

from waiting import free_port

pytestmark = pytest.mark.e2e
SAFE_VLLM = Path(sys.executable).with_name("safe-vllm")


@pytest.fixture
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with managed(tmp_path_factory) as found:
        yield found


def completion(model: Path, port: int) -> str:
    """Return the server's answer to a real request."""
    asked = {"model": str(model), "prompt": "Once upon a time", "max_tokens": 8, "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
    return str(json.loads(connection.getresponse().read())["choices"][0]["text"])


def test_a_service_starts_through_a_fault_and_stops_without_a_trace(
    manager: Manager, vllm: Path, model: Path, tmp_path: Path
) -> None:
    """The load takes longer than TimeoutStartSec; the first attempt dies while it tunes its kernels."""
    unit, port, place = manager.unit("real"), free_port(), tmp_path / "service"
    place.mkdir()
    lines = [f"BindPaths={place}", "ExecStartPre=", "TimeoutStartSec=20"]
    lines += seen(SAFE_VLLM.parent, Path(safe_vllm.__file__).parents[1], vllm.parents[1], FAULT_PLUGIN, model)
    os.chown(place, SERVICE_UID, SERVICE_UID)
    model.chmod(0o755)
    lines += [f"StandardOutput=append:{place}/output", f"StandardError=append:{place}/output"]
    injected = fault(at="startup", how="segv", when="autotune")
    environment = {
        **cpu_environment(),
        **{name: f"'{value}'" for name, value in injected.items()},
        "PATH": f"{SAFE_VLLM.parent}:{vllm.parent}:{os.defpath}",
        "SAFE_VLLM_VLLM": str(vllm),
        "MODEL_ARGS": " ".join(serve_words(model, port)),
    }
    unit.configure(*lines, environment=[f"{name}={value}" for name, value in environment.items()])
    starting = manager.begin("start", unit.name)
    _, trouble = starting.communicate(timeout=START_S)
    said = (place / "output").read_text(errors="replace") if (place / "output").exists() else ""
    assert starting.returncode == 0, f"{trouble}\n{said[-6000:]}"
    assert unit.state() == "active/running"
    assert unit.show("StatusText").startswith("ready at rung no-autotune, degraded: ")
    assert "safe-vllm: ready after " in said
    assert completion(model, port)
    assert len(unit.processes()) >= 4
    manager.ctl("stop", unit.name)
    assert unit.processes() == []
    assert (unit.state(), unit.show("Result")) == ("inactive/dead", "success")
