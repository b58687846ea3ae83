"""``%%compile`` for cells with top-level ``await``, in a kernel whose event loop is already running.

IPython decides whether a cell awaits by its transformed text, and ``%%compile`` transforms the cell into one call
with the cell as a string.  If that string awaits, this module replaces the call by an awaited one.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from typing import Any

MAGIC = "get_ipython().run_cell_magic('compile', "
AWAITED = "await get_ipython().magics_manager.registry['CutawayMagics'].compile_awaiting("


class AwaitTransformer:
    """An IPython input transformer, which runs last: rewrites the call of ``%%compile`` for a cell that awaits."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        text = "".join(lines)
        if not (text.startswith(MAGIC) and self.shell.autoawait and loop_is_running()):
            return lines
        cell = ast.literal_eval(f"({text.removeprefix(MAGIC).rstrip()}")[1]
        return [text.replace(MAGIC, AWAITED, 1)] if self.awaits(cell) else lines

    def awaits(self, cell: str) -> bool:
        """Returns whether the cell has a top-level ``await``; False for a cell with a syntax error."""
        try:
            code = compile(self.shell.transform_cell(cell), "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except (SyntaxError, ValueError):
            return False  # reported when the cell runs
        return bool(code.co_flags & inspect.CO_COROUTINE)


def install(shell: Any) -> None:
    """Adds the transformer to `shell`, once."""
    if not any(isinstance(t, AwaitTransformer) for t in shell.input_transformers_post):
        shell.input_transformers_post.append(AwaitTransformer(shell))


def remove(shell: Any) -> None:
    """Removes the transformer from `shell`."""
    others = [t for t in shell.input_transformers_post if not isinstance(t, AwaitTransformer)]
    shell.input_transformers_post = others


def loop_is_running() -> bool:
    """Returns whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
