"""A terminal with a person at it: what is typed, what is shown, and a shell with job control."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from launch import Launch

CTRL_C, CTRL_Z, CTRL_BACKSLASH, ENTER = b"\x03", b"\x1a", b"\x1c", b"\n"

SHELL = ("bash", "--norc", "-imc")
IN_THE_FOREGROUND = (*SHELL, '"$0" "$@"; echo "left with $?"; read -r; fg; echo "ended with $?"')
"""A shell that runs a command, and continues it at the next Enter when it was suspended."""
SENT_TO_THE_BACKGROUND = (*SHELL, '"$0" "$@"; bg; echo "goes on"; read -r; fg; echo "ended with $?"')
"""The same, but what was suspended goes on at once, in the background, and is called back at the next Enter."""
IN_THE_BACKGROUND = (*SHELL, 'stty tostop; "$0" "$@" & read -r; fg; echo "ended with $?"')
"""A shell whose terminal stops whoever writes to it from the background, until the next Enter."""


class Terminal:
    """Our end of a terminal."""

    def __init__(self) -> None:
        """Open one of 24 lines and 80 columns."""
        self._ours, self._theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        self._shown = b""
        self.resize(24, 80)

    @property
    def streams(self) -> dict[str, Any]:
        """Return what makes it the controlling terminal of a process that begins a session."""
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), self._theirs)
        return streams | {"preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def resize(self, lines: int, columns: int) -> None:
        """Give the window another size."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def shown(self) -> str:
        """Return all that was shown so far."""
        try:
            while data := os.read(self._ours, 65536):
                self._shown += data
        except OSError:  # nothing more for now, or for ever
            pass
        return self._shown.decode(errors="replace")

    def close(self) -> None:
        """Close the window."""
        for descriptor in (self._ours, self._theirs):
            if descriptor >= 0:
                os.close(descriptor)
        self._ours = self._theirs = -1

    def wait_for(self, run: Launch, text: str) -> None:
        """Wait until a text is shown."""
        run.wait_for(f"{text!r} on the terminal", lambda: text in self.shown())


@contextmanager
def terminal() -> Iterator[Terminal]:
    """Open a terminal for a while."""
    opened = Terminal()
    try:
        yield opened
    finally:
        opened.close()
