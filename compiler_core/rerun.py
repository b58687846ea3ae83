"""When a captured graph fails while it runs: an index out of range, sizes that fake tensors did not check.

Python would have come to the failing operation step by step: with the side effects before it done, inside the
``try`` or ``with`` blocks around it.  So the frame runs again from its start, as plain Python, if the graph has left
its inputs as they were.  Generated code does this::

    out = graph(x, y)
    if out is None:
        return run_plainly(code, globals, closure, args, kwargs)
"""

from __future__ import annotations

import threading
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler_core import ambient
from compiler_core.frame_hook import hook_off
from compiler_core.graphs import draws
from compiler_core.record import Compile

_failed = threading.local()
"""``last``: the compile whose graph just failed in this thread, and the error; for `run_plainly`, which comes next."""


def graph_or_none(
    graph: torch.fx.GraphModule, compiled: Callable[..., Any], name: str, compile_: Compile
) -> Callable[..., Any]:
    """`compiled`, which gives None where it failed and the frame may run again; else the error goes on."""
    hidden, random_numbers = _writes_to_data(graph), draws(graph.graph)
    mutates, versions_of = hidden or _mutates(graph), _unknown if hidden else _versions
    before = ambient.restorer(graph.graph)

    def plain(*inputs: Any) -> Any:
        restore = before()
        try:
            return compiled(*inputs)
        except BaseException as error:
            restore()
            if not isinstance(error, Exception):
                raise
            _failed.last = compile_, error
            return None

    def careful(*inputs: Any) -> Any:
        versions = versions_of(inputs) if mutates else []
        random = torch.get_rng_state() if random_numbers else None
        restore = before()
        try:
            return compiled(*inputs)
        except BaseException as error:
            restore()
            if not isinstance(error, Exception) or (mutates and versions != versions_of(inputs)):
                raise
            if random is not None:
                torch.set_rng_state(random)
            _failed.last = compile_, error
            return None

    chosen = careful if mutates or random_numbers else plain
    chosen.__name__ = chosen.__qualname__ = name
    return chosen


def _mutates(graph: torch.fx.GraphModule) -> bool:
    """Whether any operation changed an input in place: fake tensors count their changes, too."""
    return any(n.op == "placeholder" and n.meta["val"]._version > 0 for n in graph.graph.nodes)


def _writes_to_data(graph: torch.fx.GraphModule) -> bool:
    """Whether one went through an input's ``.data``, which has a count of its own."""
    taken = (n for n in graph.graph.nodes if n.target is getattr and n.args[1] == "data")
    return any(n.meta["val"]._version > 0 for n in taken)


def _versions(inputs: Sequence[torch.Tensor]) -> list[Any]:
    """How often each was changed in place; of inference tensors nobody knows."""
    return [object() if t.is_inference() else t._version for t in inputs]


def _unknown(_: Sequence[torch.Tensor]) -> list[Any]:
    """In place of the versions, where nobody counts: never the same twice."""
    return [object()]


def run_plainly(
    code: types.CodeType, f_globals: Any, closure: tuple[types.CellType, ...], args: tuple[Any, ...], kwargs: Any
) -> Any:
    """The frame from its start, as Python runs it, with nothing below it captured.

    If that goes well the graph's failure was ours, and is noted; else it was the program's own.
    """
    compile_, error = _failed.__dict__.pop("last")
    function = types.FunctionType(code, f_globals.value, code.co_name, None, closure)
    with hook_off():
        result = function(*args, **kwargs)
    _note(compile_, error)
    return result


def _note(compile_: Compile, error: Exception) -> None:
    """Once for a compile: the graph is likely to fail in the same way at every call."""
    if not any(f.stage == "run" for f in compile_.failures):
        detail = "".join(traceback.format_exception(error))
        compile_.fail("run", f"the compiled graph raised {type(error).__name__}: {error}", detail)
