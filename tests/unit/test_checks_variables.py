"""What the check-up says about environment variables and library paths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import MACHINE, case, found, levels, told

from safe_vllm.checks import libraries, variables
from safe_vllm.machine.condition import LibraryPath
from safe_vllm.machine.facts import Surface

LINKS = {
    "VLLM_SERVICE_HOST": "10.0.0.1",
    "VLLM_SERVICE_PORT": "8000",
    "VLLM_PORT": "tcp://10.0.0.1:8000",
    "VLLM_PORT_8000_TCP_ADDR": "10.0.0.1",
}
READ = Surface(variables=frozenset({"VLLM_LOGGING_LEVEL", "VLLM_PORT", "VLLM_USE_FLASHINFER_MOE_FP16"}))


def test_the_variables_of_the_write_ups_are_told_with_the_knobs_that_work() -> None:
    both = {"FLASHINFER_DISABLE_MOE_AUTOTUNE": "1", "TRTLLM_MOE_MAX_WORKSPACE": "8192"}
    [first, second] = found(variables.unread, case(environment=both))
    assert (first.level, second.level) == ("warning", "warning")
    assert first.why.startswith("not read by the installed version: ")
    assert first.do == "use --no-enable-flashinfer-autotune"
    assert "--max-num-batched-tokens" in second.do
    newer = found(variables.unread, case(environment=both, installed={"vllm": "0.26.0"}))[0]
    assert "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS=flashinfer::trtllm_bf16_moe" in newer.do
    older = found(variables.unread, case(environment=both, installed={"vllm": "0.15.1"}))[0]
    assert older.do == "unset it"


def test_a_variable_that_an_older_vllm_read_is_told_with_its_successor() -> None:
    old = {"VLLM_USE_FLASHINFER_MOE_FP16": "1"}
    [finding] = found(variables.unread, case(environment=old, installed={"vllm": "0.24.0"}))
    assert (finding.level, finding.do) == ("warning", "use --moe-backend")
    assert levels(variables.unread, case(environment=old)) == ["ok"]


def test_a_misspelled_name_is_told_with_the_nearest_one_that_is_read() -> None:
    what = case(environment={"VLLM_LOGING_LEVEL": "debug"}, surface=READ)
    assert found(variables.unread, what)[0].do == "did you mean VLLM_LOGGING_LEVEL? else unset it"


def test_an_unread_variable_is_a_problem_where_vllm_validates_its_environment() -> None:
    what = case("m", "--fail-on-environ-validation", environment={"VLLM_NO_SUCH": "1"}, surface=READ)
    assert levels(variables.unread, what) == ["problem"]


def test_where_the_source_was_not_read_or_vllm_is_unknown_nothing_is_claimed() -> None:
    assert levels(variables.unread, case(environment={"VLLM_NO_SUCH": "1", "FLASHINFER_NO_SUCH": "1"})) == ["ok"]
    unknown = case(environment={"VLLM_USE_FLASHINFER_MOE_FP16": "1"}, installed={"vllm": None})
    assert levels(variables.unread, unknown) == ["ok"]
    folklore = case(environment={"TRTLLM_MOE_MAX_WORKSPACE": "1"}, installed={"vllm": None})
    assert levels(variables.unread, folklore) == ["warning"]


def test_a_variable_that_later_releases_do_not_read_is_a_note() -> None:
    [finding] = found(variables.vanishing, case(environment={"VLLM_FLASHINFER_MOE_BACKEND": "latency"}))
    assert (finding.level, finding.do) == ("note", "use --moe-backend")
    gone = case(environment={"VLLM_FLASHINFER_MOE_BACKEND": "latency"}, installed={"vllm": "0.24.0"})
    assert levels(variables.vanishing, gone) == []
    assert levels(variables.vanishing, case(environment={"VLLM_USE_DEEP_GEMM": "1"})) == []


def test_a_kubernetes_service_called_vllm_is_one_problem_not_many_variables() -> None:
    what = case(environment=LINKS, surface=READ)
    [finding] = found(variables.links, what)
    assert (finding.level, "VLLM_PORT appears to be a URI" in finding.why) == ("problem", True)
    assert levels(variables.unread, what) == ["ok"]


def test_links_of_a_service_that_do_no_harm_are_a_note() -> None:
    other = {"VLLM_PROD_SERVICE_HOST": "10.0.0.1", "VLLM_PROD_PORT": "tcp://10.0.0.1:80"}
    assert levels(variables.links, case(environment=other)) == ["note"]
    assert levels(variables.links, case("m", "--fail-on-environ-validation", environment=other)) == ["problem"]
    assert levels(variables.links, case(environment={"VLLM_PORT": "8100"})) == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SAFE_VLLM_OFF", "1", ["warning"]),
        ("SAFE_VLLM_OFF", "0", []),
        ("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "1", ["warning"]),
        ("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "", []),
        ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1", ["warning"]),
        ("VLLM_LOGGING_LEVEL", "error", ["note"]),
        ("VLLM_LOGGING_LEVEL", "DEBUG", []),
        ("VLLM_CONFIGURE_LOGGING", "0", ["note"]),
    ],
)
def test_switches_that_change_what_a_fault_looks_like_are_told(name: str, value: str, expected: list[str]) -> None:
    assert levels(variables.switches, case(environment={name: value})) == expected


@pytest.mark.parametrize(
    ("cuda", "majors", "level", "said"),
    [
        ("12.8", ("12",), "ok", "holds libcudart.so.12"),
        ("12.8", (), "warning", "there is no libcudart.so.12"),
        ("13.0", ("12",), "warning", "into a process of CUDA 13"),
        ("13.0", (), "note", "no effect with CUDA 13"),
        (None, ("12",), "note", "no effect here"),
    ],
)
def test_cuda_lib_path_has_an_effect_only_where_it_leads_to_the_runtime_of_cuda_12(
    cuda: str | None, majors: tuple[str, ...], level: str, said: str
) -> None:
    place = LibraryPath("CUDA_LIB_PATH", "/cuda/lib", cuda_majors=majors)
    what = case(
        environment={"CUDA_LIB_PATH": "/cuda/lib"}, installed={"torch_cuda": cuda}, state={"library_paths": (place,)}
    )
    [(found_level, text)] = told(libraries.cuda_lib_path, what)
    assert (found_level, said in text) == (level, True)


def test_the_directory_of_the_wrong_platform_is_told_with_the_right_one() -> None:
    jetsons = "/usr/local/cuda/targets/aarch64-linux/lib"
    place = LibraryPath("CUDA_LIB_PATH", jetsons, exists=False)
    grace = replace(MACHINE, architecture="aarch64")
    right = replace(grace, cuda12_libraries=("/usr/local/cuda/targets/sbsa-linux/lib",))
    for machine, do in ((right, "set it to /usr/local/cuda/targets/sbsa-linux/lib"), (grace, "sbsa-linux/lib")):
        what = case(
            machine=machine,
            environment={"CUDA_LIB_PATH": jetsons},
            installed={"torch_cuda": "12.8"},
            state={"library_paths": (place,)},
        )
        [finding] = found(libraries.cuda_lib_path, what)
        assert (finding.level, do in finding.do, "not a directory" in finding.what) == ("warning", True, True)
    assert levels(libraries.cuda_lib_path, case()) == []


@pytest.mark.parametrize(
    ("path", "majors", "expected"),
    [
        ("/usr/local/cuda-12.8/lib64", ("12",), ["warning"]),
        ("/usr/local/cuda/lib64", ("12", "13"), ["ok"]),
        ("/usr/local/nvidia/lib64", (), ["ok"]),
        ("/usr/local/cuda/lib64/stubs/", (), ["problem"]),
    ],
)
def test_libraries_that_come_before_torchs_own_are_told(
    path: str, majors: tuple[str, ...], expected: list[str]
) -> None:
    place = LibraryPath("LD_LIBRARY_PATH", path, cuda_majors=majors)
    assert levels(libraries.library_path, case(state={"library_paths": (place,)})) == expected
    assert levels(libraries.library_path, case()) == []
