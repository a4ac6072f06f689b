"""Who may import whom, and how big things may get. The code is read, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "safe_vllm"
SOURCE = Path(__file__).parents[2] / "src" / PACKAGE
MODULES = {path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", "."): path for path in SOURCE.rglob("*.py")}

VALUES = (
    "errors machine.facts machine.levels plan.command plan.endpoint plan.intent plan.ladder plan.secrets "
    "verdict.evidence"
)
MAY_IMPORT = {
    "errors": "",
    "atomic": "",
    "printable": "",
    "versions": "",
    "data": "errors",
    "plan": "machine.facts errors versions",
    "machine": "errors data atomic",
    "verdict": "errors versions",
    "policy": "machine.levels plan.ladder plan.intent verdict.evidence errors",
    "checks": "machine.facts machine.condition plan errors early",
    "attempt": "early machine.levels plan.command plan.endpoint plan.intent "
    "verdict.evidence verdict.lines verdict.scan verdict.signatures errors printable",
    "record": f"{VALUES} plan machine.cores verdict.xids patience atomic printable",
    "announce": f"{VALUES} plan.explain plan.status_address record.events checks.finding printable",
    "preparing": "errors known plan machine record attempt.child patience",
    "launcher": "plan.intent plan.endpoint plan.status_address plan.veil attempt record announce preparing launch",
    "launch": "errors known preparing patience printable machine plan policy verdict attempt record announce",
    "patience": "early",
    "known": "data plan verdict checks",
    "commands": "errors known preparing printable data plan machine verdict checks record announce",
    "cli": "launcher plan.intent plan.ladder errors early",
    "__main__": "cli early",
    "early": "",
}
"""What each room may import besides its own modules; a room's name stands for all that is in it."""

LAZY = {"cli"}
"""Rooms that may import anything inside a function: one subcommand must not pay for another."""

PURE = (
    "plan verdict policy checks errors printable versions machine.facts machine.condition machine.levels "
    "attempt.lifecycle attempt.event attempt.effect attempt.progress attempt.proof attempt.seen attempt.timing "
    "attempt.whereabouts record.fingerprint record.rungs_file"
)
IMPURE = ("os", "subprocess", "socket", "time", "pathlib", "threading", "yaml", "click", "tenacity")
ADAPTED = {"policy": "tenacity"}
"""The exception: one module of this room adapts that package."""
ONE_HOME = ("click", "tenacity", "yaml", "pynvml", "prometheus_client")
"""Outside packages, each of which one module alone knows; of click, a room."""
NEVER = ("vllm", "torch", "psutil")
"""Not psutil: docs/decisions/0016-processes-are-read-without-psutil.md."""

MODULE_LINES = 250
FUNCTION_LINES = 40


def imports(tree: ast.AST, module: str) -> Iterator[tuple[str, int]]:
    """Yield every module that is imported anywhere in the tree, by its full name, with the line."""
    package = [PACKAGE, *module.split(".")][:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            base = (start + (node.module or "")).rstrip(".")
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield (full if full.removeprefix(f"{PACKAGE}.") in MODULES or base == PACKAGE else base), node.lineno


def lazy_lines(tree: ast.AST) -> set[int]:
    """Return the lines of the imports that happen inside a function."""
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    inner = (node for function in functions for node in ast.walk(function))
    return {node.lineno for node in inner if isinstance(node, (ast.Import, ast.ImportFrom))}


def is_within(module: str, rooms: str) -> bool:
    """Return whether a module is one of these, or in one of these rooms."""
    return any(module == name or module.startswith(f"{name}.") for name in rooms.split())


def forbidden(module: str, text: str) -> list[str]:
    """Return what a module imports and may not."""
    tree = ast.parse(text)
    room = module.split(".")[0]
    lazy = lazy_lines(tree) if room in LAZY else set()
    found = []
    for name, line in imports(tree, module):
        top = name.split(".")[0]
        if top in NEVER:
            found.append(f"{module}:{line}: nobody imports {top}")
        elif top in IMPURE and is_within(module, PURE) and ADAPTED.get(room) != top:
            found.append(f"{module}:{line}: {top} in a pure room")
        elif top == PACKAGE and line not in lazy and not _is_allowed(room, name.removeprefix(PACKAGE).lstrip(".")):
            found.append(f"{module}:{line}: {room} may not import {name}")
    return found


def _is_allowed(room: str, imported: str) -> bool:
    # The package itself holds the version and nothing else; a room's __init__ is the room's name.
    return imported in ("", "__version__") or is_within(imported, f"{room} {MAY_IMPORT.get(room, '')}")


def too_long(module: str, text: str) -> list[str]:
    """Return what is longer than the house allows."""
    found = [module] if text.count("\n") > MODULE_LINES else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            found += [f"{module}.{node.name}: {lines} lines"] if lines > FUNCTION_LINES else []
    return found


def broad_excepts(module: str, text: str) -> list[str]:
    """Return the places that catch everything."""
    return [
        f"{module}:{node.lineno}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type)
    ]


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(map(_is_broad, caught.elts))
    return caught is None or (isinstance(caught, ast.Name) and caught.id in ("Exception", "BaseException"))


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_what_its_room_may(module: str) -> None:
    found = forbidden(module, MODULES[module].read_text())
    assert not found


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_and_its_functions_stay_small(module: str) -> None:
    found = too_long(module, MODULES[module].read_text())
    assert not found


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"cli.main"}))
def test_only_the_one_funnel_catches_everything(module: str) -> None:
    found = broad_excepts(module, MODULES[module].read_text())
    assert not found


