"""Combinations that are known to fail: what matches, what is said, and where a launch starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safe_vllm import known
from safe_vllm.errors import Trouble
from safe_vllm.plan.known_bad import Combination, KnownBad, parse, sentence, short, worst

GRACE = Combination("aarch64", "NVIDIA GB200", "10.0", "0.23.0", "0.6.12", "flashinfer_trtllm", "bf16", autotunes=True)
TABLE = known.known_bad()


def start(what: Combination) -> str | None:
    found = worst(TABLE, what)
    return found.start_at if found else None


def test_the_combination_of_the_report_starts_at_the_setting_that_it_verified() -> None:
    entry = worst(TABLE, GRACE)
    assert entry is not None and entry.start_at == "triton"
    assert sentence(entry, GRACE, "triton") == (
        "starts at triton, not at the top: flashinfer_trtllm bf16 on NVIDIA GB200 (aarch64) with FlashInfer 0.6.12 is "
        "known for an illegal memory access in MoE autotune (vllm#46861); triton is the setting that vllm#46861 "
        "verified; fixed in FlashInfer 0.6.16 and vLLM 0.27"
    )


def test_where_another_rung_has_to_stand_in_nobody_verified_it() -> None:
    entry = worst(TABLE, GRACE)
    assert entry is not None
    said = sentence(entry, GRACE, "no-autotune")
    assert said.startswith("starts at no-autotune, not at the top: ")
    assert "(vllm#46861); fixed" in said


@pytest.mark.parametrize(
    "different",
    [
        {"architecture": "x86_64"},
        {"compute_capability": "9.0"},
        {"compute_capability": None},
        {"flashinfer": "0.6.16"},
        {"flashinfer": "0.6.16.post3"},
        {"flashinfer": "0.7.0rc1"},
        {"flashinfer": None},
        {"flashinfer": "of my own"},
        {"moe_backend": "triton"},
        {"moe_backend": None},
        {"weight_format": "nvfp4"},
        {"weight_format": None},
        {"autotunes": False},
        {"autotunes": None},
    ],
    ids=str,
)
def test_what_differs_in_one_thing_or_is_not_known_starts_at_the_top(different: dict[str, object]) -> None:
    assert start(replace(GRACE, **different)) is None  # type: ignore[arg-type]


def test_builds_on_the_way_to_a_release_count_as_that_release() -> None:
    assert start(replace(GRACE, flashinfer="0.6.15.dev20260718")) == "triton"
    assert start(replace(GRACE, flashinfer="0.6.16rc1")) is None


def test_data_and_expert_parallelism_together_start_without_autotune() -> None:
    b200 = replace(GRACE, architecture="x86_64", gpu="NVIDIA B200", data_parallel=True, expert_parallel=True)
    assert start(b200) == "no-autotune"
    assert start(replace(b200, expert_parallel=False)) is None
    assert start(replace(b200, data_parallel=False)) is None


def test_of_several_the_one_that_starts_furthest_down_counts() -> None:
    assert start(replace(GRACE, data_parallel=True, expert_parallel=True)) == "triton"


def test_a_gpu_is_matched_by_whole_words() -> None:
    entry = KnownBad("x", "a fault", "triton", "https://example.org/1", gpus=("B200",))
    assert not entry.matches(GRACE)
    assert entry.matches(replace(GRACE, gpu="NVIDIA B200"))


def test_every_entry_is_explained_and_starts_below_the_top() -> None:
    assert all(entry.link.startswith("https://") and entry.start_at != "as-asked" for entry in TABLE)
    assert len({entry.name for entry in TABLE}) == len(TABLE)


def test_a_table_that_is_not_sound_is_refused_with_the_place() -> None:
    entry = {"name": "x", "fault": "y", "start_at": "triton", "link": "https://example.org", "gpu": "B200"}
    with pytest.raises(Trouble, match=r"unknown field `gpu` - at `\$\.known_bad\[0\]`"):
        parse({"known_bad": [entry]})


def test_a_link_is_shown_as_people_write_it() -> None:
    assert short("https://github.com/vllm-project/vllm/pull/45002") == "vllm#45002"
    assert short("https://example.org/x") == "https://example.org/x"
