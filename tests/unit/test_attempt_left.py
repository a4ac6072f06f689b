"""What is said of processes that could not be ended."""

from __future__ import annotations

import pytest

from safe_vllm.attempt.left import Left

STUCK = "SIGKILL did not end what is stuck in the kernel: VLLM::Worker (7), python (8); restart the machine"
FOREIGN = "sleep (9) belongs to another user and cannot be ended by us; end it as that user or as root"


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (Left([], []), ""),
        (Left(["VLLM::Worker (7)", "python (8)"], []), STUCK),
        (Left([], ["sleep (9)"]), FOREIGN),
        (Left(["VLLM::Worker (7)", "python (8)"], ["sleep (9)"]), f"{STUCK}; {FOREIGN}"),
    ],
)
def test_what_is_stuck_and_what_is_another_users_are_told_apart(left: Left, told: str) -> None:
    assert str(left) == told
    assert bool(left) == bool(told)
