"""Secrets of a launch are hidden wherever they stand, and told apart."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote

import pytest

from safe_vllm.plan.secrets import hide, hide_variable, without_secrets
from safe_vllm.plan.veil import CUT_AT, plain_veil, salted, veil_of

KEY = "p@ss w/rd \"1\" 'ü'"
MARK = r"\*\*\*[0-9a-f]{4}"


def veil(*words: str, salt: bytes = b"salt", config: dict[str, object] | None = None, **environment: str):  # type: ignore[no-untyped-def]
    return veil_of(salt, words, environment, config)


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        json.dumps({"x": KEY}),
        json.dumps({"x": KEY}, ensure_ascii=False),
        repr([KEY]),
        f"https://host/?x={quote(KEY)}",
        f"https://host/?x={quote(KEY, safe='')}",
        base64.b64encode(KEY.encode()).decode(),
        f"Unauthorized: {KEY}!",
    ],
)
def test_a_known_secret_is_hidden_without_anything_that_says_what_it_is(written: str) -> None:
    for hides in (veil("--api-key", KEY), veil(X_SECRET=KEY), veil(config={"api-key": [KEY]})):
        shown = hides.text(f"before {written} after")
        assert re.search(MARK, shown)
        assert "p@ss" not in shown and quote("p@ss") not in shown and "ss w" not in shown
        assert shown.startswith("before ") and shown.endswith(" after")


def test_each_line_and_each_part_of_a_secret_is_hidden() -> None:
    hides = veil(TLS_KEY="first line of it\nsecond line\n", URL="https://user:pass-word@host")
    assert re.fullmatch(rf"a {MARK} b {MARK} c {MARK}", hides.text("a first line of it b second line c pass-word"))
    assert hides.text("user") == "user"


def test_of_two_secrets_the_longer_one_is_hidden_whole() -> None:
    hides = veil("--api-key", "one-secret", "one-secret-and-more", X_KEY="one-secret-or-less")
    shown = hides.text("one-secret-or-less one-secret one-secret-and-more")
    assert re.fullmatch(rf"{MARK} {MARK} {MARK}", shown)


def test_short_secrets_are_hidden_only_where_something_says_what_they_are() -> None:
    hides = veil("--api-key", "vllm", HF_TOKEN="on")
    assert hides.text("vllm serve is on") == "vllm serve is on"
    assert "vllm" not in hides.text("api_key=vllm")


def test_the_same_secret_has_the_same_mark_everywhere_and_another_one_has_another() -> None:
    hides = veil("--api-key", "one-secret", OTHER_KEY="two-secrets")
    [shown] = hides.words(["one-secret"])
    places = (
        hides.words(["--api-key=one-secret"])[0].partition("=")[2],
        hides.variable("A_KEY", "one-secret"),
        json.loads(hides.text('{"api_key": "one-secret"}'))["api_key"],
        json.loads(hides.text('{"api_key": ["one-secret"]}'))["api_key"],
        hides.text("Bearer one-secret").partition(" ")[2],
        hides.text("'api_key': ['one-secret']").partition('"')[2].strip('"'),
    )
    assert set(places) == {shown}
    assert hides.variable("OTHER_KEY", "two-secrets") != shown


def test_secrets_that_only_their_place_tells_of_have_marks_too() -> None:
    hides = veil()
    first, second = hides.text("api_key=aaa"), hides.text("api_key=bbb")
    assert first != second and re.fullmatch(f"api_key={MARK}", first)


def test_another_launch_has_other_marks() -> None:
    marks = {salted(bytes([salt]))("secret") for salt in range(20)}
    assert len(marks) > 15


def test_what_was_shown_once_stays_as_it_is() -> None:
    hides = veil("--api-key", "one-secret", "--x", "https://me:pass-word@host/?sig=abcdefg")
    texts = [
        *("--api-key one-secret", "--api-key=one-secret", '{"api_key": ["one-secret", "x"]}', "{'a_key': ['x', 'y']}"),
        *("https://me:pass-word@host/?sig=abcdefg", "Authorization: Bearer one-secret", "x_key = one-secret"),
    ]
    for text in texts:
        shown = hides.text(text)
        assert hides.text(shown) == shown != text
        assert without_secrets(shown) == shown
    assert hides.words(hides.words(["--api-key", "one-secret"])) == hides.words(["--api-key", "one-secret"])
    assert hide(hide(["--api-key", "k", "a_key=b"])) == hide(["--api-key", "k", "a_key=b"])
    assert hide_variable("A_KEY", hides.variable("A_KEY", "one-secret")) == hides.variable("A_KEY", "one-secret")


def test_a_secret_that_was_cut_with_the_text_is_hidden() -> None:
    hides = veil("--api-key", "one-secret")
    for size in range(3, len("one-secret")):
        text = ("x" * CUT_AT)[: -size - 1] + " " + "one-secret"[:size]
        assert re.fullmatch(rf"x+ {MARK}", hides.text(text))
    assert hides.text("short text with one") == "short text with one"


def test_a_string_that_was_cut_is_hidden_to_its_end() -> None:
    assert without_secrets('{"api_key": "abc def') == '{"api_key": "***"'
    assert without_secrets("'token': 'abc def") == "'token': \"***\""


def test_an_empty_secret_is_shown_as_a_secret() -> None:
    assert veil().variable("HF_TOKEN", "") == "***"


def test_the_directory_that_a_shell_is_in_is_no_secret() -> None:
    veil = veil_of(b"salt", ["serve", "/srv/models/tiny"], {"PWD": "/srv/models", "OLDPWD": "/srv/other"})
    assert veil.text("/srv/models/tiny and /srv/other") == "/srv/models/tiny and /srv/other"


def test_a_secret_that_a_line_of_ours_was_cut_in_is_hidden() -> None:
    hides = veil("--api-key", "one-secret")
    assert re.fullmatch(rf"it died: a {MARK}…; then b one-way…", hides.text("it died: a one-secr…; then b one-way…"))


def test_one_mark_for_all_secrets_of_all_commands_and_variables() -> None:
    hides = plain_veil(
        ["--api-key", "one-secret"], [("A_KEY", "two-secrets"), ("A_KEY", "three-secrets")], {"api-key": "k-four"}
    )
    assert hides.text("one-secret two-secrets three-secrets k-four five") == "*** *** *** *** five"
