"""A Ray cluster of one node on this machine, started before anything that uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leftovers import below, end_all
from waiting import free_port

DEADLINE_S = 180.0


@contextmanager
def cluster(python: Path, packages: Path, log: Path) -> Iterator[str]:
    """Start Ray from ``packages`` with the interpreter of a vLLM release; yield its address. Nothing of it is left."""
    older = frozenset(below(os.getpid()))
    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # below it are sockets, whose paths must be short
    address = f"127.0.0.1:{free_port()}"
    words = [*("start", "--head", "--block", "--num-cpus=2", "--num-gpus=0", "--disable-usage-stats"),
             *("--include-dashboard=false", "--object-store-memory=80000000", f"--temp-dir={place}"),
             *("--node-ip-address=127.0.0.1", f"--port={address.partition(':')[2]}")]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(packages), "RAY_AUTH_MODE": "disabled"}
    with log.open("wb") as out:
        command = [str(python), "-m", "ray.scripts.scripts", *words]
        node = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            _wait_for(node, log)
            yield address
        finally:
            node.terminate()
            end_all(os.getpid(), older, within_s=30)
            node.wait()
            shutil.rmtree(place, ignore_errors=True)


def _wait_for(node: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while b"Ray runtime started" not in log.read_bytes():
        assert node.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
        time.sleep(0.2)
