"""What the driver reports comes to the scan while an attempt lasts, and afterwards the GPUs are let go."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from safe_vllm.attempt.gpu_watch import MOST_KEPT, watch
from safe_vllm.attempt.loop import Loop
from safe_vllm.data.strict_yaml import read_data
from safe_vllm.machine.levels import Xid
from safe_vllm.verdict.evidence import Evidence
from safe_vllm.verdict.scan import Scan
from safe_vllm.verdict.signatures import parse

SIGNATURES = parse(read_data("signatures.yaml"))
DEADLINE_S = 30.0


@dataclass
class Driver:
    """Reports what it was given, one batch for each wait that is let through; ``None``: it reports no more."""

    batches: list[list[Xid] | None]
    may_go_on: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1000))
    unread: list[Xid] = field(default_factory=list)
    waits: int = 0
    is_closed: bool = False

    def wait(self) -> bool:
        self.waits += 1
        assert self.may_go_on.acquire(timeout=DEADLINE_S)
        batch = self.batches.pop(0) if self.batches else []
        self.unread += batch or []
        return batch is not None

    def taken(self) -> list[Xid]:
        taken, self.unread = self.unread, []
        return taken

    def close(self) -> None:
        self.is_closed = True


def turn_until(loop: Loop, driver: Driver) -> None:
    """Let the loop turn until the driver was let go."""
    until = loop.now() + DEADLINE_S
    while not driver.is_closed:
        assert loop.now() < until
        loop.turn(loop.now() + 0.05)


def test_what_is_reported_is_evidence_with_the_seconds_since_the_spawn(loop: Loop) -> None:
    scan, seen = Scan(SIGNATURES), list[Evidence]()
    driver = Driver([[Xid(31, 1, "PCI:0000:65:00")], [], [Xid(79)], None])
    listening = watch(loop, driver, scan, seen.append, loop.now() - 500)
    turn_until(loop, driver)
    assert [(line.signature, line.kind) for line in seen] == [("xid-memory-access", "echo"), ("xid-board", "root")]
    assert scan.evidence == tuple(seen)
    kept = listening.end()
    assert [(event.xid, event.place, event.bus) for event in kept] == [(31, 1, "PCI:0000:65:00"), (79, None, None)]
    assert all(500 <= event.at_s <= 500 + DEADLINE_S for event in kept)


def test_of_a_flood_the_first_ones_are_kept(loop: Loop) -> None:
    driver = Driver([[Xid(number) for number in range(1000)], None])
    listening = watch(loop, driver, Scan(SIGNATURES), lambda _: None, loop.now())
    turn_until(loop, driver)
    assert [event.xid for event in listening.end()] == list(range(MOST_KEPT))


def test_after_the_end_nothing_counts_and_the_gpus_are_let_go(loop: Loop) -> None:
    driver = Driver([[Xid(79)], [Xid(79)]], threading.Semaphore(0))
    seen: list[Evidence] = []
    listening = watch(loop, driver, Scan(SIGNATURES), seen.append, loop.now())
    assert listening.end() == ()
    driver.may_go_on.release()
    turn_until(loop, driver)
    assert not seen
    assert driver.waits == 1


def test_without_a_driver_there_is_nothing_to_listen_to(loop: Loop) -> None:
    assert watch(loop, None, Scan(SIGNATURES), lambda _: None, loop.now()).end() == ()
