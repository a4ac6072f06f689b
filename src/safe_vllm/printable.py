"""Text of anybody's made fit to be shown: a mark stands for what a terminal would obey or cannot show."""

from __future__ import annotations

import re

MARK = "?"
"""Every terminal has it."""
# What moves the cursor or turns the direction of writing, and what no encoding has.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


_NO_BYTE = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that stand for no byte of a word that is no UTF-8: JSON can write them, and no encoding has them."""


def on_one_line(text: object) -> str:
    """Return a text as one line, with a space for each white space in it."""
    return "".join(each if each.isprintable() else " " if each.isspace() else MARK for each in str(text))


def without_controls(text: str, mark: str = MARK) -> str:
    """Return a text of several lines with its line ends and tabs, and without what else is not for the eye."""
    return _CONTROL.sub(mark, text)


def encodable(text: str) -> str:
    """Return a text that ``surrogateescape`` can encode: what no encoding has is spelled as JSON spells it."""
    return _NO_BYTE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_utf8(json: str) -> str:
    """Return JSON that every reader can decode and that means the same: surrogates are spelled."""
    return json.encode(errors="backslashreplace").decode()
