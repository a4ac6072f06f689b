"""What the fake vLLM is told to do: steps, and whole scenes of what real vLLM does, sentence for sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Step = dict[str, Any]
Scene = list[Step]

ENGINE = "VLLM::EngineCore"
WORKER = "VLLM::Worker_TP0"

ILLEGAL_ACCESS = "CUDA error: an illegal memory access was encountered"
WORKER_TRACEBACK = (
    "(Worker_TP0 pid=4321) ERROR 11-30 08:40:48 [multiproc_executor.py:949] WorkerProc hit an exception.\n"
    "Traceback (most recent call last):\n"
    '  File "/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 930, in compile_or_warm_up_model\n'
    "    kernel_warmup(self)\n"
    "torch.AcceleratorError: {}\n"
)
INITIALISATION_FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
)
REFUSED_BACKEND = (
    "ValueError: Unquantized MoE backend FlashInfer TRTLLM does not support the deployment configuration since kernel "
    "does not support current device cpu."
)
TOO_LITTLE_MEMORY = (
    "ValueError: Free memory on device cuda:0 (3.2/79.1 GiB) on startup is less than desired GPU memory utilization "
    "(0.92, 72.8 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
MISSING_MODEL = (
    "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
    "'/models/absent'. Use `repo_type` argument if needed."
)
PORT_IN_USE = "OSError: [Errno 98] Address already in use"
BAD_CONFIGURATION = (
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ParallelConfig\n"
    "  Value error, data_parallel_size_local (2) must be <= data_parallel_size (1)"
)


def write(to: str, data: bytes | str, **how: Any) -> Step:
    """Write bytes to ``stdout`` or ``stderr``."""
    text = data if isinstance(data, str) else data.decode("latin-1")
    return {"do": "write", "to": to, "data": text.encode().decode("latin-1") if isinstance(data, str) else text, **how}


def fork(title: str, *steps: Step, **how: Any) -> Step:
    """Start a process that plays steps; ``leaves_session``, ``double``, ``ignores=[SIGNALS]`` say how."""
    return {"do": "fork", "title": title, "steps": list(steps), **how}


def on_signal(*signals: str, steps: Scene | None = None) -> Step:
    """Note these signals, and play steps, instead of dying of them."""
    return {"do": "on-signal", "signals": list(signals), "steps": steps or []}


def wait_for_file(path: Path) -> Step:
    """Go on when the test makes this file."""
    return {"do": "wait-for-file", "path": str(path)}


def kill(title: str, signal: str) -> Step:
    """Send a signal to the process with this title."""
    return {"do": "kill", "title": title, "signal": signal}


def wait_until_watched(title: str) -> Step:
    """Go on when somebody above the leader watches the process with this title."""
    return {"do": "wait-until-watched", "title": title}


def mark(name: str) -> Step:
    """Tell the test where the scene is."""
    return {"do": "mark", "name": name}


def repeat(*steps: Step, pause_s: float, **until: Any) -> Step:
    """Play steps again and again, so many ``times`` or until there is a file ``path``."""
    return {"do": "repeat", "steps": list(steps), "pause_s": pause_s, **until}


def churn(mib: int) -> Step:
    """Write data to nowhere."""
    return {"do": "churn", "mib": mib}


def fill(path: Path, mib: int) -> Step:
    """Leave a file of that size."""
    return {"do": "fill", "path": str(path), "mib": mib}


def die(signal: str) -> Step:
    """End by a signal."""
    return {"do": "die", "signal": signal}


def leave(status: int) -> Step:
    """End with a status."""
    return {"do": "exit", "status": status}


CANARY = (200,) * 4
"""What a server must answer to be ready; what it answers next is a second canary, or a client's request."""
DEAF = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]
HOLD: Step = {"do": "hold"}
WAIT_FOR_CHILD: Step = {"do": "wait-for-child"}


