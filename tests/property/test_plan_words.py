"""Whatever the command line: untouched words survive in order, changes hold, and doing them twice changes nothing."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_vllm import known
from safe_vllm.machine.facts import Installation, Machine
from safe_vllm.machine.profile_files import read_profiles
from safe_vllm.plan.build import make_plan, scene_of
from safe_vllm.plan.edit import Words, with_switch, with_value
from safe_vllm.plan.flags import read, scan
from safe_vllm.plan.grammar import FLAGS, SAFETY_FLAGS
from safe_vllm.plan.intent import Intent
from safe_vllm.plan.ladder import Plan
from safe_vllm.plan.profile import Profile
from safe_vllm.plan.profile_reading import parse
from safe_vllm.plan.settings import autotune, moe_backend, with_moe_backend, without_autotune

BACKENDS = st.sampled_from(["auto", "triton", "marlin", "flashinfer_trtllm", "TRITON", "flashinfer-trtllm"])
PROFILES = [parse(file) for file in read_profiles(None, None, {})]
MACHINE = Machine("x86_64", installation=Installation(vllm="0.32.0"))
DIALECT = known.dialects().of("0.32.0")


@st.composite
def long_form(draw: st.DrawFn, name: str, negative: bool = False) -> str:
    """One spelling of a long flag: cut short, with underscores here and there."""
    flag = FLAGS[name]
    cut = name[2 : draw(st.integers(len(flag.shortest), len(name)))]
    text = f"no-{cut}" if negative else cut
    return "--" + "".join(draw(st.sampled_from("-_")) if char == "-" else char for char in text)


@st.composite
def spelled(draw: st.DrawFn, name: str, values: st.SearchStrategy[str]) -> tuple[str, ...]:
    """A flag with a value, joined or apart."""
    short = FLAGS[name].short
    flag = draw(st.just(short) if short and draw(st.booleans()) else long_form(name))
    value = draw(values)
    return (f"{flag}={value}",) if draw(st.booleans()) else (flag, value)


@st.composite
def dotted(draw: st.DrawFn, key: str, values: st.SearchStrategy[str]) -> tuple[str, ...]:
    flag, value = f"{draw(st.sampled_from(['--kernel-config', '--kernel_config']))}.{key}", draw(values)
    return (f"{flag}={value}",) if draw(st.booleans()) else (flag, value)


SIZES = st.sampled_from(["1", "2", "4"])
KERNEL_CONFIGS = st.fixed_dictionaries(
    {}, optional={"moe_backend": BACKENDS, "enable_flashinfer_autotune": st.booleans(), "other": st.integers()}
).map(json.dumps)
SAFETY = st.one_of(
    spelled("--moe-backend", BACKENDS),
    spelled("--tensor-parallel-size", SIZES),
    spelled("--data-parallel-size", SIZES),
    spelled("--kernel-config", KERNEL_CONFIGS),
    dotted("moe_backend", BACKENDS),
    dotted("enable_flashinfer_autotune", st.sampled_from(["true", "False", "0", "1"])),
    st.booleans().flatmap(lambda off: long_form("--enable-flashinfer-autotune", off)).map(lambda word: (word,)),
    st.booleans().flatmap(lambda off: long_form("--enable-expert-parallel", off)).map(lambda word: (word,)),
    st.just(("-ep",)),
)
STRANGERS = st.sampled_from(
    [
        ("--enforce-eager",),
        ("--max-model-len", "1k"),
        ("--api-key", "a", "b"),
        ("--hf-overrides.x", "-tp"),
        ("--chat-template", "{{ a }} --moe-backend triton"),
        ("--seed", "-1"),
        ("--compilation-config", '{"a": [1]}'),
        ("-O3",),
        ("--future-flag=é\t",),
    ]
)
LINES = st.builds(
    lambda parts, rest: ("model", *(word for part in parts for word in part), *rest),
    st.lists(st.one_of(SAFETY, STRANGERS), max_size=6),
    st.sampled_from([(), ("--", "--moe-backend", "x")]),
)
CONFIGS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "moe-backend": BACKENDS,
        "kernel-config": st.fixed_dictionaries({}, optional={"moe_backend": BACKENDS, "other": st.integers()}),
        "enable-expert-parallel": st.booleans(),
        "data_parallel_size": st.sampled_from([1, 2, 4]),
        "kernel_config.enable_flashinfer_autotune": st.sampled_from(["true", "false"]),
        "port": st.integers(1, 9),
    },
)


def untouchable(words: Sequence[str]) -> Words:
    """Return the words that belong to no safety setting."""
    covered = {
        at for found in scan(words) if found.flag.name in SAFETY_FLAGS for at in range(found.at, found.at + found.size)
    }
    return tuple(word for at, word in enumerate(words) if at not in covered)


@given(LINES, CONFIGS, BACKENDS)
def test_a_backend_that_was_set_is_in_effect(words: Words, config: dict[str, object] | None, backend: str) -> None:
    changed = with_moe_backend(words, backend, config)
    assert moe_backend(changed, config).value == backend.lower().replace("-", "_")
    assert with_moe_backend(changed, backend, config) == changed
    assert untouchable(changed) == untouchable(words)


@given(LINES, CONFIGS)
def test_autotune_that_was_switched_off_is_off(words: Words, config: dict[str, object] | None) -> None:
    changed = without_autotune(words, config)
    both = [found for found in scan(words) if found.flag.name == "--enable-flashinfer-autotune"]
    assert autotune(changed, config).value is False or both  # flag and key together: vLLM rejects the words themselves
    assert without_autotune(changed, config) == changed
    assert untouchable(changed) == untouchable(words)


@given(LINES, CONFIGS, st.booleans())
def test_a_switch_that_was_set_is_in_effect(words: Words, config: dict[str, object] | None, is_on: bool) -> None:
    changed = with_switch(words, "--enable-expert-parallel", is_on, config)
    assert read(changed, config).setting("--enable-expert-parallel").value is is_on
    assert with_switch(changed, "--enable-expert-parallel", is_on, config) == changed
    assert untouchable(changed) == untouchable(words)


@given(LINES, CONFIGS, SIZES)
def test_a_size_that_was_set_is_in_effect(words: Words, config: dict[str, object] | None, size: str) -> None:
    changed = with_value(words, "--data-parallel-size", size, config)
    assert read(changed, config).setting("--data-parallel-size").value == size
    assert with_value(changed, "--data-parallel-size", size, config) == changed
    assert untouchable(changed) == untouchable(words)


@given(LINES, CONFIGS)
def test_settings_do_not_disturb_each_other(words: Words, config: dict[str, object] | None) -> None:
    before = moe_backend(words, config)
    assert moe_backend(without_autotune(words, config), config).value == before.value
    assert autotune(with_moe_backend(words, "triton", config), config).value == autotune(words, config).value


def planned(words: Words, profile: Profile, config: dict[str, object] | None, without: Collection[str] = ()) -> Plan:
    intent = Intent(words)
    scene = scene_of(intent, profile, machine=MACHINE, dialect=DIALECT, environment={}, config=config)
    return make_plan(intent, scene, "", without)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@given(words=LINES, config=CONFIGS)
def test_p2_every_rung_keeps_the_operators_words_and_differs_from_its_neighbour(
    profile: Profile, words: Words, config: dict[str, object] | None
) -> None:
    plan = planned(words, profile, config)
    assert plan == planned(words, profile, config)
    assert plan.ladder.rungs[0].words == words
    for above, below in zip(plan.ladder.rungs, plan.ladder.rungs[1:], strict=False):
        assert (above.words, above.environment) != (below.words, below.environment)
        assert untouchable(below.words) == untouchable(words)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@given(words=LINES, config=CONFIGS, data=st.data())
def test_leaving_out_the_change_of_a_rung_changes_only_the_rungs_below_it(
    profile: Profile, words: Words, config: dict[str, object] | None, data: st.DataObject
) -> None:
    """So a place on the ladder means the same rung before and after, for every rung that was run."""
    rungs = planned(words, profile, config).ladder.rungs
    refused = data.draw(st.integers(0, len(rungs) - 1))
    again = planned(words, profile, config, without={rungs[refused].name}).ladder.rungs
    assert again[: refused + 1] == rungs[: refused + 1]
    assert len({(rung.words, rung.environment) for rung in again}) == len(again)
    assert all(untouchable(rung.words) == untouchable(words) for rung in again)


@given(
    st.lists(st.text(max_size=6) | st.sampled_from(["--", "-", "--moe-backend", "-tp", "=", "--kernel-config", "{"]))
)
def test_any_words_at_all_can_be_read(words: list[str]) -> None:
    assert all(0 <= found.at < found.at + found.size <= len(words) for found in scan(words))
    assert untouchable(without_autotune(words)) == untouchable(words)
