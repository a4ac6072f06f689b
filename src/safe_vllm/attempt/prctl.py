"""What a process says of itself to the kernel. Standard library only."""

from __future__ import annotations

import os
from ctypes import CDLL, c_ulong, memmove

from safe_vllm.attempt import tree

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Adopt descendants whose parent died, so that none of them can leave the tree. Linux 3.4."""
    CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, c_ulong(1), c_ulong(0), c_ulong(0), c_ulong(0))


def rename(title: str) -> None:
    """Call this process so, in place of its command line: ``pkill -f`` goes by that."""
    CDLL(None).prctl(PR_SET_NAME, title.encode()[:15])
    try:
        fields = tree.stat_fields(os.getpid())
    except OSError:  # it works under its old name, too
        return
    if fields and (start := int(fields[45])):
        room = int(fields[46]) - start
        memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)
