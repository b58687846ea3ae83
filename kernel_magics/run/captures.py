"""Captures the function of an expression by every method, for ``%capture_methods``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from compiler_core.errors import UsageError as WrongUse

if TYPE_CHECKING:
    from compiler_core.tools.capture_methods import CaptureComparison

USAGE = "%capture_methods takes one or two calls of a function, for example: %capture_methods f(x), f(y)"


def capture_expression(shell: Any, expression: str) -> CaptureComparison:
    """Captures the function that `expression` calls, with the arguments of the call.

    Args:
        shell: the running IPython.
        expression: a call with positional arguments, or two calls of the same function with a comma; its syntax has
            been checked.

    Raises:
        UsageError: another expression, or a call that raises an exception as plain PyTorch.
    """
    from compiler_core.tools.capture_methods import capture_methods  # imports PyTorch

    calls = _calls(expression)
    function, first, *others = [
        eval(compile(ast.Expression(part), "<%capture_methods>", "eval"), shell.user_ns)
        for part in (calls[0].func, *(ast.copy_location(ast.Tuple(c.args, ast.Load()), c) for c in calls))
    ]
    try:
        return capture_methods(function, first, *others)
    except WrongUse as error:
        raise UsageError(str(error)) from None


def _calls(expression: str) -> list[ast.Call]:
    """Returns the one or two calls of an expression; raises UsageError for others."""
    try:
        body = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        raise UsageError(USAGE) from None
    parts = body.elts if isinstance(body, ast.Tuple) else [body]
    calls = [part for part in parts if isinstance(part, ast.Call)]
    if len(calls) != len(parts) or not 1 <= len(calls) <= 2:
        raise UsageError(USAGE)
    if any(call.keywords for call in calls):
        raise UsageError("%capture_methods takes positional arguments only: torch.jit.trace has no others")
    if len({ast.dump(call.func) for call in calls}) > 1:
        raise UsageError("%capture_methods: both calls must be of the same function")
    return calls
