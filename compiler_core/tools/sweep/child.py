"""The process of one case: ``python -m compiler_core.tools.sweep.child``, which `isolate` starts.

Reads the case as one line of JSON from standard input and writes the row to the file that it names.  When the input is
closed, the process that started it has ended, and it ends too.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

MAX_TRACEBACK = 4000
"""Characters of a traceback that are kept, its end."""


def main() -> None:
    """Runs the case, writes its row, and ends the process."""
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.path[:] = list(dict.fromkeys([*order["sys_path"], *sys.path]))
    try:
        module, _, name = order["settings"]["measure"].partition(":")
        measure = getattr(importlib.import_module(module), name)
        row: dict[str, Any] = {"state": "ok", "reason": "", **measure(order["spec"], order["settings"])}
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        row = {"state": "failed", "reason": text[:MAX_TRACEBACK], "traceback": traceback.format_exc()[-MAX_TRACEBACK:]}
    part = Path(order["result"]).with_suffix(".part")
    part.write_text(json.dumps(row), encoding="utf-8", errors="backslashreplace")
    part.replace(order["result"])
    os._exit(0)  # no destructors: they may hang, or crash after the row is there


def _end_with_parent() -> None:
    stream: Any = sys.stdin.buffer
    while stream.raw.read(4096):
        pass
    os._exit(3)


if __name__ == "__main__":
    main()
