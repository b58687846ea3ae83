"""``python -m kernel_magics.command``, which is the command ``cutaway``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code; Ctrl-C while it is imported prints one line, too."""
    try:
        from kernel_magics.command.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("cutaway: interrupted\n")
        return 130
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