def test_every_room_is_in_the_table() -> None:
    assert {module.split(".")[0] for module in MODULES} - {"__init__"} <= set(MAY_IMPORT)


def test_each_outside_package_has_one_home() -> None:
    homes: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        for name, _ in imports(ast.parse(path.read_text()), module):
            homes.setdefault(name.split(".")[0], set()).add(module.split(".")[0] if name == "click" else module)
    assert {name: home for name, home in homes.items() if name in ONE_HOME and len(home) > 1} == {}


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("launcher", "import vllm.envs"),
        ("machine.packages", "def f():\n    from torch import version"),
        ("plan.flags", "import os.path"),
        ("verdict.judge", "def f():\n    from time import monotonic"),
        ("attempt.lifecycle", "import threading"),
        ("plan.profile", "import yaml"),
        ("verdict.judge", "import tenacity"),
        ("plan.flags", "from safe_vllm.verdict.evidence import Verdict"),
        ("plan.flags", "from safe_vllm.machine import gpus"),
        ("plan.flags", "from ..machine import gpus"),
        ("plan.flags", "from .. import launcher"),
        ("verdict.judge", "import safe_vllm.plan.ladder"),
        ("attempt.child", "from safe_vllm.plan.ladder import Rung"),
        ("record.events", "from safe_vllm import launcher"),
        ("launcher", "def f():\n    from safe_vllm.cli import main"),
        ("cli", "from safe_vllm.machine import gpus"),
        ("attic.box", "from safe_vllm.errors import Trouble"),
    ],
)
def test_the_import_rule_sees_what_is_forbidden(module: str, text: str) -> None:
    assert len(forbidden(module, text)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("plan.flags", "from safe_vllm.machine.facts import Machine\nfrom . import ladder\nfrom .ladder import Rung"),
        ("attempt.child", "import os\nfrom safe_vllm.plan.command import Command"),
        ("cli", "import click\n\ndef doctor():\n    from safe_vllm.machine import gpus"),
        ("policy.backoff", "import tenacity"),
        ("launcher", "from safe_vllm import __version__"),
    ],
)
def test_the_import_rule_lets_pass_what_is_allowed(module: str, text: str) -> None:
    assert forbidden(module, text) == []


def test_the_house_figures_are_really_measured() -> None:
    body = "\n".join(["def long():", *["    pass"] * FUNCTION_LINES, ""])
    assert too_long("m", body) == [f"m.long: {FUNCTION_LINES + 1} lines"]
    assert too_long("m", "\n" * (MODULE_LINES + 1)) == ["m"]
    for caught in ("", " Exception", " BaseException as e", " (OSError, Exception)"):
        assert broad_excepts("m", f"try:\n    pass\nexcept{caught}:\n    pass") == ["m:3"]
    assert broad_excepts("m", "try:\n    pass\nexcept (OSError, ValueError):\n    pass") == []
