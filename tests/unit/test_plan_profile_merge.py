"""A profile that extends another says only what is different."""

from __future__ import annotations

from typing import Any

from safe_vllm.machine.facts import ProfileFile
from safe_vllm.plan.profile import Fits, Profile, Reason, RungEntry
from safe_vllm.plan.profile_reading import content_of, parse, problems_of

BASE: dict[str, Any] = {
    "name": "base",
    "description": "the base",
    "fits": {"gpus": ["B200"], "architectures": ["x86_64"]},
    "environment": {"A": "1", "B": "1"},
    "limits": {"sms": 148, "memory_gib": 180},
    "policy": {"backoff_s": 1},
    "because": "b",
    "links": ["https://base"],
    "reasons": {"limits.sms": {"because": "a table"}, "limits.memory_gib": {"because": "a sheet"}},
    "ladder": [
        {"rung": "as-asked"},
        {"rung": "no-autotune", "environment": {"C": "1"}, "because": "faults", "status": "verified"},
        {"rung": "less-parallel", "note": "slow"},
    ],
}


def over(base: dict[str, Any] | ProfileFile = BASE, **own: Any) -> ProfileFile:
    base = base if isinstance(base, ProfileFile) else ProfileFile("base.yaml", base)
    return ProfileFile("own.yaml", {"name": "own", "extends": "base", **own}, base=base)


def rungs(profile: Profile) -> dict[str, RungEntry]:
    return {entry.rung: entry for entry in profile.ladder}


def test_what_is_not_said_is_inherited() -> None:
    own, base = parse(over()), parse(ProfileFile("base.yaml", BASE))
    assert (own.name, own.extends) == ("own", "base")
    assert (own.description, own.fits, own.limits, own.policy) == (
        base.description,
        base.fits,
        base.limits,
        base.policy,
    )
    assert (own.reasons, own.because, own.links) == (base.reasons, base.because, base.links)
    assert list(rungs(own)) == list(rungs(base))


def test_mappings_are_merged_and_lists_are_replaced() -> None:
    own = parse(over(fits={"gpus": ["B300"]}, environment={"B": "2"}, links=["https://own"]))
    assert own.fits == Fits(gpus=("B300",), architectures=("x86_64",))
    assert own.environment == {"A": "1", "B": "2"}
    assert own.links == ("https://own",)


def test_a_rung_is_merged_with_the_rung_of_its_name_and_a_new_one_takes_its_place() -> None:
    own = parse(over(ladder=[{"rung": "no-autotune", "environment": {"D": "2"}}, {"rung": "triton", "note": "new"}]))
    assert list(rungs(own)) == ["as-asked", "no-autotune", "triton", "less-parallel"]
    assert rungs(own)["no-autotune"].environment == {"C": "1", "D": "2"}
    assert rungs(own)["no-autotune"].because == "faults"
    assert rungs(own)["less-parallel"].note == "slow"


def test_a_rung_can_be_left_out_and_taken_back() -> None:
    without = over(without=["no-autotune"])
    assert list(rungs(parse(without))) == ["as-asked", "less-parallel"]
    again = ProfileFile("more.yaml", {"name": "more", "ladder": [{"rung": "no-autotune"}]}, base=without)
    assert list(rungs(parse(again))) == ["as-asked", "no-autotune", "less-parallel"]
    all_again = ProfileFile("more.yaml", {"name": "more", "without": []}, base=without)
    assert list(rungs(parse(all_again))) == ["as-asked", "no-autotune", "less-parallel"]
    still = ProfileFile("more.yaml", {"name": "more"}, base=without)
    assert list(rungs(parse(still))) == ["as-asked", "less-parallel"]


def test_nothing_is_verified_by_inheritance() -> None:
    assert {entry.status for entry in parse(over()).ladder} == {"unverified"}
    own = parse(over(ladder=[{"rung": "no-autotune", "status": "verified"}]))
    assert rungs(own)["no-autotune"].status == "verified"


def test_the_reason_for_a_value_is_not_inherited_by_another_value() -> None:
    own = parse(over(limits={"sms": 160}))
    assert own.reasons == {"limits.memory_gib": Reason("a sheet")}
    own = parse(over(limits={"sms": 160}, reasons={"limits.sms": {"because": "another table"}}))
    assert own.reasons == {"limits.memory_gib": Reason("a sheet"), "limits.sms": Reason("another table")}


def test_null_takes_a_value_back() -> None:
    assert parse(over(limits={"sms": None})).limits.sms is None


def test_a_base_can_extend_another() -> None:
    lower = ProfileFile("lower.yaml", {"name": "lower", "environment": {"B": "3"}}, base=over(environment={"B": "2"}))
    assert parse(lower).environment == {"A": "1", "B": "3"}


def test_a_mistake_in_the_base_is_told_with_the_file_of_the_base() -> None:
    assert problems_of(over({**BASE, "limit": {}}, limit={})) == (
        "base.yaml: limit: unknown key, did you mean 'limits'?",
    )


def test_what_is_still_missing_with_the_base_is_told_with_the_own_file() -> None:
    bare = {"name": "base", "description": "d", "ladder": [{"rung": "as-asked"}]}
    found = problems_of(over(bare, reasons={"moe_backend": {"because": "b"}}))
    assert [problem.partition(", ")[0] for problem in found] == [
        "own.yaml: reasons.moe_backend: there is no such value"
    ]
    assert problems_of(ProfileFile("x.yaml", {"name": "x"}))[:2] == (
        "x.yaml: the key 'description' is missing",
        "x.yaml: ladder: the first rung must be as-asked",
    )


def test_all_in_one_file_says_the_same() -> None:
    file = over(limits={"sms": 160}, without=["less-parallel"])
    alone = content_of(file)
    assert {"extends", "without"}.isdisjoint(alone)
    assert content_of(ProfileFile("own.yaml", alone)) == alone
    assert rungs(parse(ProfileFile("own.yaml", alone))) == rungs(parse(file))
