"""Whether who answers at vLLM's address is vLLM: another server may have come up there while ours was loading."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safe_vllm.attempt import tree
from safe_vllm.plan.endpoint import Endpoint

if TYPE_CHECKING:
    from safe_vllm.machine.listeners import Listener, Sockets


@dataclass
class Address:
    """Where vLLM shall answer, and the stranger who was seen there."""

    place: Endpoint | None
    tell: Callable[[Endpoint, Listener], None]
    stranger: Listener | None = None
    is_told: bool = False

    def is_strangers(self, guardian: int) -> bool:
        """Look who listens there, and return whether that is somebody else. It takes a while on a large machine."""
        self.stranger = stranger_at(self.place, guardian) if self.place else None
        return self.stranger is not None

    def say(self) -> None:
        """Tell of the stranger, once."""
        if self.place and self.stranger and not self.is_told:
            self.is_told = True
            self.tell(self.place, self.stranger)


def stranger_at(place: Endpoint, guardian: int) -> Listener | None:
    """Return who listens there, if it is surely nobody of those below our guardian; ``None`` wherever there is doubt.

    A container's engine, Slurm or systemd may have started vLLM for the command that we run, and then it is not below
    us: only who was there before that command, or is below another guardian, is a stranger.
    """
    from safe_vllm.machine import listeners  # needed when a server answers, and not before

    for each in place.each():
        sockets = listeners.sockets_at(each.uds) if each.uds else listeners.sockets_at_port(each.port)
        try:
            if sockets.names and (found := _strangers(sockets, guardian)):
                return listeners.listener(found[0])
        except OSError:  # nobody can tell for now who is below us
            pass
    return None


def _strangers(sockets: Sockets, guardian: int) -> list[int]:
    from safe_vllm.machine import listeners

    if any(sockets.held_by(known.pid) for known in tree.descendants(guardian)):
        return []
    holders = {number: held for number in listeners.everyone() if (held := sockets.held_by(number))}
    if sockets.names.keys() - frozenset().union(*holders.values()):  # ours may be the one whose holder is hidden
        return []
    begun = tree.process(guardian)
    is_sure = begun is not None and all(_is_stranger(number, begun) for number in holders)
    return list(holders) if is_sure else []


def _is_stranger(number: int, guardian: tree.Process) -> bool:
    known = tree.process(number)
    if known is None:
        return False
    called = tree.GUARDIAN[: tree.NAME_BYTES]  # as the parent of a vLLM that another launcher started
    others = set(_ancestors(number)) - {guardian.pid, *_ancestors(os.getpid())}
    return known.started < guardian.started or any(tree.name(other) == called for other in others)


def _ancestors(number: int) -> Iterator[int]:
    while (known := tree.process(number)) and known.parent:
        number = known.parent
        yield number
