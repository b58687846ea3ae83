"""Asserts how a call compiles: the number of graphs and recompiles, with the graph breaks in the error's text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal

import torch

from compiler_core.api.compile import compile
from compiler_core.records.timings import plural
from compiler_core.tools.explain import graph_collector
from compiler_core.tools.questions.counts import CountedProblem, Counts, count
from compiler_core.tools.recording import record
from compiler_core.tools.stock.uncached import uncached, without_known_sizes, without_recompile_limit


def assert_compiles(
    fn: Any,
    *args: Any,
    graphs: int | None = 1,
    recompiles: int | None = 0,
    then: Sequence[Sequence[Any]] = (),
    engine: Literal["torch", "core"] = "torch",
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Counts:
    """Asserts that calls of `fn` compile to this many graphs, with this many recompiles and without failures.

    The graphs run as they are (backend ``eager``), so that no kernels are built.

    Args:
        fn: a function or module; one that is compiled already is compiled again.
        args, kwargs: the arguments of the first call.
        graphs: the number of graphs of all calls; None: any.
        recompiles: the number of recompiles of all calls; None: any.
        then: the arguments of further calls, a sequence for each; `kwargs` are passed to them, too.
        engine: ``torch``, stock `torch.compile`, or ``core``, our compiler.
        dynamic: as for `torch.compile`.

    Returns:
        The counts of the record, with its graph breaks.

    Raises:
        AssertionError: it compiles otherwise.  The text has each graph break and recompile: line, reason and hint.
        UsageError: `fn` cannot be compiled, or there is no such engine.  Exceptions of the calls are raised as they
            are.

    Example::

        def test_model():
            compiler_core.assert_compiles(model, torch.randn(8, 16), then=[[torch.randn(9, 16)]], recompiles=1)
    """
    __tracebackhide__ = True
    name = getattr(fn, "__name__", type(fn).__name__)
    with record(title=name, engine=engine) as opened, ExitStack() as stack:
        if engine == "core":
            compiled = compile(fn, backend="eager", dynamic=dynamic)
        else:
            stack.enter_context(without_recompile_limit())
            stack.enter_context(without_known_sizes())
            compiled = torch.compile(uncached(fn), backend=graph_collector()[1], dynamic=dynamic)
        for call in (args, *then):
            compiled(*call, **kwargs)
    counts = count(opened)
    wrong = _wrong(counts, graphs, recompiles)
    if wrong:
        raise AssertionError(_text(counts, wrong))
    return counts


def _wrong(counts: Counts, graphs: int | None, recompiles: int | None) -> list[str]:
    wanted = (("graph", counts.graphs, graphs), ("recompile", counts.recompiles, recompiles))
    wrong = [
        f"{found} {plural(name, found)}, expected {number}"
        for name, found, number in wanted
        if number not in (None, found)
    ]
    return wrong + ([f"{counts.failures} {plural('failure', counts.failures)}"] if counts.failures else [])


def _text(counts: Counts, wrong: Sequence[str]) -> str:
    listed: list[tuple[str, CountedProblem]] = [("failure", each) for each in counts.failed]
    listed += [("graph break", each) for each in counts.breaks]
    listed += [("recompile", each) for each in counts.recompiled]
    texts = [f"{kind} at {each}" if each.line else f"{kind}: {each}" for kind, each in listed]
    return "\n".join([f"{counts.title}: {'; '.join(wrong)}", *texts, *(f"note: {note}" for note in counts.notes)])
