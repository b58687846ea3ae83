"""``python -m kernel_magics.command``, which is the command ``cutaway``."""

from __future__ import annotations

import sys

from kernel_magics.command.main import main

if __name__ == "__main__":
    sys.exit(main())
