"""Whether a version lies in a range, by one rule for all tables."""

from __future__ import annotations


def is_within(version: str | None, wanted: str) -> bool | None:
    """Return whether a version is in a range such as ``>=0.20,<0.24``; ``None``: it is not known, or is no version.

    A build that leads to a release (``0.24.0rc1``, a nightly's ``0.24.0.dev5+g1234``) counts as that release, since
    it has most of what that has; ``0.6.8.post1`` is later than ``0.6.8``, and what stands behind a plus says nothing.
    """
    from packaging.specifiers import SpecifierSet  # slow to import, and few launches need it
    from packaging.version import InvalidVersion, Version

    try:
        found = Version(version or "")
    except InvalidVersion:
        return None
    epoch = f"{found.epoch}!" if found.epoch else ""
    post = "" if found.post is None or found.dev is not None else f".post{found.post}"
    return f"{epoch}{'.'.join(map(str, found.release))}{post}" in SpecifierSet(wanted)
