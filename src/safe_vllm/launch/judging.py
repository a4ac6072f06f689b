"""Why an attempt of ours ended: the verdict, with what the machine tells where the log did not."""

from __future__ import annotations

from dataclasses import replace

from safe_vllm.attempt.order import Ended
from safe_vllm.machine.facts import Gpu, Machine
from safe_vllm.verdict.evidence import Observations, Setup, Verdict
from safe_vllm.verdict.judge import judge


def verdict_of(ended: Ended, machine: Machine) -> Verdict:
    """Return the verdict on an attempt of which nothing is left."""
    return _lost(ended.observations) if ended.guardian_is_lost else _judged(ended.observations, machine)


def verdict_on_dying(ended: Ended, machine: Machine) -> Verdict | None:
    """Return why an attempt was dying by the time it was asked to stop; ``None``: it was not, as far as can be told."""
    if ended.guardian_is_lost or ended.died is None:
        return None
    verdict = _judged(ended.died, machine)
    return None if verdict.fault in ("stopped", "none") else verdict


def _lost(seen: Observations) -> Verdict:
    """Return the verdict on an attempt whose guardian was killed: of vLLM itself nothing is known."""
    reason = "the guardian of this attempt was killed, so vLLM was ended too"
    return Verdict("unknown", "retry-same", seen.phase, reason, before_ready=not seen.was_ready)


def _judged(seen: Observations, machine: Machine) -> Verdict:
    """Return the verdict. What the log did not tell of the software and hardware in use, the machine does."""
    from safe_vllm import known  # slow to read

    gpu = machine.gpus[0] if machine.gpus else Gpu("")
    installed = machine.installation
    found = Setup(installed.vllm, installed.flashinfer, gpu.name or None, gpu.compute_capability, machine.architecture)
    return judge(replace(seen, setup=seen.setup.or_else(found)), known.advice())
