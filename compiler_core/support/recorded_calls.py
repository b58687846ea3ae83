"""Custom operators run once, also if the graph that calls them fails and its frame runs again.

PyTorch's operators can run twice, but a custom operator may do something that cannot be done twice, as reading the next
line of a file.  So a run of a graph records what each call of a custom operator returned or raised, and the second run
takes that in place of the calls, in the same order.

The results are referenced weakly, so that they are freed as early as without a record.  An operator whose result was
freed or written to runs again; so do operators that write to their arguments, since what they wrote is undone.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.support.fx_graphs import copy_graph
from compiler_core.support.node_facts import FUNCTIONAL, custom_operator
from compiler_core.torch_private import TorchDispatchMode, tree_map, tree_map_only


class _Open(threading.local):
    calls: CallRecord | None = None


_open = _Open()
"""The record of the graph that runs in this thread."""


class CallRecord:
    """What the custom operators returned or raised in one run of a graph."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def add(self, call: _Call) -> None:
        self._calls.append(call)

    def add_all(self, other: CallRecord | None) -> None:
        self._calls += other._calls if other else []

    def replayed(self) -> TorchDispatchMode:
        """Returns a context in which calls of custom operators return or raise what the recorded ones did, until all
        have been made."""
        return _Replay(self._calls)


@dataclass(frozen=True)
class _Call:
    operator: Any
    result: Any
    """The result, with a `_WeakTensor` for each tensor."""
    error: BaseException | None = None

    def repeat(self) -> Any:
        """Returns or raises what the call did; raises _Lost if a result is lost.

        The results are other tensors with the same memory, to each of which autograd gives a new history.
        """
        if self.error is not None:
            raise self.error
        return tree_map_only(_WeakTensor, lambda weak: weak.tensor().detach(), self.result)


class _Lost(Exception):
    """A result was freed or written to."""


class _WeakTensor:
    def __init__(self, tensor: torch.Tensor) -> None:
        self._reference = weakref.ref(tensor)
        self._version = None if tensor.is_inference() else tensor._version

    def tensor(self) -> torch.Tensor:
        found = self._reference()
        if found is None or (self._version is not None and found._version != self._version):
            raise _Lost
        return found


class _Replay(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, calls: list[_Call]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left = list(reversed(calls))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._left or func is not self._left[-1].operator:
            return func(*args, **(kwargs or {}))
        try:
            return self._left.pop().repeat()
        except _Lost:
            return func(*args, **(kwargs or {}))


def begin_record() -> None:
    """Begins the record of a run of a graph, which `end_record` ends."""
    _open.calls = CallRecord()


def end_record() -> None:
    """Ends the record of the graph that runs in this thread."""
    _open.calls = None


def with_inner_record(run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `run`, a part of a graph, with a record of its calls, which follow those of the graph before it: if the
    part runs again, only its calls are repeated."""

    def call(*args: Any) -> Any:
        outer = _open.calls
        if outer is None:
            return run(*args)
        begin_record()
        try:
            return run(*args)
        finally:
            inner, _open.calls = _open.calls, outer
            outer.add_all(inner)

    return call


def open_record() -> CallRecord | None:
    """Returns the record of the graph that runs in this thread."""
    return _open.calls


@functools.cache
def recorded(target: Any) -> Callable[..., Any]:
    """Returns a function that calls a custom operator and adds the call to the record of the graph that runs.

    `target` is the operator in one of the forms in which programs name it; see `custom_operator`.
    """
    operator = custom_operator(target)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls = _open.calls
        if calls is None:
            return target(*args, **kwargs)
        try:
            result = target(*args, **kwargs)  # which may run other graphs
        except BaseException as error:
            calls.add(_Call(operator, None, error))
            raise
        finally:
            _open.calls = calls
        calls.add(_Call(operator, tree_map(_weakly, result)))
        return result

    call.__name__ = call.__qualname__ = f"recorded_{operator.namespace}_{operator.__name__.replace('.', '_')}"  # for FX
    return call


def _weakly(value: Any) -> Any:
    return _WeakTensor(value) if isinstance(value, torch.Tensor) else value


def is_recorded(target: Any) -> bool:
    """Returns whether `target` is a custom operator that writes to no argument."""
    operator = custom_operator(target)
    return operator is not None and not operator._schema.is_mutable and operator.namespace != FUNCTIONAL


def has_recorded_calls(graph: torch.fx.GraphModule) -> bool:
    """Returns whether the graph calls operators that are recorded."""
    return any(is_recorded(node.target) for node in graph.graph.nodes)


def with_recorded_calls(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Returns the graph with calls of custom operators that are recorded; the same graph if it has none."""
    if not has_recorded_calls(graph):
        return graph
    copy = copy_graph(graph)
    for node in copy.graph.nodes:
        if is_recorded(node.target):
            node.target = recorded(node.target)
    copy.recompile()
    return copy
