"""What a rung changes, in words, and nothing that is nobody's business."""

from __future__ import annotations

from safe_vllm.plan.explain import difference, ladder_line
from safe_vllm.plan.ladder import Ladder, Rung


def rung(line: str, **environment: str) -> Rung:
    return Rung("r", tuple(line.split()), tuple(environment.items()))


def test_changes_are_shown_as_gone_new_and_changed() -> None:
    before = rung("m --api-key secret --enable-expert-parallel -dp 2 --moe_backend=flashinfer_trtllm")
    after = rung(
        "m --api-key secret -dp 1 --moe_backend=auto --no-enable-flashinfer-autotune", TRTLLM_MOE_MAX_WORKSPACE="8192"
    )
    assert difference(before, after, {"TRTLLM_MOE_MAX_WORKSPACE"}) == (
        "  --moe_backend flashinfer_trtllm -> auto",
        "+ --no-enable-flashinfer-autotune",
        "  -dp 2 -> 1",
        "- --enable-expert-parallel",
        "+ TRTLLM_MOE_MAX_WORKSPACE=8192 (not read by the installed version)",
    )


def test_a_switch_and_a_dotted_value_are_shown_as_changed() -> None:
    before = rung("m --enable-flashinfer-autotune --kernel-config.moe_backend=marlin")
    after = rung("m --no-enable-flashinfer-autotune --kernel-config.moe_backend=auto")
    assert difference(before, after) == (
        "  --enable-flashinfer-autotune -> --no-enable-flashinfer-autotune",
        "  --kernel-config.moe_backend marlin -> auto",
    )


def test_variables_are_shown_quoted_and_in_order() -> None:
    before, after = rung("m", GONE="1", SAME="1", CHANGED="a b"), rung("m", SAME="1", CHANGED="c", NEW="")
    assert difference(before, after) == ("  CHANGED='a b' -> CHANGED=c", "- GONE", "+ NEW=''")


def test_a_variable_that_holds_a_secret_is_named_and_not_shown() -> None:
    before, after = rung("m", HF_TOKEN="one"), rung("m", HF_TOKEN="two", PROXY="http://me:pw@host", X_KEY="k")
    assert difference(before, after) == (
        "  HF_TOKEN=*** -> HF_TOKEN=***",
        "+ PROXY='http://***@host'",
        "+ X_KEY=***",
    )


def test_words_that_no_rung_changes_are_never_shown() -> None:
    assert difference(rung("m --api-key one --port 1"), rung("other --api-key two --port 2 --hf-token t")) == ()


def test_equal_rungs_have_no_difference() -> None:
    assert difference(rung("m -tp 2", A="b"), rung("m -tp 2", A="b")) == ()


def test_the_ladder_is_one_line() -> None:
    rungs = (Rung("as-asked", ()), Rung("no-autotune", ()))
    assert ladder_line(Ladder(rungs)) == "as-asked → no-autotune"
    assert ladder_line(Ladder(rungs), 1) == "as-asked → [no-autotune]"
