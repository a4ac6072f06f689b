"""Where the ``safe-vllm`` command begins."""

from __future__ import annotations

import sys
from typing import NoReturn

from safe_vllm.early import hold_signals


def main() -> NoReturn:
    """Run the command line and exit."""
    hold_signals()
    from safe_vllm.cli.main import run  # slow: a stop may come in the meantime

    status = run(sys.argv[1:])
    hold_signals()  # nobody handles them while Python ends, and one would replace the status
    sys.exit(status)


if __name__ == "__main__":
    main()
