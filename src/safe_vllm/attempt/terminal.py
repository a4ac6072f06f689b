"""A pseudo-terminal for the child where our own output is a terminal: colours and progress bars stay what they are."""

from __future__ import annotations

import fcntl
import os
import termios

_SIZE_BYTES = 8  # struct winsize


def open_pair(like: int) -> tuple[int, int]:
    """Return our end and the child's end of a terminal as large as ``like``.

    It changes no byte: the real terminal, behind us, is the one that turns a newline into what it needs.
    """
    ours, theirs = os.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    copy_size(like, ours)
    return ours, theirs


def copy_size(source: int, target: int) -> None:
    """Make the terminal ``target`` as large as ``source``; neither need be a terminal any more."""
    try:
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(_SIZE_BYTES))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
    except OSError:
        pass
