"""The schema of a hardware profile: when it fits, what it sets, and which rungs its ladder has."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

RungName = Literal["as-asked", "no-autotune", "triton", "less-parallel", "no-expert-parallel"]
CudaLibPath = Literal["auto", "unset"]
Status = Literal["verified", "unverified"]

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="a name without spaces and slashes")]
Link = Annotated[str, Meta(pattern=r"^https?://[^\s]+$", description="an address that starts with https://")]
Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="a name of letters, digits and _")]
Value = Annotated[str, Meta(pattern=r"^[^\x00]*$", description="text without a NUL")]
Backend = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", description="a name as --moe-backend takes it")]
Operator = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_:]+$", description="an operator such as flashinfer::trtllm_bf16_moe")
]
Capability = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+$", description='major and minor in quotes, such as "10.0"')]
Word = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]

SAFE = "safe"
"""The MoE backend that is safe for this weight format and device, whatever it is called."""


class Reason(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why a value is what it is."""

    because: str
    """A sentence."""
    links: tuple[Link, ...] = ()
    """Where it can be read."""


class Fits(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a profile fits. All that is stated must hold, but an exact GPU makes up for a foreign generation."""

    gpus: tuple[Word, ...] = ()
    """Whole words of the GPU's name, such as GB200."""
    compute_capabilities: tuple[Capability, ...] = ()
    """The generation, for GPUs whose name no profile has."""
    architectures: tuple[Word, ...] = ()
    """As uname -m prints them."""
    has_gpu: bool | None = None
    """false: a machine whose vLLM runs on the CPU."""
    vllm: str | None = None
    """Versions of vLLM, such as ">=0.20,<0.24". A version that is not known is in no range."""
    flashinfer: str | None = None
    """Versions of flashinfer-python, in the same form."""


class DeviceLimits(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one GPU has, as NVIDIA states it. It is printed and never stops a launch."""

    sms: Count | None = None
    """Streaming multiprocessors."""
    shared_memory_per_block_kib: Count | None = None
    """The most shared memory that one thread block can ask for."""
    memory_gib: Annotated[float, Meta(gt=0)] | None = None
    """Memory; a little less of it can be used."""


class Policy(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long and how often. Seconds unless the name says otherwise; what the operator asks for comes first."""

    max_attempts: Count | UnsetType = UNSET
    """Then give up."""
    stop_timeout_s: Seconds | UnsetType = UNSET
    """From the request to stop until SIGKILL."""
    fault_grace_s: Seconds | UnsetType = UNSET
    """From a fault line in the output to our own action."""
    backoff_s: Seconds | UnsetType = UNSET
    """Before the second attempt; it doubles from attempt to attempt."""
    proving_window_s: Seconds | UnsetType = UNSET
    """A server that served so long had proven its rung."""
    relapse_window_s: Seconds | UnsetType = UNSET
    """A proven server that dies within so long of the last death at its rung was not hit by chance."""
    start_budget_s: Seconds | UnsetType | None = UNSET
    """For servers that never became ready, together; null: no limit."""
    service_budget_s: Seconds | UnsetType | None = UNSET
    """For servers that became ready and died before they proved themselves, together; null: no limit."""
    start_timeout_s: Seconds | UnsetType | None = UNSET
    """From start until ready; null: as long as it makes progress."""
    start_silence_s: Seconds | UnsetType | None = UNSET
    """While it starts, without output and without data that is read or written; null: for ever."""
    autotune_silence_s: Seconds | UnsetType | None = UNSET
    """The same while kernels are being autotuned."""
    capture_silence_s: Seconds | UnsetType | None = UNSET
    """The same while CUDA graphs are being captured."""
    stall_s: Seconds | UnsetType | None = UNSET
    """While it serves, with requests that wait and no token; null: for ever."""


class RungEntry(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rung, and what the profile adds to it. All of it stays in effect on the rungs below."""

    rung: RungName
    """Which one."""
    environment: dict[Variable, Value] = {}
    """Variables set from this rung on."""
    moe_backend: Backend | None = None
    """The MoE backend from this rung on; "safe": the one that is safe for the weights and the device."""
    skip_autotune_ops: tuple[Operator, ...] = ()
    """FlashInfer operators that are not tuned, instead of switching autotune off; from vLLM 0.26 on."""
    max_num_batched_tokens: Count | None = None
    """The most tokens of one step, from this rung on."""
    attention_workspace_mib: Count | None = None
    """FlashInfer's scratch memory for attention, from this rung on."""
    note: str | None = None
    """What a reader should know; it is shown with the rung."""
    because: str | None = None
    """Why the ladder has this rung."""
    links: tuple[Link, ...] = ()
    """Where that can be read."""
    reasons: dict[str, Reason] = {}
    """Reasons for single values of the rung, by key: moe_backend, environment.NCCL_DEBUG."""
    status: Status = "unverified"
    """verified: a public report says that this rung helped on this hardware. Never inherited."""


class Profile(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything one YAML file says about a family of hardware."""

    name: Name
    """As the file is called."""
    extends: Name | None = None
    """Another profile, from which everything comes that is not said here."""
    description: str = ""
    """For what hardware, in one line."""
    fits: Fits = Fits()
    """When it is chosen."""
    environment: dict[Variable, Value] = {}
    """Variables set at every rung, unless the operator set them."""
    cuda_lib_path: CudaLibPath = "auto"
    """auto: set CUDA_LIB_PATH where it has an effect."""
    moe_backend: Backend | None = None
    """Asked for where the operator asked for none."""
    limits: DeviceLimits = DeviceLimits()
    """What one GPU has. It never stops a launch."""
    policy: Policy = Policy()
    """Limits of the launch, for which the operator gave no option."""
    ladder: tuple[RungEntry, ...] = ()
    """The rungs in order, from what was asked for down to the safest."""
    without: tuple[RungName, ...] = ()
    """Rungs of the extended profile that this one does not have."""
    because: str | None = None
    """Why there is such a profile."""
    links: tuple[Link, ...] = ()
    """Where the reasons are discussed."""
    reasons: dict[str, Reason] = {}
    """Reasons for single values, by key: limits.sms, environment.NCCL_DEBUG."""


def reason_of(stated: Profile | RungEntry, key: str) -> Reason | None:
    """Return why a value is what it is: its own reason, else that of what it is a part of."""
    while key:
        if key in stated.reasons:
            return stated.reasons[key]
        key = key.rpartition(".")[0]
    return Reason(stated.because, stated.links) if stated.because else None
