"""Whether this server is one of several that share their parallelism, or one whose ranks others address.

What the flags mean to vLLM, and which of them imply one another:
https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/engine/arg_utils.py#L2380
https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/entrypoints/cli/serve.py#L78
"""

from __future__ import annotations

from collections.abc import Mapping

from safe_vllm.plan.flags import Reading
from safe_vllm.plan.grammar import (
    DATA_PARALLEL,
    DATA_PARALLEL_BACKEND,
    DATA_PARALLEL_LOCAL,
    DATA_PARALLEL_RANK,
    DATA_PARALLEL_START_RANK,
    EXECUTOR,
    EXTERNAL_BALANCER,
    HEADLESS,
    HYBRID_BALANCER,
    NODE_RANK,
    NODES,
    PORTS_BALANCER,
)

MEMBERS = (HEADLESS, EXTERNAL_BALANCER, DATA_PARALLEL_RANK)
"""Flags of a server that runs some ranks, while other servers run the others."""

SCALES = ((NODES, 1), (NODE_RANK, 0), (DATA_PARALLEL_START_RANK, 0))
"""Numbers above which a server is a member: the nodes, which of them this is, and the first of the ranks that run here.

Where the others meet (``--master-addr``, ``--data-parallel-address``) says nothing: it may be here.
"""

BALANCERS = (HYBRID_BALANCER, PORTS_BALANCER)
"""Flags with which a balancer outside knows the ranks: a server with fewer of them would not answer for all."""

MUST_NOT = "makes this server one of a group, which it must not change alone"
FROM_OUTSIDE = "VLLM_DP_"
"""The variables that set data parallelism where the flag does not, or says 1."""
TORCHRUN = "TORCHELASTIC_RUN_ID"
"""torchrun gives this to each process that it starts, and their number in ``WORLD_SIZE``.

https://docs.pytorch.org/docs/stable/elastic/run.html
"""
RAY_CLASS = ".Ray"
"""How the name of an executor begins that starts its workers through Ray, where a class is given.

https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/executor/abstract.py#L93
"""


def group(reading: Reading, environment: Mapping[str, str]) -> str | None:
    """Return why this server may not change its parallelism alone; ``None``: it may."""
    for name in MEMBERS:
        if reading.setting(name).value not in (None, False):
            return f"{name} {MUST_NOT}"
    for name, alone in SCALES:
        if (reading.number(name) or 0) > alone:
            return f"{name} {reading.number(name)} {MUST_NOT}"
    if reading.setting(EXECUTOR).value == "external_launcher":
        return f"{EXECUTOR} external_launcher {MUST_NOT}"
    variable = next((name for name in sorted(environment) if name.startswith(FROM_OUTSIDE)), None)
    if variable:
        return f"{variable} in the environment sets data parallelism from outside"
    if TORCHRUN in environment and environment.get("WORLD_SIZE", "1") != "1":
        return f"WORLD_SIZE {environment['WORLD_SIZE']} of torchrun {MUST_NOT}"
    return _elsewhere(reading)


def addressed(reading: Reading) -> str | None:
    """Return why the number of data-parallel ranks has to stay although all may run here; ``None``: it has not."""
    name = next((name for name in BALANCERS if reading.setting(name).value is True), None)
    return f"{name} makes a balancer outside address each rank" if name else None


def placed_by_ray(reading: Reading) -> str | None:
    """Return the flag by which Ray decides where the engines run; ``None``: it does not."""
    names = (EXECUTOR, DATA_PARALLEL_BACKEND)
    return next((name for name in names if is_ray(reading.setting(name).value)), None)


def is_ray(backend: str | bool | None) -> bool:
    """Return whether a backend is Ray, by its name or as the class of an executor."""
    return backend == "ray" or RAY_CLASS in str(backend)


def _elsewhere(reading: Reading) -> str | None:
    """Return that other nodes run a part of the engines. With Ray they do so at the command of this one."""
    local = reading.setting(DATA_PARALLEL_LOCAL)
    everywhere = reading.number(DATA_PARALLEL)
    if local.value is None or reading.setting(DATA_PARALLEL_BACKEND).value == "ray":
        return None
    if reading.number(DATA_PARALLEL_LOCAL) == everywhere:
        return None
    return f"{DATA_PARALLEL_LOCAL} {local.value} {MUST_NOT}: not all of the {everywhere} engines run here"
