"""What the operator asked for, before anything is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIX = "SAFE_VLLM_"
"""How the variables of our options begin."""
SWITCHED_ON = ("1", "true", "t", "yes", "y", "on")
"""What ``SAFE_VLLM_OFF`` may say, in any case, to have plain vLLM."""


def is_switched_on(value: str) -> bool:
    """Return whether that is what a value of ``SAFE_VLLM_OFF`` says."""
    return value.strip().lower() in SWITCHED_ON


PINS = (
    "moe-backend",
    "autotune",
    "workspace",
    "data-parallel-size",
    "tensor-parallel-size",
    "expert-parallel",
    "caches",
)
"""What ``--pin`` takes."""


MAX_PAUSE_S = 60.0
"""What the pause between attempts doubles up to, before jitter."""


@dataclass(frozen=True)
class Limits:
    """How long and how often. Seconds unless the name says otherwise."""

    max_attempts: int = 8
    stop_timeout_s: float = 60.0
    """From the request to stop until SIGKILL."""
    fault_grace_s: float = 20.0
    """From a fault line in the output to our own action."""
    backoff_s: float = 2.0
    """Before the second attempt; it doubles from attempt to attempt, up to 60."""
    proving_window_s: float = 600.0
    """A server that died later than this after it was ready had proven its rung."""
    relapse_window_s: float = 21_600.0
    """A rung is repeated after a proven server died, unless that server had served for less than this and came up after
    a death at the same rung: then the fault comes back."""
    start_budget_s: float | None = 14_400.0
    """For servers that never became ready, since the first of them was spawned; ``None``: no limit."""
    service_budget_s: float | None = 14_400.0
    """For servers that died in service before they proved themselves, since the first of them died; ``None``: none."""
    start_timeout_s: float | None = None
    """From spawn until ready; ``None``: as long as it makes progress."""
    start_silence_s: float | None = 1800.0
    """While it starts, without output and without data that is read or written; ``None``: for ever."""
    autotune_silence_s: float | None = 3600.0
    """The same while kernels are being autotuned: FlashInfer up to 0.6.7 prints nothing in between."""
    capture_silence_s: float | None = 1800.0
    """The same while CUDA graphs are being captured."""
    stall_s: float | None = 420.0
    """While it serves, with requests that wait and no token; vLLM's own limit on one step is 300."""


@dataclass(frozen=True)
class Intent:
    """The operator's words for vLLM, and what our own options said."""

    words: tuple[str, ...]
    """Every word after ``serve``, verbatim."""
    vllm: tuple[str, ...] = ("vllm",)
    profile: str | None = None
    """A name or a file; ``None``: choose one for this machine."""
    profile_dir: str | None = None
    wants_canary: bool = True
    output: str = "text"
    """``text`` or ``json``: how our own lines on stderr look."""
    events: str | None = None
    """A file that gets one JSON object per event."""
    status_address: str | None = None
    """Where the status server listens, as it was written; ``None``: there is none."""
    pins: frozenset[str] = frozenset()
    """Settings that no rung may change, by the names in ``PINS``."""
    start_at: str | None = None
    """The name of the rung to start with; ``None``: what is known and remembered decides."""
    observes_only: bool = False
    """Judge and report, but change nothing and end nothing."""
    state_dir: str | None = None
    """Where what happened is kept; ``None``: where the system says, see ``record.directory``."""
    remember_for_days: float = 14.0
    """How long what held and what broke is believed; 0: nothing is remembered."""
    machine: str | None = None
    """A file with a recorded machine to plan for; ``None``: this one."""
    asked: Mapping[str, float] = field(default_factory=dict)
    """The limits that the operator gave, by the names in ``Limits``."""
