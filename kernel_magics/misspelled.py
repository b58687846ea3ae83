"""A suggestion after a magic that does not exist, such as ``%%compil``."""

from __future__ import annotations

import difflib
import re
from typing import Any

from IPython.core.error import UsageError

from kernel_magics.display.record_view import print_line

_NOT_FOUND = re.compile(r"(?:Cell magic|Line magic function) `(%+)(\w+)` not found")
_CLOSE = 0.7


def install(shell: Any) -> None:
    """Adds the suggestion to `shell`, once."""
    if _suggest not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _suggest)


def remove(shell: Any) -> None:
    """Removes the suggestion from `shell`."""
    if _suggest in shell.events.callbacks["post_run_cell"]:
        shell.events.unregister("post_run_cell", _suggest)


def _suggest(result: Any) -> None:
    if isinstance(result.error_in_exec, UsageError) and (line := suggestion(str(result.error_in_exec))):
        print_line(line)


def suggestion(message: str) -> str:
    """Returns which magic of ours was meant, from IPython's message; empty if none is close."""
    from kernel_magics.magics import CutawayMagics

    if not (found := _NOT_FOUND.match(message)):
        return ""
    signs, name = found.groups()
    names = CutawayMagics.magics["cell" if signs == "%%" else "line"]
    close = difflib.get_close_matches(name, names, n=1, cutoff=_CLOSE)
    return f"Did you mean {signs}{close[0]}?" if close else ""
