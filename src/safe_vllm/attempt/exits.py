"""How a process ended that need not be our child. Standard library only."""

from __future__ import annotations

import fcntl
import os
import struct

from safe_vllm.attempt import tree

# include/uapi/linux/pidfd.h: _IOWR(0xFF, 11, 64 bytes), the flag that asks for the wait status, and its offset.
PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3
PIDFD_INFO_BYTES = 64
PIDFD_INFO_STATUS_OFFSET = 60


def ended_status(pid: int, pidfd: int) -> int | None:
    """Return how a process ended that need not be our child: status, or minus the signal; ``None``: not told.

    A zombie shows its wait status in ``/proc``; once it was reaped, the pidfd still knows it (Linux 6.15).
    """
    try:
        fields = tree.stat_fields(pid)
    except OSError:
        fields = None
    if fields and fields[0] == b"Z" and len(fields) > 49:
        return os.waitstatus_to_exitcode(int(fields[49]))
    request = bytearray(PIDFD_INFO_BYTES)
    struct.pack_into("<Q", request, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, request)
    except OSError:
        return None
    if not struct.unpack_from("<Q", request, 0)[0] & PIDFD_INFO_EXIT:
        return None
    return os.waitstatus_to_exitcode(struct.unpack_from("<i", request, PIDFD_INFO_STATUS_OFFSET)[0])
