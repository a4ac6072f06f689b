"""GPUs and a driver for them that are not there: what NVML tells is what a test says."""

from __future__ import annotations

import json
from pathlib import Path

from launch import Launch, Stage
from scenes import Scene

FAKE_NVML = Path(__file__).with_name("fake_nvml")
IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-euc")
WITH_DRIVER = (*IN_A_NAMESPACE, 'mount -t tmpfs tmpfs /proc/driver; mkdir /proc/driver/nvidia; '
               ': >/proc/driver/nvidia/version; exec "$0" "$@"')  # fmt: skip


class Gpus:
    """What NVML tells."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.xids: list[tuple[int, int | None]] = []
        self.set(80_000, 40_000)

    def set(self, *free_mib: int, holders: tuple[tuple[int, int], ...] = (), **how: object) -> None:
        gpus = [{"free_mib": free, "total_mib": 81_559, "holders": holders} for free in free_mib]
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"gpus": gpus, **how}))
        new.replace(self.path)

    def calls(self) -> int:
        return len(Path(f"{self.path}.calls").read_text().splitlines())

    def start(
        self, stage: Stage, *scenes: Scene, visible: str | None = None, options: tuple[str, ...] = ("--backoff", "0.01")
    ) -> Launch:
        environment = {"FAKE_NVML": str(self.path), "PYTHONPATH": str(FAKE_NVML)}
        environment |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        return stage.start(*scenes, prefix=WITH_DRIVER, environment=environment, options=options)

    # Faults that the driver reports

    def report_to_listeners(self) -> None:
        """Let those who listen be told of faults, of which there is none yet."""
        self.set(80_000, 40_000, xids=self.xids)

    def report(self, run: Launch, gpu: int, xid: int | None) -> None:
        """Report a fault of a GPU, and return when the launch has taken it in."""
        run.wait_for("somebody who listens", self._waits)
        self.xids.append((gpu, xid))
        self.report_to_listeners()
        run.wait_for(f"Xid {xid} to be taken in", lambda: max(self._waits()) >= len(self.xids))

    def _waits(self) -> list[int]:
        """Return how many faults were dealt with before each wait for one."""
        path = Path(f"{self.path}.waits")
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []
