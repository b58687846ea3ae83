"""When a captured graph fails while it runs: an index out of range, sizes that fake tensors did not check.

Python would have come to the failing operation step by step: with the side effects before it done, inside the
``try`` or ``with`` blocks around it.  So the frame runs again from its start, as plain Python, if the graph has left
its inputs as they were.  Generated code does this::

    out = graph(x, y)
    if out is None:
        return run_plainly(code, globals, closure, args, kwargs)
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler_core import ambient
from compiler_core.frame_hook import hook_off

_DRAWS = re.compile("rand|drop|normal|bernoulli|multinomial|poisson|uniform|exponential|cauchy|geometric|gumbel|rrelu")


def graph_or_none(graph: torch.fx.GraphModule, compiled: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`compiled`, which gives None where it failed and the frame may run again; else the error goes on."""
    mutates, draws = _mutates(graph), _draws(graph)
    before = ambient.restorer(graph.graph)

    def plain(*inputs: Any) -> Any:
        restore = before()
        try:
            return compiled(*inputs)
        except BaseException as error:
            restore()
            if not isinstance(error, Exception):
                raise
            return None

    def careful(*inputs: Any) -> Any:
        versions = _versions(inputs) if mutates else []
        random = torch.get_rng_state() if draws else None
        restore = before()
        try:
            return compiled(*inputs)
        except BaseException as error:
            restore()
            if not isinstance(error, Exception) or (mutates and versions != _versions(inputs)):
                raise
            if random is not None:
                torch.set_rng_state(random)
            return None

    chosen = careful if mutates or draws else plain
    chosen.__name__ = chosen.__qualname__ = name
    return chosen


def _mutates(graph: torch.fx.GraphModule) -> bool:
    """Whether any operation changed an input in place: fake tensors count their changes, too."""
    return any(n.op == "placeholder" and n.meta["val"]._version > 0 for n in graph.graph.nodes)


def _versions(inputs: Sequence[torch.Tensor]) -> list[Any]:
    """How often each was changed in place; of inference tensors nobody knows."""
    return [object() if t.is_inference() else t._version for t in inputs]


def _draws(graph: torch.fx.GraphModule) -> bool:
    """Whether an operation may draw random numbers."""
    calls = (n.target for n in graph.graph.nodes if n.op.startswith("call_"))
    return any(_DRAWS.search(getattr(target, "__name__", str(target))) for target in calls)


def run_plainly(
    code: types.CodeType, f_globals: Any, closure: tuple[types.CellType, ...], args: tuple[Any, ...], kwargs: Any
) -> Any:
    """The frame from its start, as Python runs it, with nothing below it captured."""
    function = types.FunctionType(code, f_globals.value, code.co_name, None, closure)
    with hook_off():
        return function(*args, **kwargs)
