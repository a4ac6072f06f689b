"""A profile is understood strictly: every mistake is named with its line, its place and what was expected."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from safe_vllm.data.strict_yaml import load_with_lines
from safe_vllm.errors import Trouble
from safe_vllm.machine.facts import Gpu, Machine, ProfileFile
from safe_vllm.machine.profile_files import read_profiles
from safe_vllm.plan.intent import Limits
from safe_vllm.plan.ladder import RUNG_NAMES
from safe_vllm.plan.profile import Policy, Profile, Reason, RungEntry, reason_of
from safe_vllm.plan.profile_reading import parse, problems_of
from safe_vllm.plan.profile_use import device_lines, limits_of

ORDER = ", ".join(RUNG_NAMES)
SHIPPED = {file.path.rpartition("/")[2].removesuffix(".yaml"): parse(file) for file in read_profiles(None, None, {})}


def content(**more: Any) -> dict[str, Any]:
    return {"name": "mine", "description": "d", "ladder": [{"rung": "as-asked"}], **more}


def problems(**more: Any) -> tuple[str, ...]:
    return problems_of(ProfileFile("/x/mine.yaml", content(**more)))


def rung(**more: Any) -> dict[str, Any]:
    return {"ladder": [{"rung": "as-asked", **more}]}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"fit": {}}, "fit: unknown key, did you mean 'fits'?"),
        ({1: {}}, "1: unknown key, expected one of: name, extends,"),
        ({"fits": {"gpu": []}}, "fits.gpu: unknown key, did you mean 'gpus'?"),
        ({"fits": {"zzz": 1}}, "fits.zzz: unknown key, expected one of: gpus, compute_capabilities,"),
        ({"fits": {"gpus": [""]}}, "fits.gpus[0]: expected text of length >= 1, got ''"),
        ({"fits": {"has_gpu": "yes"}}, "fits.has_gpu: expected true or false, got 'yes'"),
        ({"fits": {"compute_capabilities": [10.0]}}, "_capabilities[0]: expected text, got 10.0; put it in quotes"),
        ({"fits": {"compute_capabilities": ["sm100"]}}, 'such as "10.0", got \'sm100\''),
        ({"fits": {"vllm": "new"}}, "fits.vllm: expected a range of versions such as '>=0.20,<0.24', got 'new'"),
        ({"fits": {"flashinfer": ""}}, "fits.flashinfer: expected a range of versions"),
        ({"fits": []}, "fits: expected a mapping, got a list"),
        (rung(env={}), "ladder[0].env: unknown key, expected one of: rung,"),
        (rung(moe_backend="--x"), "ladder[0].moe_backend: expected a name as --moe-backend takes it, got '--x'"),
        (rung(max_num_batched_tokens=0), "ladder[0].max_num_batched_tokens: expected a whole number >= 1, got 0"),
        (rung(attention_workspace_mib=0.5), "ladder[0].attention_workspace_mib: expected a whole number, got 0.5"),
        (rung(skip_autotune_ops=["a,b"]), "ladder[0].skip_autotune_ops[0]: expected an operator such as"),
        (rung(skip_autotune_ops=["a"]), "ladder[0].skip_autotune_ops: belongs to the rung no-autotune"),
        (rung(links=["vllm#1"]), "ladder[0].links[0]: expected an address that starts with https://, got 'vllm#1'"),
        (rung(status="yes"), "ladder[0].status: unknown value 'yes', expected one of: verified, unverified"),
        (rung(reasons={"x": {}}), "ladder[0].reasons.x: the key 'because' is missing"),
        (rung(reasons={"moe_backed": {"because": "b"}}), "ladder[0].reasons.moe_backed: there is no such value"),
        ({"ladder": [{}]}, "ladder[0]: the key 'rung' is missing"),
        ({"ladder": [{"rung": "tritn"}]}, "ladder[0].rung: unknown value 'tritn', did you mean 'triton'?"),
        ({"cuda_lib_path": "x"}, "cuda_lib_path: unknown value 'x', expected one of: auto, unset"),
        ({"moe_backend": "safe"}, "moe_backend: only a rung can ask for the safe backend"),
        ({"environment": {"A": 1}}, "environment.A: expected text, got 1; put it in quotes"),
        ({"environment": {"A B": "1"}}, "environment.'A B': as a key, expected a name of letters, digits and _, got"),
        ({"environment": {"A": "\0"}}, "environment.A: expected text without a NUL"),
        ({"environment": []}, "environment: expected a mapping, got a list"),
        ({"limits": {"sms": None, "memory_gib": "1" * 99}}, "expected a number, got '" + "1" * 59 + "..."),
        ({"limits": {"memory_gib": float("nan")}}, "limits.memory_gib: expected a number > 0.0, got nan"),
        ({"policy": {"backoff_s": float("inf")}}, "policy.backoff_s: expected a finite number"),
        ({"policy": {"stop_timeout_s": -1}}, "policy.stop_timeout_s: expected a number >= 0.0, got -1"),
        ({"policy": {"backoff": 1}}, "policy.backoff: unknown key, did you mean 'backoff_s'?"),
        ({"reasons": {"limits.sms": {"because": "b"}}}, "reasons.limits.sms: there is no such value"),
        ({"name": "other"}, "name: expected 'mine', as the file is called, got 'other'"),
        ({"description": ""}, "the key 'description' is missing"),
        ({"ladder": []}, "ladder: the first rung must be as-asked"),
        ({"ladder": [{"rung": "triton"}]}, "ladder: the first rung must be as-asked"),
        ({"ladder": [{"rung": name} for name in ("as-asked", "triton", "no-autotune")]}, f"each at most once: {ORDER}"),
        ({"ladder": [{"rung": "as-asked"}, {"rung": "as-asked"}]}, f"expected this order, each at most once: {ORDER}"),
        ({"without": ["as-asked"]}, "without: every ladder starts with as-asked"),
        ({"without": ["as-asked"]}, "ladder[0].rung: this rung is left out by the key 'without'"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_what_was_expected(more: dict[str, Any], message: str) -> None:
    found = problems(**{str(key): value for key, value in more.items()})
    assert any(message in problem for problem in found), found
    assert all(problem.startswith("/x/mine.yaml: ") for problem in found)


def test_every_mistake_has_its_line_and_all_are_named_at_once() -> None:
    text = "name: mine\ndescription: d\nfit: {}\nladder:\n  - rung: as-asked\n    note: 5\nlinks:\n  [x,\n   y]\n"
    file = ProfileFile("mine.yaml", *load_with_lines(text, where="mine.yaml"))
    places = ["mine.yaml:3: fit", "mine.yaml:6: ladder[0].note", "mine.yaml:8: links[0]", "mine.yaml:9: links[1]"]
    assert [
        problem.rpartition(": unknown")[0] or problem.partition(": expected")[0] for problem in problems_of(file)
    ] == places
    with pytest.raises(Trouble) as caught:
        parse(file)
    assert str(caught.value).startswith("mine.yaml:3: fit: unknown key, did you mean 'fits'?; and 3 more")


def test_something_missing_has_the_line_of_what_it_is_missing_in() -> None:
    file = ProfileFile("", *load_with_lines("# a comment\nname: x\nladder:\n  - note: n\n", where=""))
    assert problems_of(file) == (":4: ladder[0]: the key 'rung' is missing",)
    file = ProfileFile("", *load_with_lines("# a comment\nname: x\ndescription: d\n", where=""))
    assert problems_of(file) == (":2: ladder: the first rung must be as-asked",)


@pytest.mark.parametrize(("value", "word"), [([], "a list"), (None, "nothing"), ("text", "'text'"), (7, "7")])
def test_a_file_that_holds_no_mapping_is_named(value: object, word: str) -> None:
    assert problems_of(ProfileFile("x.yaml", value)) == (f"x.yaml: expected a mapping, got {word}",)


def test_every_shipped_value_has_its_reason_and_every_reason_a_link() -> None:
    for name, profile in SHIPPED.items():
        stated: list[tuple[Profile | RungEntry, dict[str, Any]]] = [(profile, msgspec.to_builtins(profile))]
        stated += [(entry, msgspec.to_builtins(entry)) for entry in profile.ladder]
        for where, values in stated:
            keys = [key for key in ("cuda_lib_path", "moe_backend", "skip_autotune_ops") if key in values]
            keys += [f"{key}.{part}" for key in ("limits", "policy", "environment") for part in values.get(key, ())]
            for key in keys:
                reason = reason_of(where, key)
                assert reason is not None and reason.links, (name, key)
        assert all(entry.because for entry in profile.ladder), name
        assert all(entry.links for entry in profile.ladder[1:]), name


def test_what_is_verified_says_where() -> None:
    verified = {(name, entry.rung): entry.links for name, profile in SHIPPED.items() for entry in profile.ladder
                if entry.status == "verified"}  # fmt: skip
    assert set(verified) == {("b200", "no-autotune"), ("gb200", "triton"), ("h100", "triton")}
    assert all(verified.values())


@pytest.mark.parametrize("name", ["b200", "b300", "gb200", "gb300"])
def test_the_variables_of_the_write_ups_are_set_where_their_kernel_runs(name: str) -> None:
    (entry,) = (entry for entry in SHIPPED[name].ladder if entry.rung == "no-autotune")
    assert entry.environment == {"FLASHINFER_DISABLE_MOE_AUTOTUNE": "1", "TRTLLM_MOE_MAX_WORKSPACE": "8192"}


def test_no_shipped_profile_caps_anything_or_changes_the_limits_of_a_launch() -> None:
    for profile in SHIPPED.values():
        assert limits_of(profile, {}) == Limits()
        for entry in profile.ladder:
            caps = (entry.max_num_batched_tokens, entry.attention_workspace_mib, entry.skip_autotune_ops)
            assert caps == (None, None, ())


def test_the_reason_for_a_value_is_its_own_or_that_of_what_it_is_in() -> None:
    sms, whole = Reason("a table"), Reason("why", ("https://x",))
    profile = Profile("p", because="why", links=("https://x",), reasons={"limits.sms": sms, "policy": sms})
    assert reason_of(profile, "limits.sms") == reason_of(profile, "policy.backoff_s") == sms
    assert reason_of(profile, "limits.memory_gib") == whole
    assert reason_of(RungEntry("triton"), "moe_backend") is None


def test_a_policy_has_the_names_of_the_limits() -> None:
    assert Policy.__struct_fields__ == tuple(field.name for field in fields(Limits))


def test_of_a_limit_the_operators_word_comes_first_then_the_profiles() -> None:
    profile = parse(ProfileFile("", content(policy={"backoff_s": 5, "max_attempts": 3, "start_timeout_s": None})))
    assert limits_of(profile, {"max_attempts": 9}) == Limits(max_attempts=9, backoff_s=5)
    assert limits_of(profile, {"start_timeout_s": 7.0}).start_timeout_s == 7


def test_of_a_gpu_that_is_not_named_only_what_its_generation_has_is_told() -> None:
    b200, other = (Machine("x86_64", (Gpu(name, "10.0"),)) for name in ("NVIDIA B200", "NVIDIA B100"))
    shared = "227 KiB of shared memory per thread block (compute capability 10.0; "
    assert [line[: len(shared)] for line in device_lines(SHIPPED["b200"], other)] == [shared]
    assert [line.partition(" (")[0] for line in device_lines(SHIPPED["b200"], b200)] == [
        "227 KiB of shared memory per thread block",
        "148 streaming multiprocessors",
        "180 GiB of memory",
    ]
    assert device_lines(SHIPPED["cpu"], b200) == ()


def test_the_examples_in_the_manual_are_sound_profiles(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text()
    examples = [block.partition("```")[0] for block in manual.split("```yaml\n")[1:]]
    assert len(examples) == 2
    for text in examples:
        path = tmp_path / f"{text.partition('name: ')[2].split()[0]}.yaml"
        path.write_text(text)
        (file,) = read_profiles(str(path), None, {})
        assert problems_of(file) == ()
