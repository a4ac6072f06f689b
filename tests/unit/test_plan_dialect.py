"""Which vLLM takes what: the table of releases, and the installed source above it."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any, get_args

import pytest

from safe_vllm import known
from safe_vllm.data.strict_yaml import read_data
from safe_vllm.errors import Trouble
from safe_vllm.machine.facts import Surface, WeightFormat
from safe_vllm.plan.dialect import Dialect, parse
from safe_vllm.plan.grammar import AUTOTUNE, FLAGS, MOE_BACKEND

DRAFTER = "--speculative-config.moe_backend"
SKIP_OPS = "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS"
RELEASES = [f"0.{minor}.0" for minor in range(11, 34)]
CAPABILITIES = [None, "7.0", "7.5", "8.0", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"]


def of(version: str | None, surface: Surface | None = None) -> Dialect:
    return known.dialects().of(version, surface)


def like(version: str, **changes: Any) -> Surface:
    """Return the surface that a release has as far as the table knows, with changes."""
    dialect = of(version)
    whole = {
        "flags": frozenset(entry.name for entry in dialect.table.flags if dialect.has(entry.name)),
        "moe_backends": dialect.moe_backends,
        "variables": frozenset(
            entry.name for entry in dialect.table.variables if entry.by == "vllm" and entry.covers(dialect.at)
        ),
        "levels_without_autotune": dialect.levels_without_autotune,
    }
    return Surface(**{**whole, **changes})


@pytest.mark.parametrize(
    ("flag", "before", "since"),
    [
        (MOE_BACKEND, "0.16.0", "0.17.0"),
        (AUTOTUNE, "0.15.1", "0.16.0"),
        ("--kernel-config", "0.15.1", "0.16.0"),
        ("--kernel-config.moe_backend", "0.16.0", "0.17.0"),
        ("--kernel-config.enable_flashinfer_autotune", "0.15.1", "0.16.0"),
        (DRAFTER, "0.18.1", "0.19.0"),
        ("--attention-backend", "0.12.0", "0.13.0"),
        ("--all2all-backend", "0.11.0", "0.11.1"),
        ("--data-parallel-external-lb", "0.11.0", "0.11.1"),
        ("--data-parallel-multi-port-external-lb", "0.21.0", "0.22.0"),
        ("--nnodes", "0.11.0", "0.11.1"),
        ("-ep", "0.13.0", "0.14.0"),
        ("--optimization-level", "0.11.2", "0.12.0"),
        ("--shutdown-timeout", "0.17.1", "0.18.0"),
        ("--enable-elastic-ep", "0.16.0", "0.17.0"),
    ],
)
def test_a_flag_is_known_from_its_release_on(flag: str, before: str, since: str) -> None:
    assert of(before).missing(flag) == f"{flag} came with vLLM {since.removesuffix('.0')}, and {before} is installed"
    assert of(since).has(flag)
    assert of("0.33.0").has(flag)


@pytest.mark.parametrize("flag", FLAGS)
def test_the_newest_dialect_knows_every_flag_that_a_plan_reads_or_changes(flag: str) -> None:
    assert of("0.33.0").has(flag)


@pytest.mark.parametrize("surface", [None, like("0.33.0")])
def test_a_flag_that_nobody_heard_of_is_missing(surface: Surface | None) -> None:
    assert of("0.33.0", surface).missing("--turbo") == "the installed vLLM 0.33.0 has no --turbo"


def test_the_installed_source_decides_which_flags_there_are() -> None:
    early = of("0.18.2rc1.dev7+g4dcd10eb0", like("0.18.0", flags=frozenset({AUTOTUNE, MOE_BACKEND, DRAFTER})))
    assert early.has(DRAFTER)
    late = of("0.23.0", like("0.23.0", flags=frozenset({AUTOTUNE})))
    assert late.missing(MOE_BACKEND) == "the installed vLLM 0.23.0 has no --moe-backend"
    assert late.moe_backends == ()


def test_a_place_that_was_not_found_in_the_source_says_nothing_about_its_flags() -> None:
    engine_only = of("0.33.0", Surface(flags=frozenset({MOE_BACKEND})))
    assert engine_only.has("--headless")
    assert engine_only.has(DRAFTER)
    assert not engine_only.has(AUTOTUNE)
    all_read = of("0.33.0", Surface(flags=frozenset({MOE_BACKEND, "--config", "--speculative-config.method"})))
    assert not all_read.has("--headless")
    assert not all_read.has(DRAFTER)


def test_the_choices_of_backends_grow_and_one_goes() -> None:
    first = of("0.17.0").moe_backends
    assert first == (
        *("auto", "triton", "deep_gemm", "cutlass", "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_cutedsl"),
        *("marlin", "aiter"),
    )
    assert of("0.16.0").moe_backends == ()
    gone = [set(of(old).moe_backends) - set(of(new).moe_backends) for old, new in pairwise(RELEASES)]
    assert [names for names in gone if names] == [{"flashinfer_moe_ep_mega_cutedsl"}]
    assert len(of("0.33.0").moe_backends) == 24


def test_the_installed_source_decides_which_choices_there_are() -> None:
    dialect = of("0.33.0", like("0.33.0", moe_backends=("auto", "marlin", "novel")))
    assert dialect.moe_backends == ("auto", "marlin", "novel")
    assert dialect.safe_backends("bf16", "9.0") == ()
    assert dialect.safe_backends("fp8", "9.0") == ("marlin",)


@pytest.mark.parametrize(
    ("version", "levels"),
    [
        ("0.15.1", ()),
        ("0.16.0", ("0",)),
        ("0.20.2", ("0",)),
        ("0.21.0", ("0", "1", "2")),
        ("0.22.1", ("0",)),
        ("1.0", ("0",)),
    ],
)
def test_autotune_is_off_at_level_zero_and_once_at_more(version: str, levels: tuple[str, ...]) -> None:
    assert of(version).levels_without_autotune == levels


def test_the_installed_source_decides_where_autotune_is_off() -> None:
    assert of("0.32.0", Surface(levels_without_autotune=("0", "1"))).levels_without_autotune == ("0", "1")


@pytest.mark.parametrize(
    ("version", "name", "because"),
    [
        ("0.23.0", "VLLM_USE_FLASHINFER_MOE_FP16", None),
        ("0.24.0", "VLLM_USE_FLASHINFER_MOE_FP16", "vLLM 0.23 was the last to have {}, and 0.24.0 is installed"),
        ("0.33.0", "VLLM_USE_FLASHINFER_MOE_INT4", None),
        ("0.25.1", SKIP_OPS, "{} came with vLLM 0.26, and 0.25.1 is installed"),
        ("0.26.0", SKIP_OPS, None),
        ("0.24.0", "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", "{} has an effect from vLLM 0.25 on, and 0.24.0 is installed"),
        ("0.25.0", "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", None),
        ("0.17.1", "VLLM_FUSED_MOE_CHUNK_SIZE", None),
        ("0.18.0", "VLLM_FUSED_MOE_CHUNK_SIZE", "vLLM 0.17 was the last to have {}, and 0.18.0 is installed"),
        ("0.33.0", "FLASHINFER_DISABLE_MOE_AUTOTUNE", "no released vLLM or FlashInfer reads {}"),
        ("0.11.0", "TRTLLM_MOE_MAX_WORKSPACE", "no released vLLM or FlashInfer reads {}"),
    ],
)
def test_a_variable_is_read_or_there_is_a_reason(version: str, name: str, because: str | None) -> None:
    assert of(version).unread(name) == (because and because.format(name))
    assert of(version).reads(name) is (because is None)
    assert (name in of(version).variables) is (because is None)


def test_a_variable_may_need_a_newer_flashinfer() -> None:
    assert of("0.26.0").unread(SKIP_OPS, "0.6.12") == f"{SKIP_OPS} needs FlashInfer 0.6.13, and 0.6.12 is installed"
    assert of("0.26.0").reads(SKIP_OPS, "0.6.13.post1") is True
    assert of("0.23.0").reads("FLASHINFER_TACTICS_BLOCKLIST", "0.6.12") is False
    assert of("0.23.0").reads("FLASHINFER_TACTICS_BLOCKLIST", "0.6.16.post3") is True


def test_whether_an_unheard_of_variable_is_read_only_the_source_knows() -> None:
    assert of("0.33.0").reads("VLLM_NOVEL") is None
    assert of("0.33.0").unread("VLLM_NOVEL") is None
    read = like("0.33.0", variables=frozenset({"VLLM_NOVEL"}))
    assert of("0.33.0", read).reads("VLLM_NOVEL") is True
    assert of("0.33.0", read).unread(SKIP_OPS) == f"the installed vLLM 0.33.0 does not read {SKIP_OPS}"
    assert of("0.33.0", read).reads("FLASHINFER_NOVEL") is None
    assert of("0.33.0", read).reads("HOME") is None


def test_the_workspace_has_a_default_where_it_can_be_set() -> None:
    assert of("0.33.0").default("VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE") == str(394 * 1024 * 1024)
    assert of("0.11.0").default("VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE") is None


@pytest.mark.parametrize(
    ("version", "weights", "capability", "backends"),
    [
        ("0.16.0", "bf16", "10.0", ()),
        ("0.17.0", "bf16", "10.0", ("triton",)),
        ("0.33.0", "bf16", "12.0", ("triton",)),
        ("0.23.0", "fp8", "9.0", ("triton", "marlin")),
        ("0.23.0", "fp8", "8.0", ("marlin",)),
        ("0.23.0", "nvfp4", "10.3", ("cutlass", "marlin")),
        ("0.23.0", "nvfp4", "9.0", ("marlin",)),
        ("0.18.1", "mxfp4", "9.0", ()),
        ("0.19.1", "mxfp4", "10.0", ("triton", "marlin")),
        ("0.31.0", "mxfp4", "12.0", ("marlin",)),
        ("0.32.0", "mxfp4", "12.1", ("triton", "marlin")),
        ("0.32.0", "mxfp4", "8.0", ("marlin",)),
        ("0.19.1", "mxfp8", "10.0", ()),
        ("0.24.0", "mxfp8", "10.0", ("marlin",)),
        ("0.26.0", "mxfp8", "10.0", ("marlin", "triton")),
        ("0.27.0", "mxfp8", "10.0", ("marlin",)),
        ("0.24.0", "int4", "9.0", ()),
        ("0.26.0", "int4", "9.0", ("marlin",)),
        ("0.27.0", "int4", "9.0", ("marlin", "triton")),
        ("0.19.1", "int8", "9.0", ()),
        ("0.20.0", "int8", "9.0", ("triton",)),
        ("0.33.0", None, "10.0", ("triton",)),
        ("0.33.0", "nvfp4", None, ("cutlass", "marlin")),
    ],
)
def test_each_weight_format_has_its_safe_backends(
    version: str, weights: str | None, capability: str | None, backends: tuple[str, ...]
) -> None:
    assert of(version).safe_backends(weights, capability) == backends


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("weights", [*get_args(WeightFormat), None])
def test_p5_a_safe_backend_is_one_that_the_flag_takes_and_never_flashinfer(version: str, weights: str | None) -> None:
    dialect = of(version)
    found = {name for at in CAPABILITIES for name in dialect.safe_backends(weights, at)}
    assert found <= set(dialect.moe_backends)
    assert not any(name.startswith("flashinfer") or name == "auto" for name in found)


@pytest.mark.parametrize(
    ("version", "weights", "capability", "more", "backend"),
    [
        ("0.19.1", "bf16", "10.0", {}, "triton"),
        ("0.19.1", "bf16", "10.0", {"environment": {"VLLM_USE_FLASHINFER_MOE_FP16"}}, None),
        ("0.20.0", "bf16", "9.0", {}, "triton"),
        ("0.23.0", "bf16", "10.0", {}, "flashinfer_trtllm"),
        ("0.33.0", "bf16", "10.3", {"data_parallel": True}, "flashinfer_trtllm"),
        ("0.33.0", "bf16", "12.1", {}, "flashinfer_cutlass"),
        ("0.33.0", "bf16", "12.0", {"data_parallel": True}, "triton"),
        ("0.23.0", "bf16", None, {}, None),
        ("0.15.1", "bf16", "10.0", {}, None),
        ("0.23.0", "fp8", "10.0", {}, "flashinfer_trtllm"),
        ("0.23.0", "fp8", "9.0", {}, None),
        ("0.23.0", "fp8", "9.0", {"in_blocks": True}, "triton"),
        ("0.23.0", "fp8", "9.0", {"in_blocks": True, "expert_parallel": True}, "flashinfer_cutlass"),
        ("0.23.0", "nvfp4", "10.0", {}, "flashinfer_trtllm"),
        ("0.23.0", "nvfp4", "12.0", {}, "flashinfer_cutlass"),
        ("0.23.0", "nvfp4", "9.0", {}, "marlin"),
        ("0.33.0", "mxfp4", "10.0", {}, "flashinfer_trtllm"),
        ("0.33.0", "int4", "10.0", {}, None),
        ("0.33.0", None, "10.0", {}, None),
    ],
)
def test_what_auto_comes_to_is_said_where_it_is_known(
    version: str, weights: str | None, capability: str | None, more: dict[str, Any], backend: str | None
) -> None:
    assert of(version).auto_backend(weights, capability, **more) == backend


@pytest.mark.parametrize("version", ["0.16.0", "0.21.0", "0.32.0+cpu", "0.33.1"])
def test_nothing_is_noted_about_a_known_release(version: str) -> None:
    assert of(version).notes == ()
    assert of(version, like(version)).notes == ()


@pytest.mark.parametrize(
    ("version", "surface", "note"),
    [
        (None, None, "vLLM's version is unknown; taken for the newest"),
        ("0.1.dev9+gabc", None, "vLLM's version is unknown; taken for the newest"),
        ("dev", like("0.33.0"), "vLLM's version is unknown; checked against its source"),
        ("0.40.0", like("0.33.0"), "vLLM 0.40.0 is newer than what is known (up to 0.33); checked against its source"),
        (
            "0.40.0",
            None,
            "vLLM 0.40.0 is newer than what is known (up to 0.33); taken for 0.33, for its source could not be read",
        ),
        (
            "1.0",
            like("0.33.0", moe_backends=None, variables=None),
            "vLLM 1.0 is newer than what is known (up to 0.33); checked against its source, except for its MoE "
            "backends and its environment variables, which could not be read",
        ),
    ],
)
def test_what_is_not_certain_is_noted(version: str | None, surface: Surface | None, note: str) -> None:
    dialect = of(version, surface)
    assert dialect.notes == (note,)
    assert dialect.has(MOE_BACKEND)


def test_old_releases_say_what_they_cannot_do() -> None:
    assert "autotune cannot be switched off" in of("0.15.1").notes[0]
    assert (
        of("0.15.2.dev3", like("0.16.0")).notes[0].startswith("the source of vLLM 0.15.2.dev3 counts where it differs")
    )
    older = of("0.10.2").notes
    assert older[0].startswith("vLLM 0.10.2 is older than what is known (from 0.11 on); taken for 0.11")
    assert "autotune cannot be switched off" in older[1]


def test_where_the_source_differs_from_the_table_it_is_said() -> None:
    flags = like("0.23.0").flags or frozenset()
    changed = flags - {AUTOTUNE} | {"--device-ids"}
    choices = (*of("0.23.0").moe_backends[:-2], "novel")
    variables = (like("0.23.0").variables or frozenset()) | {SKIP_OPS}
    surface = like("0.23.0", flags=changed, moe_backends=choices, variables=variables)
    assert of("0.23.0", surface).notes == (
        "the source of vLLM 0.23.0 counts where it differs from what is known: "
        f"it has --device-ids, {SKIP_OPS}, the MoE backend novel; "
        "it lacks --enable-flashinfer-autotune, the MoE backends aiter, emulation",
    )


def broken(change: Any) -> object:
    content: Any = copy.deepcopy(read_data("dialects.yaml"))
    change(content)
    return content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["flags"][0].update(sinse="0.17"), "unknown field `sinse`"),
        (lambda c: c["flags"][0].pop("link"), "missing required field `link`"),
        (lambda c: c["flags"][0].update(since="v0.17"), "$.flags[0].since"),
        (lambda c: c["flags"].append(c["flags"][0]), "--moe-backend is there twice"),
        (lambda c: c["safe_backends"][0].update(weights="int3"), "$.safe_backends[0].weights"),
        (lambda c: c.pop("variables"), "missing required field `variables`"),
    ],
)
def test_a_table_that_is_not_sound_is_refused_with_the_place(change: Any, message: str) -> None:
    with pytest.raises(Trouble, match=r"dialects\.yaml: ") as raised:
        parse(broken(change))
    assert message in str(raised.value)


def test_every_fact_has_a_link_to_its_source() -> None:
    table = known.dialects().table
    parts = (table.flags, table.moe_backends, table.autotune, table.variables, table.safe_backends, table.auto_backends)
    links = [entry.link for part in (*parts, table.degraded) for entry in part]
    assert all(link.startswith("https://github.com/") for link in links)


def test_the_variables_that_change_what_auto_is_are_known() -> None:
    table = known.dialects().table
    assert {name for entry in table.auto_backends for name in entry.unless_set} <= {
        entry.name for entry in table.variables
    }
