"""Times an expression as plain PyTorch and compiled, for ``%speed``."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError

from compiler_core.errors import UsageError as WrongUse
from compiler_core.records import Timings

ENGINES = {"core": "core", "torch": "stock"}
"""The names of the forms in `compiler_core.time`, by the name of the engine in a magic."""


def time_expression(
    shell: Any, expression: str, engines: str, mode: str | None, backward: bool, seconds: float
) -> Timings:
    """Times an expression, which is evaluated in the user's namespace at each call.

    Args:
        shell: the running IPython.
        expression: the expression, whose syntax has been checked.
        engines: ``core``, ``torch``, or both with a comma.
        mode: the mode of each engine.
        backward: also run the backward pass of the sum of the results.
        seconds: for how long it is timed, besides compiling.

    Raises:
        UsageError: a statement, an unknown engine or mode, or a result without a gradient.
    """
    from compiler_core.tools.timing.call import time  # imports PyTorch

    source = f"lambda: ({expression}\n)"
    try:
        code = compile(source, shell.compile.cache(source), "eval")
    except SyntaxError:
        raise UsageError("%speed takes an expression, for example: %speed model(x)") from None
    unknown = [name for name in engines.split(",") if name not in ENGINES]
    if unknown:
        raise UsageError(f"unknown engine {unknown[0]!r}; choose from core, torch, or core,torch")
    suffix = f":{mode}" if mode else ""
    forms = ("eager", *(ENGINES[name] + suffix for name in engines.split(",")))
    try:
        return time(eval(code, shell.user_ns), engines=forms, backward=backward, seconds=seconds)
    except WrongUse as error:
        raise UsageError(str(error)) from None
