"""YAML is read without surprises."""

from __future__ import annotations

import pytest

from safe_vllm.data.strict_yaml import dump, load, load_with_lines, read_data
from safe_vllm.errors import Trouble


@pytest.mark.parametrize(
    "word", ["yes", "no", "on", "off", "Yes", "1:30", "2026-01-01", "0777", "1_000", ".inf", "=", "0o7"]
)
def test_a_word_that_yaml_could_take_for_something_else_stays_a_word(word: str) -> None:
    assert load(f"key: {word}", where="x") == {"key": word}


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("False", False), ("null", None), ("~", None), ("", None), ("12", 12), ("-3", -3), ("0x1f", 31),
     ("0.5", 0.5), ("1e5", 1e5), (".5", 0.5), ("'12'", "12")],
)  # fmt: skip
def test_an_unmistakable_scalar_has_its_type(text: str, value: object) -> None:
    found = load(f"key: {text}", where="x")
    assert found == {"key": value}
    assert isinstance(found, dict)
    assert type(found["key"]) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 'p.yaml:3: the key "a" is already in line 1'),
        ("x:\n  - {b: 1, b: 2}\n", 'p.yaml:2: the key "b" is already in line 2'),
        ("a: [1\n", "p.yaml:2: "),
        ("a: !!bool x\n", "p.yaml: a value is not of its tag's kind"),
        ("a: !!timestamp x\n", "p.yaml: a value is not of its tag's kind"),
        ("a: b: c\n", "p.yaml:1: "),
        ("a: !!python/object:os.system {}\n", "p.yaml:1: could not determine a constructor"),
        ("{[1]: 2}\n", "p.yaml:1: "),
        ("a: 1\n---\nb: 2\n", "p.yaml:2: "),
        ("a: \x00\n", "p.yaml: "),
        (b"a: \xff\n", "p.yaml: "),
        ("a: " + "9" * 5000, "p.yaml: "),
        ("[" * 5000, "p.yaml"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(text: str | bytes, message: str) -> None:
    with pytest.raises(Trouble) as caught:
        load(text, where="p.yaml")
    assert str(caught.value).startswith(message)
    assert caught.value.hint


def test_the_shipped_tables_are_read() -> None:
    assert isinstance(read_data("signatures.yaml"), dict)


def test_every_value_has_the_line_of_its_key_or_of_itself_in_a_list() -> None:
    text = "# c\na: 1\nb:\n  c:\n    x\n  d: [1,\n      2]\n1: e\n"
    assert load_with_lines(text, where="x") == (
        {"a": 1, "b": {"c": "x", "d": [1, 2]}, 1: "e"},
        {(): 2, ("a",): 2, ("b",): 3, ("b", "c"): 4, ("b", "d"): 6, ("b", "d", 0): 6, ("b", "d", 1): 7, ("1",): 8},
    )
    assert load_with_lines("", where="x") == (None, {})


def of_aliases(levels: int) -> str:
    """Return a document of nine to the power of ``levels`` values."""
    rows = [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, levels)]
    return "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *rows])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (of_aliases(50), "p.yaml:5: nested too deeply, or too many values"),
        ("a: &a\n  - *a\n", "p.yaml:1: nested too deeply, or too many values"),
        ("a: 1\nb: " + "[" * 150 + "]" * 150, "p.yaml:2: nested too deeply, or too many values"),
        ("[" * 100_000, "p.yaml:1: exceeded maximum nesting depth"),
        ("a: 1\na: 2\n", 'p.yaml:2: the key "a" is already in line 1'),
        ("a: [1\n", "p.yaml:2: "),
        ("a: !!bool x\n", "p.yaml: a value is not of its tag's kind"),
        ("a: !!timestamp x\n", "p.yaml: a value is not of its tag's kind"),
    ],
)
def test_what_is_too_deep_or_too_large_is_an_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(Trouble) as caught:
        load_with_lines(text, where="p.yaml")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "word", ["yes", "1e5", "0x1f", "1:30", "10.0", "null", "~", "", "a: b", "#", "*a", "ü\n", "<<", "="]
)
def test_what_is_written_is_read_back(word: str) -> None:
    value = {"key": word, word: [word, 1, 0.5, None, True, {"x": []}]}
    assert load(dump(value), where="x") == value
