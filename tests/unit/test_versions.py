"""One rule for what lies in a range of versions."""

from __future__ import annotations

import pytest

from safe_vllm.versions import is_within


@pytest.mark.parametrize(
    ("version", "wanted", "found"),
    [
        ("0.24.0", ">=0.24", True),
        ("0.23.9", ">=0.24", False),
        ("0.24.0rc1", ">=0.24", True),
        ("0.24.0rc1", "<0.24", False),
        ("0.24.1.dev5+g1234abc", ">=0.24.1", True),
        ("0.24.1.dev5+g1234abc", "<0.24.1", False),
        ("0.6.8.post1", "<0.6.8.post1", False),
        ("0.6.8.post1", ">=0.6.8.post1", True),
        ("0.6.8", "<0.6.8.post1", True),
        ("0.6.8.post1.dev2", "<0.6.8.post1", True),
        ("0.32.0+cpu", "==0.32.0", True),
        ("1!2.0", ">=1!1.0", True),
        ("0.24.0", "", True),
        ("unknown", ">=0.24", None),
        (None, ">=0.24", None),
    ],
)
def test_a_version_lies_in_a_range_or_nobody_knows(version: str | None, wanted: str, found: bool | None) -> None:
    assert is_within(version, wanted) is found
