"""Every promise of docs/contract.md, and every row of its table of signals, is cited by a test that holds us to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = (ROOT / "docs" / "contract.md").read_text()
ROOMS = ("process", "namespace", "unit", "property")

PROMISE = re.compile(r"^\*\*(P\d+)\b", re.MULTILINE)
ROW = re.compile(r"^\| (?!signal \||---)([^|]+) \|", re.MULTILINE)
SIGNAL = re.compile(r"SIG[A-Z]+\d?|second|third")


def promises(contract: str) -> list[str]:
    """Return the numbers of the promises."""
    return PROMISE.findall(contract)


def signals(contract: str) -> list[str]:
    """Return what the rows of the table are about: names of signals, or which stop signal it is."""
    _, _, table = contract.partition("\n## Signals")
    return [name for row in ROW.findall(table) for name in SIGNAL.findall(row)]


def words(text: str) -> set[str]:
    """Return the words of a name or of a docstring, in capitals."""
    return set(re.findall(r"[A-Z0-9]+", text.upper()))


def said(source: str) -> Iterator[str]:
    """Return what each test says of itself, in its name and docstring; what its module says is said of no test."""
    for found in ast.parse(source).body:
        if isinstance(found, ast.FunctionDef) and found.name.startswith("test_"):
            yield f"{found.name} {ast.get_docstring(found) or ''}"


def cited(text: str) -> set[str]:
    """Return the numbers that a text cites, in sentences or in the names of tests."""
    named = (
        number for name in re.findall(r"\bdef test_(\w+)", text) for number in re.findall(r"(?:^|_)p(\d+)(?=_)", name)
    )
    return {*re.findall(r"\bP\d+\b", text), *(f"P{number}" for number in named)}


SOURCES = [path.read_text() for room in ROOMS for path in sorted((ROOT / "tests" / room).glob("test_*.py"))]
SAID = {word for source in SOURCES for test in said(source) for word in words(test)}


@pytest.mark.parametrize("promise", promises(CONTRACT))
def test_a_promise_is_cited_by_a_test(promise: str) -> None:
    assert promise in SAID


@pytest.mark.parametrize("place", ["tests", "src", "scripts", "docs"])
def test_a_number_that_is_cited_is_that_of_a_promise(place: str) -> None:
    texts = {path: path.read_text() for kind in ("py", "md") for path in (ROOT / place).rglob(f"*.{kind}")}
    texts.pop(Path(__file__), None)  # its examples are none
    found = {(str(path), number) for path, text in texts.items() for number in cited(text)}
    assert {each for each in found if each[1] not in promises(CONTRACT)} == set()
    assert found or place in ("src", "scripts")


@pytest.mark.parametrize("name", signals(CONTRACT))
def test_a_signal_of_the_table_is_named_by_a_test(name: str) -> None:
    assert name.upper() in SAID


def test_each_promise_has_one_place() -> None:
    assert len(promises(CONTRACT)) == len(set(promises(CONTRACT))) >= 20


def test_a_row_without_a_known_signal_would_be_seen() -> None:
    _, _, table = CONTRACT.partition("\n## Signals")
    assert [row for row in ROW.findall(table) if not SIGNAL.search(row)] == []
    assert len(ROW.findall(table)) >= 15


def test_the_numbers_and_rows_are_really_read() -> None:
    table = "\n## Signals\n| signal | z |\n|---|---|\n| SIGFOO, Ctrl-F | |\n| a third | |\n"
    assert promises("**P7, x**\n**P99, y**\nas P8 says" + table) == ["P7", "P99"]
    assert signals("**P7, x**\n| SIGBAR | |" + table) == ["SIGFOO", "third"]


def test_a_number_is_cited_by_a_sentence_or_by_the_name_of_a_test() -> None:
    assert cited('"""P7, and P11:"""\ndef test_p9_p10_it_is(): ...\ndef test_a_p95_b(): "XP3"') == {
        "P7",
        "P11",
        "P9",
        "P10",
        "P95",
    }
    assert cited("def test_the_top10_of_p(): ...\nprint(p3_)") == set()


def test_a_word_counts_only_where_a_test_says_it() -> None:
    source = (
        '"""P7."""\ndef test_p9_sigfoo_it_is() -> None:\n    """SIGBAR too."""\n    x = "SIGBAZ"\ndef other_p8(): ...\n'
    )
    [its_own] = said(source)
    assert {"P9", "SIGFOO", "SIGBAR"} <= words(its_own)
    assert not {"SIGBAZ", "P7", "P8"} & words(its_own)
