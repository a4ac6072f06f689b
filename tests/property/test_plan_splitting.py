"""Whatever the sizes, the model and the flags: lower parallelism takes the same GPUs and no more memory on any."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from safe_vllm.machine.facts import Gpu, Machine, ModelShape
from safe_vllm.plan.edit import Words
from safe_vllm.plan.flags import read, scan
from safe_vllm.plan.grammar import SAFETY_FLAGS
from safe_vllm.plan.ladder import LeftOut
from safe_vllm.plan.parallelism import less_parallel, no_expert_parallel

Command = tuple[Words, dict[str, object] | None]
"""A command line, and what the file that its ``--config`` names says."""

SIZES = st.sampled_from([1, 2, 3, 4, 6, 8])
SPELLINGS = {
    "data-parallel-size": ("-dp", "--data-parallel-size", "--data_parallel_size"),
    "tensor-parallel-size": ("-tp", "--tensor-parallel-size", "--te"),
    "prefill-context-parallel-size": ("-pcp",),
    "decode-context-parallel-size": ("-dcp",),
    "pipeline-parallel-size": ("-pp",),
    "data-parallel-size-local": ("-dpl", "--data_parallel_size_local"),
    "data-parallel-start-rank": ("-dpr", "--data-parallel-start-rank"),
}
STRANGERS = [(), (), ("--api-key", "a", "b"), ("--seed", "-1"), ("--future-flag", "-tp"), ("-n", "1")]
EXTRAS = [(), (), (), ("--enable-eplb",), ("--enable-dbo",), ("--all2all-backend", "deepep_low_latency")]
MEMBERS = st.sampled_from(
    [("--headless",), ("-n", "2"), ("--nnodes=2",), ("-dpn", "0"), ("-dpr", "1"), ("-dpe",), ("-dpl", "7")]
)


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, int]:
    """What a command line or a file says of the sizes of a server that is alone."""
    data = draw(SIZES)
    chosen = {"data-parallel-size": data, "tensor-parallel-size": draw(SIZES)}
    chosen["prefill-context-parallel-size"] = draw(st.sampled_from([1, 1, 2]))
    chosen["decode-context-parallel-size"] = draw(st.sampled_from([1, 1, 2, 4]))
    chosen["pipeline-parallel-size"] = draw(st.sampled_from([1, 1, 2]))
    if draw(st.booleans()):
        chosen["data-parallel-size-local"] = data
    if draw(st.booleans()):
        chosen["data-parallel-start-rank"] = 0
    return {name: size for name, size in chosen.items() if size != 1 or draw(st.booleans())}


@st.composite
def commands(draw: st.DrawFn) -> Command:
    """A command line and the file that its ``--config`` names, each with a part of the sizes."""
    parts: list[Words] = [draw(st.sampled_from(STRANGERS)), draw(st.sampled_from(EXTRAS))]
    config: dict[str, object] = {}
    for name, size in draw(sizes()).items():
        if draw(st.integers(0, 4)) == 0:
            config[name] = size
            continue
        flag = draw(st.sampled_from(SPELLINGS[name]))
        parts.append((f"{flag}={size}",) if draw(st.booleans()) else (flag, str(size)))
    parts.append(draw(st.sampled_from([("-ep",), ("-ep",), ("--enable-expert-parallel",), ()])))
    words = tuple(word for part in draw(st.permutations(parts)) for word in part)
    return (("m", *words) if draw(st.booleans()) else (*words, "m")), config or None


COMMANDS = commands()
SHAPES = st.builds(
    ModelShape,
    attention_heads=st.sampled_from([None, 4, 6, 9, 12, 28, 48, 96]),
    kv_heads=st.sampled_from([None, 1, 2, 3, 4, 12]),
    experts=st.sampled_from([8, 60, 128]),
    moe_intermediate_size=st.sampled_from([None, 704, 768, 1536, 2048, 2880]),
    weight_format=st.just("fp8"),
    block_size=st.sampled_from([None, 64, 128]),
)
MACHINES = st.builds(
    lambda model, count: Machine("x86_64", model=model, gpus=(Gpu("NVIDIA B200"),) * count),
    SHAPES,
    st.sampled_from([0, 0, 0, 8, 768]),
)


def number(words: Words, config: Mapping[str, object] | None, name: str) -> int:
    return read(words, config).number(name) or 1


def ranks(words: Words, config: Mapping[str, object] | None) -> int:
    """Over how many GPUs the data and tensor parallelism of a command spread each layer."""
    return number(words, config, "--data-parallel-size") * number(words, config, "--tensor-parallel-size")


def expert_share(words: Words, config: Mapping[str, object] | None, model: ModelShape) -> int:
    """The columns of expert weights that the fullest GPU holds for one layer."""
    spread = ranks(words, config) * number(words, config, "--prefill-context-parallel-size")
    experts, width = model.experts or 0, model.moe_intermediate_size or 2048
    if read(words, config).setting("--enable-expert-parallel").value is True:
        return ceil(experts / spread) * width
    return experts * ceil(width / spread)


def context_fits(words: Words, config: Mapping[str, object] | None) -> bool:
    """Whether vLLM takes the context parallelism of a command."""
    tensor, prefill, decode = (
        number(words, config, f"--{name}-parallel-size") for name in ("tensor", "prefill-context", "decode-context")
    )
    return tensor % decode == 0 if prefill == 1 else decode in (1, prefill, tensor * prefill)


def untouched(words: Words) -> Words:
    covered = {
        at for found in scan(words) if found.flag.name in SAFETY_FLAGS for at in range(found.at, found.at + found.size)
    }
    return tuple(word for at, word in enumerate(words) if at not in covered)


@given(COMMANDS, MACHINES)
def test_lowered_parallelism_takes_the_same_gpus_and_splits_the_model_evenly(
    command: Command, machine: Machine
) -> None:
    words, config = command
    result = less_parallel(words, config, {}, machine)
    if isinstance(result, LeftOut):
        return
    tensor = number(result, config, "--tensor-parallel-size")
    model = machine.model or ModelShape()
    assert ranks(result, config) == ranks(words, config)
    assert number(result, config, "--data-parallel-size") < number(words, config, "--data-parallel-size")
    assert (model.attention_heads or 0) % tensor == 0
    assert context_fits(result, config)
    assert not model.kv_heads or model.kv_heads % tensor == 0 or tensor % model.kv_heads == 0
    assert untouched(result) == untouched(words)


@given(COMMANDS, MACHINES)
def test_the_flags_of_local_ranks_follow(command: Command, machine: Machine) -> None:
    """vLLM refuses more local engines than there are, and takes one with a start rank for a balancer's."""
    words, config = command
    result = less_parallel(words, config, {}, machine)
    if isinstance(result, LeftOut):
        return
    reading = read(result, config)
    local = reading.number("--data-parallel-size-local")
    assert local in (None, reading.number("--data-parallel-size"))
    assert local != 1 or reading.setting("--data-parallel-start-rank").value is None


