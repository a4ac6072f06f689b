"""The paths under which CUDA libraries are looked for."""

from __future__ import annotations

from collections.abc import Iterator

from safe_vllm.checks.case import Case
from safe_vllm.checks.finding import Finding
from safe_vllm.machine.condition import LibraryPath

ONLY_USE = "FlashInfer loads libcudart.so.12 from it when it is imported, and that is all it is for"
"""https://github.com/flashinfer-ai/flashinfer/pull/928"""


def cuda_lib_path(case: Case) -> Iterator[Finding]:
    """Look at where FlashInfer would find the runtime of CUDA 12."""
    if "CUDA_LIB_PATH" not in case.environment:
        return
    place = next((each for each in case.state.library_paths if each.variable == "CUDA_LIB_PATH"), None)
    has_runtime = place is not None and "12" in place.cuda_majors
    major = case.torch_cuda_major
    what = f"CUDA_LIB_PATH is {case.environment['CUDA_LIB_PATH']!r}"
    if major is None:
        yield Finding("cuda-lib-path", "note", what, ONLY_USE, "unset it: it has no effect here")
    elif major != "12" and has_runtime:
        why = f"it brings the runtime of CUDA 12 into a process of CUDA {major}"
        yield Finding("cuda-lib-path", "warning", what, why, "unset CUDA_LIB_PATH")
    elif major != "12":
        yield Finding("cuda-lib-path", "note", what, ONLY_USE, f"unset it: it has no effect with CUDA {major}")
    elif has_runtime:
        yield Finding("cuda-lib-path", "ok", f"{what} and holds libcudart.so.12")
    else:
        missing = f"{what}, where there is no libcudart.so.12" if place and place.exists else f"{what}, not a directory"
        yield Finding("cuda-lib-path", "warning", missing, ONLY_USE, _better(case))


def _better(case: Case) -> str:
    known = case.machine.cuda12_libraries
    if known:
        return f"set it to {known[0]}, or unset it"
    is_arm = case.machine.architecture == "aarch64" and "-linux" in case.environment["CUDA_LIB_PATH"]
    return "unset it" + ("; on Arm servers such as Grace the directory is targets/sbsa-linux/lib" if is_arm else "")


def library_path(case: Case) -> Iterator[Finding]:
    """Look for libraries that would come before those that torch brings along."""
    places = [each for each in case.state.library_paths if each.variable == "LD_LIBRARY_PATH"]
    wrong = [finding for place in places for finding in _before_torch(place, case)]
    yield from wrong
    if places and not wrong:
        yield Finding("library-path", "ok", "nothing in LD_LIBRARY_PATH is in the way")


def _before_torch(place: LibraryPath, case: Case) -> Iterator[Finding]:
    major = case.torch_cuda_major
    what = f"LD_LIBRARY_PATH has {place.path}"
    if place.path.rstrip("/").endswith("/stubs"):
        why = "the libcuda.so in it is for linking only: CUDA says that the driver is a stub library"
        yield Finding("library-path", "problem", what, why, "take it out of LD_LIBRARY_PATH")
    elif major and place.cuda_majors and major not in place.cuda_majors:
        held = " and ".join(place.cuda_majors)
        why = f"its libraries of CUDA {held} go before those that torch, built for CUDA {major}, brings along"
        yield Finding("library-path", "warning", what, why, "take it out of LD_LIBRARY_PATH")
