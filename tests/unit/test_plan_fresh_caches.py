"""Caches of ours instead of the operator's: the least that makes compiled, tuned and Triton caches fresh."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from safe_vllm import known
from safe_vllm.machine.facts import Surface
from safe_vllm.plan.command import command
from safe_vllm.plan.dialect import Dialect
from safe_vllm.plan.fresh_caches import caches_of, with_fresh_caches
from safe_vllm.plan.ladder import Rung

AT_HOME = {"HOME": "/home/me", "USER": "me"}
RUNG = Rung("as-asked", ("m", "-tp", "2"), (("NCCL_DEBUG", "INFO"),), "a note", "a reason", ("https://example.com",))
COMPILED = "the graphs that vLLM compiled"
TUNED = "the tactics that FlashInfer's autotuner chose"
DEEP_GEMM = "the kernels that DeepGEMM compiled"
EVERY = [f"0.{minor}.0" for minor in range(11, 34)]


def dialect(version: str = "0.32.0", variables: frozenset[str] | None = None) -> Dialect:
    return known.dialects().of(version, Surface(variables=variables))


def fresh(
    rung: Rung = RUNG, version: str = "0.32.0", environment: Mapping[str, str] = AT_HOME, also: tuple[str, ...] = ()
) -> dict[str, str]:
    return dict(with_fresh_caches(rung, "/ours/1", environment, dialect(version), also=also).environment)


def places(environment: Mapping[str, str], version: str = "0.32.0", *words: str) -> dict[str, str]:
    return dict(caches_of(environment, dialect(version), words))


def test_what_is_compiled_and_tuned_goes_to_our_directory_and_nothing_else_changes() -> None:
    made = with_fresh_caches(RUNG, "/ours/1", AT_HOME, dialect())
    assert dict(made.environment) == {
        "NCCL_DEBUG": "INFO",
        "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": "/ours/1/autotune",
        "VLLM_CACHE_ROOT": "/ours/1/vllm",
        "TORCHINDUCTOR_CACHE_DIR": "/ours/1/inductor",
        "TRITON_CACHE_DIR": "/ours/1/triton",
        "DG_JIT_CACHE_DIR": "/home/me/.cache/vllm/deep_gemm",
    }
    assert (made.name, made.words, made.note, made.because, made.links) == (
        *(RUNG.name, RUNG.words, RUNG.note, RUNG.because, RUNG.links),
    )


@pytest.mark.parametrize("version", EVERY)
def test_tuned_tactics_are_kept_from_0_25_on(version: str) -> None:
    is_kept = int(version.split(".")[1]) >= 25
    assert ("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR" in fresh(version=version)) is is_kept
    assert (TUNED in places(AT_HOME, version)) is is_kept


@pytest.mark.parametrize("version", EVERY)
def test_all_other_caches_are_there_in_every_release(version: str) -> None:
    assert {"VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"} <= fresh(version=version).keys()


def test_a_variable_that_the_installed_source_does_not_read_is_not_set() -> None:
    built = dialect("0.32.0", frozenset({"VLLM_CACHE_ROOT"}))
    made = dict(with_fresh_caches(RUNG, "/ours/1", AT_HOME, built).environment)
    assert "VLLM_CACHE_ROOT" in made
    assert "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR" not in made


def test_the_operators_own_directories_are_overridden() -> None:
    theirs = {
        **AT_HOME,
        "VLLM_CACHE_ROOT": "/data/vllm",
        "TRITON_CACHE_DIR": "/data/triton",
        "TORCHINDUCTOR_CACHE_DIR": "/data/inductor",
        "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": "/data/tuned",
    }
    run = command(with_fresh_caches(RUNG, "/ours/1", theirs, dialect()), ("vllm",), theirs).environment
    assert not [name for name in theirs if run[name].startswith("/data")]
    assert run["DG_JIT_CACHE_DIR"] == "/data/vllm/deep_gemm"


def test_what_takes_long_to_make_again_stays_where_it_is() -> None:
    theirs = {**AT_HOME, "DG_JIT_CACHE_DIR": "/data/deep_gemm", "FLASHINFER_WORKSPACE_BASE": "/data/flashinfer"}
    assert not {"DG_JIT_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"} & fresh(environment=theirs).keys()
    before = places(AT_HOME)
    after = places({**AT_HOME, **fresh()})
    assert {what for what in before if before[what] == after[what]} == {
        DEEP_GEMM,
        "the kernels that FlashInfer compiled or downloaded",
    }
    assert all(after[what].startswith("/ours/1/") for what in before if before[what] != after[what])


def test_a_directory_that_the_rung_itself_sets_counts() -> None:
    rung = Rung("as-asked", ("m",), (("VLLM_CACHE_ROOT", "/of/the/profile"),))
    assert fresh(rung)["DG_JIT_CACHE_DIR"] == "/of/the/profile/deep_gemm"
    assert fresh(rung)["VLLM_CACHE_ROOT"] == "/ours/1/vllm"


def test_without_a_home_what_stays_cannot_be_named_and_is_not_guessed() -> None:
    assert "DG_JIT_CACHE_DIR" not in fresh(environment={})
    assert places({})[COMPILED] == "~/.cache/vllm/torch_compile_cache"


def test_what_a_fault_names_is_made_again_too() -> None:
    made = fresh(also=("flashinfer", "deep-gemm"))
    assert made["FLASHINFER_WORKSPACE_BASE"] == "/ours/1/flashinfer"
    assert made["DG_JIT_CACHE_DIR"] == "/ours/1/deep-gemm"


def test_a_second_directory_takes_the_place_of_the_first() -> None:
    once = with_fresh_caches(RUNG, "/ours/1", AT_HOME, dialect())
    again = with_fresh_caches(once, "/ours/2", AT_HOME, dialect())
    assert again == with_fresh_caches(RUNG, "/ours/2", AT_HOME, dialect())
    assert with_fresh_caches(once, "/ours/1", AT_HOME, dialect()) == once


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (("m", "--compilation-config.cache_dir", "/data/c"), ("m", "--compilation-config.cache_dir", "/ours/1/graphs")),
        (("m", "-cc.cache_dir=/data/c", "-tp", "2"), ("m", "-cc.cache_dir=/ours/1/graphs", "-tp", "2")),
        (
            ("m", "--compilation_config", '{"mode": 3, "cache_dir": "/data/c"}'),
            ("m", "--compilation_config", '{"mode": 3, "cache_dir": "/ours/1/graphs"}'),
        ),
        (("m", "-cc", '{"mode": 3}'), ("m", "-cc", '{"mode": 3}')),
        (("m", "-cc.cache_dir="), ("m", "-cc.cache_dir=")),
    ],
)
def test_a_directory_in_the_operators_words_is_changed_there(words: tuple[str, ...], after: tuple[str, ...]) -> None:
    assert with_fresh_caches(Rung("as-asked", words), "/ours/1", AT_HOME, dialect()).words == after


def test_a_directory_in_the_config_file_is_overruled_and_the_rest_of_the_object_stays() -> None:
    config = {"compilation-config": {"mode": 3, "cache_dir": "/data/c"}}
    made = with_fresh_caches(Rung("as-asked", ("m",)), "/ours/1", AT_HOME, dialect(), config)
    assert made.words == ("m", "--compilation-config", '{"mode": 3, "cache_dir": "/ours/1/graphs"}')


def test_the_caches_in_use_are_named_with_their_places() -> None:
    assert caches_of(AT_HOME, dialect()) == (
        (TUNED, "/home/me/.cache/vllm/flashinfer_autotune_cache"),
        (COMPILED, "/home/me/.cache/vllm/torch_compile_cache"),
        ("the kernels that torch.compile made", "/tmp/torchinductor_me"),
        ("the kernels that Triton compiled", "/home/me/.triton/cache"),
        (DEEP_GEMM, "/home/me/.cache/vllm/deep_gemm"),
        ("the kernels that FlashInfer compiled or downloaded", "/home/me/.cache/flashinfer"),
    )


@pytest.mark.parametrize(
    ("environment", "what", "place"),
    [
        ({"XDG_CACHE_HOME": "/x"}, COMPILED, "/x/vllm/torch_compile_cache"),
        ({"XDG_CACHE_HOME": ""}, COMPILED, "/home/me/.cache/vllm/torch_compile_cache"),
        ({"VLLM_CACHE_ROOT": "~/v", "XDG_CACHE_HOME": "/x"}, COMPILED, "/home/me/v/torch_compile_cache"),
        ({"VLLM_CACHE_ROOT": "/v"}, TUNED, "/v/flashinfer_autotune_cache"),
        ({"VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": "/t", "VLLM_CACHE_ROOT": "/v"}, TUNED, "/t"),
        ({"TRITON_HOME": "/t"}, "the kernels that Triton compiled", "/t/.triton/cache"),
        ({"TMPDIR": "/scratch"}, "the kernels that torch.compile made", "/scratch/torchinductor_me"),
    ],
)
def test_variables_move_a_cache(environment: Mapping[str, str], what: str, place: str) -> None:
    assert places({**AT_HOME, **environment})[what] == place


def test_a_directory_in_the_words_is_named_first() -> None:
    found = caches_of(AT_HOME, dialect(), ("m", "-cc.cache_dir=/data/c"))
    assert found[0] == ("the graphs that vLLM compiled, by --compilation-config", "/data/c")


@pytest.mark.parametrize(
    ("version", "is_apart"), [("0.11.0", False), ("0.12.0", True), ("0.16.0", True), ("0.17.0", False)]
)
def test_graphs_compiled_ahead_of_time_lay_apart_in_some_releases(version: str, is_apart: bool) -> None:
    assert ("the graphs that vLLM compiled ahead of time" in places(AT_HOME, version)) is is_apart


def test_every_cache_has_a_link_and_a_place_without_its_variable() -> None:
    caches = known.dialects().table.caches
    assert all(cache.link.startswith("https://github.com/") and cache.otherwise for cache in caches)
    one_name = {(cache.name, cache.variable) for cache in caches}
    assert len({name for name, _ in one_name}) == len({variable for _, variable in one_name}) == len(one_name)