@given(COMMANDS, MACHINES)
def test_no_rung_gives_a_gpu_more_of_the_experts(command: Command, machine: Machine) -> None:
    words, config = command
    model = machine.model or ModelShape()
    for step in (less_parallel, no_expert_parallel):
        result = step(words, config, {}, machine)
        if not isinstance(result, LeftOut) and model.moe_intermediate_size:
            assert expert_share(result, config, model) <= expert_share(words, config, model)


@given(COMMANDS, MACHINES, MEMBERS)
def test_a_member_of_a_group_is_left_as_it_is(command: Command, machine: Machine, flag: Words) -> None:
    words, config = command
    assert isinstance(less_parallel((*words, *flag), config, {}, machine), LeftOut)
    assert isinstance(no_expert_parallel((*words, *flag), config, {}, machine), LeftOut)


@given(COMMANDS, MACHINES)
def test_experts_are_only_split_into_whole_blocks(command: Command, machine: Machine) -> None:
    words, config = command
    result = no_expert_parallel(words, config, {}, machine)
    if isinstance(result, LeftOut):
        return
    model = machine.model or ModelShape()
    spread = ranks(result, config) * number(result, config, "--prefill-context-parallel-size")
    assert read(result, config).setting("--enable-expert-parallel").value is False
    assert (model.moe_intermediate_size or 0) % (spread * (model.block_size or 1)) == 0
    assert untouched(result) == untouched(words)