def serve(
    health: tuple[Any, ...] = (200,),
    completions: tuple[Any, ...] = (200,),
    metrics: tuple[Any, ...] = ([0, 0],),
    *,
    stops: bool = True,
    notices: bool = True,
    status: int = 0,
    offers: tuple[str, ...] = ("/v1/completions",),
) -> Step:
    """Open the port and answer. ``offers``: the routes for real requests, which follow one script, ``completions``.

    Each answer is a status, ``never``, ``drop``, ``odd`` (a completion without sense), or
    ``{"first": STEPS, "then": ANSWER}``; the last one holds for ever.
    ``metrics``: how many requests ``[RUN, WAIT]``; ``[RUN, WAIT, "grows"]`` where work was done since the last time.
    ``stops``: SIGTERM and SIGINT end it in good order. ``notices``: the end of a child ends it, with ``status``.
    """
    answers = {"health": list(health), "completions": list(completions), "metrics": list(metrics)}
    return {"do": "serve", **answers, "offers": list(offers), "stops": stops, "notices": notices, "status": status}


def engine(*steps: Step, **how: Any) -> Step:
    """Start an engine core that notes the signal that ends it."""
    return fork(ENGINE, on_signal(*DEAF, steps=[leave(0)]), *(steps or (HOLD,)), **how)


def engine_with_worker(*steps: Step) -> Step:
    """Start an engine core that holds a worker, and ends with 1 when the worker has ended."""
    last = write(
        "stderr", "ERROR [multiproc_executor.py:300] Worker proc VllmWorker-0 died unexpectedly (exit code: None)\n"
    )
    return fork(ENGINE, fork(WORKER, *(steps or (HOLD,))), WAIT_FOR_CHILD, last, leave(1))


def serve_ok(**answers: Any) -> Scene:
    """Come up, serve, and stop in good order when asked."""
    return [engine(), serve(**answers)]


def serve_with_worker(**answers: Any) -> Scene:
    """Come up with an engine core and a worker under it."""
    return [engine_with_worker(), serve(**answers)]


def die_first_inference(signal: str = "SIGSEGV") -> Scene:
    """Be healthy, lose the worker to a signal at the first completion, and end with 0 as vLLM does."""
    return serve_with_worker(
        completions=({"first": [wait_until_watched(WORKER), kill(WORKER, signal)], "then": "drop"},)
    )


def die_at_startup(signal: str) -> Scene:
    """Lose the engine core to a signal before there is anything to serve."""
    return [
        fork(ENGINE, wait_until_watched(ENGINE), die(signal)),
        WAIT_FOR_CHILD,
        *fail(INITIALISATION_FAILED.rstrip("\n")),
    ]


def ima_at_startup(text: str = ILLEGAL_ACCESS) -> Scene:
    """Print a kernel fault as torch does, and fail to start."""
    return fail(WORKER_TRACEBACK.format(text) + INITIALISATION_FAILED.rstrip("\n"))


def fail(*lines: str, status: int = 1) -> Scene:
    """Print lines on stderr and end."""
    return [write("stderr", "".join(f"{line}\n" for line in lines if line)), leave(status)]


def argparse_error() -> Scene:
    """Refuse an unknown flag."""
    return fail("usage: vllm serve [model_tag] [options]", "vllm: error: unrecognized arguments: --bogus", status=2)


def escapees() -> Scene:
    """Start whatever a library could start: each holds the pipes open."""
    again = fork("reborn", HOLD, leaves_session=True, double=True, ignores=DEAF)
    return [
        fork("holder", HOLD),
        fork("own-session", HOLD, leaves_session=True),
        fork("double-fork", HOLD, leaves_session=True, double=True),
        fork("deaf", HOLD, leaves_session=True, double=True, ignores=DEAF),
        fork("parent", fork("grandchild", HOLD, leaves_session=True, double=True), leave(0)),
        fork("phoenix", on_signal("SIGTERM", steps=[again, leave(0)]), HOLD),
    ]


def load_until(path: Path) -> Scene:
    """Load as vLLM does: the leader swallows what would stop it (0.11 to 0.33), and the engine core dies of it.

    See https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/utils/__init__.py (``zmq_socket_ctx``).
    """
    loading = [write("stdout", "INFO [gpu_model_runner.py:5991] Starting to load model\n"), mark("loading")]
    return [fork(ENGINE, HOLD), on_signal("SIGTERM", "SIGINT"), *loading, wait_for_file(path)]
