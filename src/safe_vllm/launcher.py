"""Prepares a launch, runs it, and sees to it that what was said and kept gets to where it belongs."""

from __future__ import annotations

import os
from dataclasses import replace

from safe_vllm.announce import systemd
from safe_vllm.announce.teller import Teller
from safe_vllm.attempt.child import ignored_signals, open_missing_descriptors
from safe_vllm.attempt.loop import Loop
from safe_vllm.attempt.prctl import become_subreaper
from safe_vllm.attempt.relay import Outlet, is_one_stream
from safe_vllm.launch.gating import Gates
from safe_vllm.launch.keeping import Keeper
from safe_vllm.launch.story import Launch
from safe_vllm.launch.telling import Account
from safe_vllm.plan import endpoint, status_address
from safe_vllm.plan.endpoint import Endpoint
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.status_address import Address
from safe_vllm.plan.veil import Veil, plain_veil
from safe_vllm.preparing import Prepared, prepare
from safe_vllm.record.events import EventLog

STOPPED_DRAIN_S = 5.0
"""How long a reader of ours that is behind may keep us when a stop was asked for."""


def serve(intent: Intent) -> int:
    """Run ``vllm serve`` until it is asked to stop, one step safer after each kernel fault; return the exit status."""
    listens_at = None if intent.status_address is None else status_address.address(intent.status_address)
    ignored = ignored_signals()
    open_missing_descriptors()
    stdout = Outlet(1)
    # Where both lead to the same place, one pen writes: a line of ours must not fall into the middle of vLLM's.
    stderr = stdout if is_one_stream() else Outlet(2)
    loop = Loop(stdout, stderr, ignored)
    teller = Teller(stderr, intent.output == "json", EventLog(intent.events))
    service = systemd.manager(os.environ)
    service.attend(loop.call_in, teller.listeners)
    prepared = prepare(intent)
    service.can_be_checked = _place(prepared) is not None
    teller.veil = _veil(prepared).text
    become_subreaper()
    if listens_at:
        status_address.apart_from(listens_at, _ports(prepared))
    try:
        account, origin = Account(teller), teller.origin.launch
        keeper = Keeper(loop, account, prepared.memory)
        problems = (*prepared.problems, *keeper.open(origin))
        if listens_at:
            problems = (*problems, *_answer_at(listens_at, loop, teller))
        prepared = replace(prepared, problems=problems)
        teller.listeners.append(keeper.on_event)
        gates = Gates(loop, teller, prepared.environment, prepared.machine.has_driver)
        launch = Launch(prepared, loop, account, keeper, ignored, gates, rung=prepared.plan.entry)
        try:
            return launch.run()
        finally:
            keeper.finish()
            teller.log.finish()
    finally:
        loop.drain(STOPPED_DRAIN_S if loop.stops else max(STOPPED_DRAIN_S, prepared.limits.stop_timeout_s))


def _answer_at(address: Address, loop: Loop, teller: Teller) -> tuple[str, ...]:
    """Begin to answer who asks how the launch stands; return why that cannot be, if it cannot."""
    from safe_vllm.announce.status_server import StatusServer  # slow to import, and seldom wanted

    pens = {"stdout": loop.stdout, "stderr": loop.stderr}
    if loop.stdout is loop.stderr:
        del pens["stderr"]
    server = StatusServer(address, lambda: {name: pen.taken_bytes for name, pen in pens.items()})
    return server.attend(loop.call_in, teller.listeners)


def _ports(prepared: Prepared) -> tuple[int, ...]:
    """Return the ports that vLLM is to have."""
    place = _place(prepared)
    return () if place is None or place.uds else (place.port, *place.more_ports)


def _place(prepared: Prepared) -> Endpoint | None:
    """Return where vLLM will answer; ``None``: nowhere, or nobody knows."""
    rung = prepared.plan.ladder.rungs[prepared.plan.entry]
    return endpoint.endpoint(rung.words, prepared.environment, prepared.config)


def _veil(prepared: Prepared) -> Veil:
    """Return what hides the secrets of the launch, also those that only a rung has."""
    rungs = prepared.plan.ladder.rungs
    commands = dict.fromkeys((prepared.vllm + prepared.intent.words, *(rung.words for rung in rungs)))
    variables = [*prepared.environment.items(), *(pair for rung in rungs for pair in rung.environment)]
    return plain_veil([word for words in commands for word in words], variables, prepared.config)
