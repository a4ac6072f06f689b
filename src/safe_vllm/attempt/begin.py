"""The first step of an attempt. What sees to vLLM afterwards takes a while to load, and is loaded meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from safe_vllm.attempt import orphans
from safe_vllm.attempt.child import Child, room, spawn
from safe_vllm.attempt.loop import Loop
from safe_vllm.attempt.order import Order
from safe_vllm.attempt.orphans import Bystanders


@dataclass(frozen=True)
class Begun:
    """A vLLM that is being started."""

    child: Child
    spared: Bystanders
    """What was below us before, and is none of its processes."""
    at: float


def begin(loop: Loop, order: Order) -> Begun:
    """Start vLLM. Raises Trouble when this machine lets us start nothing."""
    with room():
        spared, at = orphans.bystanders(), loop.now()
        child = spawn(order.command, order.ignored, has_one_stream=loop.stdout is loop.stderr)
    if child.lacks_terminal:
        said = f"no terminal can be had for vLLM ({child.lacks_terminal}): its output comes without colours and bars"
        loop.stderr.say(f"safe-vllm: {said}")
    return Begun(child, spared, at)
