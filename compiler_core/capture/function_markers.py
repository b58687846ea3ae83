"""Calls of functions that the program has marked: disabled, allowed in the graph as one node, or constant.

The markers of this compiler and of stock ``torch.compile`` have the same effect.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from compiler_core.capture.rules.table import HANDLERS
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue, is_atom
from compiler_core.errors import Unsupported
from compiler_core.hook.skip_rules import disable_capture
from compiler_core.torch_private import stock_graph_break, trace_rules

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def marked_call(
    tx: Interpreter, fn: types.FunctionType, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """Returns the result of calling a marked function; None for a function without a mark."""
    compiled_from = getattr(fn, "_cutaway_original", None)
    if compiled_from is not None:  # a compiled function is inlined in its caller
        return tx.capture.outside.wrap_static(compiled_from).call(tx, args, kwargs)
    if getattr(fn, "_cutaway_graph_break", False):
        _graph_break(tx, *args, **kwargs)
    if getattr(fn, "_cutaway_disabled", False) or getattr(fn, "_torchdynamo_disable", False):
        if getattr(fn, "_torchdynamo_disable_recursive", True) is False:
            disable_capture(fn.__dict__["_torchdynamo_orig_callable"].__code__)
        raise Unsupported("asked for", fn.__qualname__)
    if getattr(fn, "_dynamo_marked_constant", False):
        return _constant_result(tx, fn, args, kwargs)
    if id(fn) in trace_rules._allowed_callable_ids:
        return tx.capture.graph.call_function(tx, fn, args, kwargs)
    return None


def _constant_result(tx: Interpreter, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``torch.compiler.assume_constant_result``: calls the function now, once in each compile."""
    result = fn(*(a.constant(tx) for a in args), **{k: v.constant(tx) for k, v in kwargs.items()})
    if not is_atom(result):
        raise Unsupported("unsupported call", f"{fn.__qualname__} gives a {type(result).__name__} as constant result")
    return tx.capture.outside.wrap_static(result)


def _graph_break(tx: Interpreter, /, msg: Value | None = None) -> NoReturn:
    """``graph_break(msg)``, which breaks the graph; the break's explanation has the message."""
    text = "" if msg is None else str(msg.value if isinstance(msg, ConstantValue) else msg)
    raise Unsupported("asked for", f"graph_break: {text}" if text else "graph_break()")


HANDLERS[stock_graph_break] = _graph_break
