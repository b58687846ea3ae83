"""A compiled cell that awaits, in a kernel: the magic's call is awaited, too, in the loop that runs already.

IPython decides whether a cell awaits by the text that it has become, and ``%%compile`` has become one
call with the cell as a string.  Where that cell awaits, the call turns into one that does.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from typing import Any

MAGIC = "get_ipython().run_cell_magic('compile', "
AWAITED = "await get_ipython().magics_manager.registry['CutawayMagics'].compile_awaiting("


class AwaitTransformer:
    """The last of IPython's input transformers."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        text = "".join(lines)
        if not (text.startswith(MAGIC) and self.shell.autoawait and loop_is_running()):
            return lines
        cell = ast.literal_eval(f"({text.removeprefix(MAGIC).rstrip()}")[1]
        return [text.replace(MAGIC, AWAITED, 1)] if self.awaits(cell) else lines

    def awaits(self, cell: str) -> bool:
        try:
            code = compile(self.shell.transform_cell(cell), "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except (SyntaxError, ValueError):
            return False  # to be said when it runs
        return bool(code.co_flags & inspect.CO_COROUTINE)


def install(shell: Any) -> None:
    if not any(isinstance(t, AwaitTransformer) for t in shell.input_transformers_post):
        shell.input_transformers_post.append(AwaitTransformer(shell))


def remove(shell: Any) -> None:
    kept = [t for t in shell.input_transformers_post if not isinstance(t, AwaitTransformer)]
    shell.input_transformers_post = kept


def loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
