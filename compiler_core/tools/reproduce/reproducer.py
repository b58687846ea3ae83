"""Writes a stand-alone file that shows a fault of a compiler: a graph with few nodes and small inputs.

`break_reproducer` does the same for a graph break, with the user's functions in place of a graph.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import logging
import re
import subprocess
import sys
import tempfile
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.fx as fx

from compiler_core.api.compile import compile as compile_
from compiler_core.errors import UsageError
from compiler_core.records.timings import plural
from compiler_core.support.fx_graphs import graph_text
from compiler_core.tools.accuracy import relative_error
from compiler_core.tools.editing.graph_trial import graph_function
from compiler_core.tools.editing.kernel_trial import tolerance
from compiler_core.tools.example_inputs import random_tensor
from compiler_core.tools.in_turn import seconds_in_rounds
from compiler_core.tools.recording import record
from compiler_core.tools.reproduce.break_reproducer import Engine, break_reproducer
from compiler_core.tools.reproduce.values import number_text, smaller_values, tensor_text
from compiler_core.tools.timing.faster import compare, fastest
from compiler_core.tools.timing.forms import synchronize
from compiler_core.torch_private import minifier, stock_reset, tree_leaves

Fails = Callable[[fx.GraphModule, Sequence[Any]], bool]
Fault = Literal["failure", "slow", "crash", "break"]
CALL_SECONDS = 1e-4
"""Seconds that a call of a compiled graph may take in addition: a graph without operations is not slow."""

_FILE = '''\
"""{title}"""

{graph}

{random_tensor}

def inputs():
    torch.manual_seed(0)
    return [
{inputs}
    ]


if __name__ == "__main__":
    {compiled}
{shown}
'''
_DIFFERENCES = """
right, found = graph(*inputs()), compiled(*inputs())
for number, (one, other) in enumerate(zip(right, found)):
    if isinstance(one, torch.Tensor):
        print(f"result {number}: greatest difference {(one.double() - other.double()).abs().max().item():.3g}")
"""
_TIMES = """
import time

given, calls = inputs(), {"plain PyTorch": graph, "compiled": compiled}
seconds = {name: [] for name in calls}
for number in range(22):  # in turn, so that what slows the machine down slows both
    for name, call in calls.items():
        start = time.perf_counter()
        call(*given)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        if number:  # the first call compiles
            seconds[name].append(time.perf_counter() - start)
for name, found in seconds.items():
    low, *_, high = sorted(found)
    print(f"{name}: {sorted(found)[len(found) // 2]:.6f} s, from {low:.6f} to {high:.6f} s")
"""
SLOWER = 1.2
"""A compiled graph is slow if it takes this many times as long as plain PyTorch."""


def reproducer(
    fn: Callable[..., Any],
    *args: Any,
    of: Fault = "failure",
    engine: Engine = "core",
    backend: str | None = None,
    fails: Fails | None = None,
) -> str:
    """Returns the text of a file that shows a fault of a compiler in one graph of a call, and needs PyTorch only.

    The graph loses nodes, and its inputs shrink, while the fault stays.  For a graph break, the file has the functions
    of the call in place of a graph, without the statements that the break does not need.

    Args:
        fn: the function or module; the first of its graphs that shows the fault is taken.
        args: its arguments.
        of: ``failure``: the compiled graph raises, fails to compile, or has other values than eager PyTorch, by more
            than rounding; ``slow``: it takes 1.2 times as long as eager PyTorch, and 0.1 ms more; ``crash``: it ends
            the process (each try runs in its own); ``break``: the first graph break of the call.
        engine: ``core``: this compiler; ``torch``: stock `torch.compile`.
        backend: the name of the backend; None for the engine's own.
        fails: returns whether a graph shows the fault for these inputs, in place of `of`.

    Raises:
        UsageError: no graph of the call shows a fault; or, for a break, something has no Python text.

    Example::

        Path("fault.py").write_text(compiler_core.reproducer(model, x))
    """
    if of == "break" and fails is None:
        return break_reproducer(fn, args, engine)
    test = fails or _TESTS[of](engine, backend)
    graphs = captured_graphs(fn, args, engine)
    for gm, inputs in graphs:
        if _holds(test, gm, inputs):
            small, few = _minimised(gm, inputs, test)
            shown = _TIMES if of == "slow" else _DIFFERENCES
            return _text(small, _inputs_text(small, few, test), engine, backend, shown)
    raise UsageError(f"none of the {len(graphs)} graphs of this call shows a fault")


def captured_graphs(fn: Any, args: Sequence[Any], engine: Engine) -> list[tuple[fx.GraphModule, list[Any]]]:
    """Returns the captured graphs of a call that run, with their inputs."""
    found: list[tuple[fx.GraphModule, list[Any]]] = []

    def keeps_inputs(gm: fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            found.append((gm, [each.detach().clone() if isinstance(each, torch.Tensor) else each for each in inputs]))
            return gm.forward(*inputs)

        return run

    with record():
        (compile_ if engine == "core" else torch.compile)(fn, backend=keeps_inputs, dynamic=False)(*args)
    return found


def _is_wrong(engine: Engine, backend: str | None) -> Fails:
    def is_wrong(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        torch.manual_seed(0)
        right = _flat(gm(*_copies(inputs)))
        compiled = compiled_graph(gm, engine, backend)
        torch.manual_seed(0)
        try:
            with record() as made:
                found = _flat(compiled(*_copies(inputs)))
        except Exception:
            return True
        if any(compile_.failures for compile_ in made.compiles):
            return True
        return any(_differ(one, other) for one, other in zip(right, found, strict=True))

    return is_wrong


def _is_slow(engine: Engine, backend: str | None) -> Fails:
    def is_slow(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        calls = [functools.partial(call, *inputs) for call in (gm.forward, compiled_graph(gm, engine, backend))]
        eager, compiled = seconds_in_rounds(calls, synchronize)
        is_slower = compare(compiled, eager).outcome == "slower"
        return is_slower and fastest(compiled) > SLOWER * fastest(eager) + CALL_SECONDS

    return is_slow


def _crashes(engine: Engine, backend: str | None) -> Fails:
    def crashes(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "graph.py"
            values = [_text_of_input(each, exact=True) for each in inputs]
            text = _text(gm, values, engine, backend, _DIFFERENCES)
            file.write_text(text, encoding="utf-8")
            return subprocess.run([sys.executable, file], capture_output=True, check=False).returncode < 0

    return crashes


_TESTS: dict[str, Callable[[Engine, str | None], Fails]] = {"failure": _is_wrong, "slow": _is_slow, "crash": _crashes}


def compiled_graph(gm: fx.GraphModule, engine: Engine, backend: Any) -> Any:
    """Compiles the function that a graph's text defines."""
    text, _ = graph_text(gm.graph, "graph")
    function: Any = graph_function(text)
    if "self" in inspect.signature(function).parameters:  # the graph has large constants
        function = types.MethodType(function, gm)
    if engine == "core":
        return compile_(function, backend=backend)
    stock_reset()
    return torch.compile(function, backend=backend or "inductor")


def _differ(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(one != other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    error = relative_error(other.detach(), one.detach())
    return error is None or error > tolerance(one.dtype)


def _holds(test: Fails, gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Returns whether a graph runs and shows the fault."""
    try:
        with torch.no_grad():
            gm(*_copies(inputs))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return test(gm, list(inputs))
    except Exception:
        return False


def _minimised(gm: fx.GraphModule, inputs: Sequence[Any], test: Fails) -> tuple[fx.GraphModule, list[Any]]:
    """Returns a graph with few nodes and small inputs that shows the fault."""
    small, few = _few_nodes(gm, inputs, test)
    return small, smaller_values(few, lambda values: _holds(test, small, values))


def _few_nodes(gm: fx.GraphModule, inputs: Sequence[Any], test: Fails) -> tuple[fx.GraphModule, list[Any]]:
    """Returns the smallest graph that PyTorch's minimiser finds, with its inputs; the graph itself if that fails."""
    with _quiet():
        try:
            small, few = minifier(
                gm, list(inputs), lambda g, i: _holds(test, g, i), dump_state=lambda *_: None, skip_offload=True
            )
        except Exception:
            return gm, list(inputs)
    return small, list(few)


def _inputs_text(gm: fx.GraphModule, inputs: Sequence[Any], test: Fails) -> list[str]:
    """Returns expressions for the inputs: random ones if the fault does not need the values."""
    synthetic = [_text_of_input(each, exact=False) for each in inputs]
    torch.manual_seed(0)
    is_enough = _holds(test, gm, [eval(text, {"random_tensor": random_tensor, "torch": torch}) for text in synthetic])
    return synthetic if is_enough else [_text_of_input(each, exact=True) for each in inputs]


def _text_of_input(value: Any, exact: bool) -> str:
    return tensor_text(value, exact) if isinstance(value, torch.Tensor) else number_text(value)


def _text(gm: fx.GraphModule, inputs: Sequence[str], engine: Engine, backend: str | None, shown: str) -> str:
    # without the types, which are those of the inputs before they shrank
    graph = re.sub(r'^( +\w+): "[^"]*"', r"\1", graph_text(gm.graph, "graph")[0], flags=re.MULTILINE)
    if engine == "core":
        compiled = "import compiler_core\n\n    compiled = compiler_core.compile(graph"
        compiled += f", backend={backend!r})" if backend else ")"
    else:
        compiled = f"compiled = torch.compile(graph{f', backend={backend!r}' if backend else ''})"
    count = sum(node.op.startswith("call") for node in gm.graph.nodes)
    compiler = "Cutaway" if engine == "core" else "torch.compile"
    return _FILE.format(
        title=f"A fault of {compiler}, in {count} {plural('operation', count)}.",
        graph=graph,
        random_tensor=inspect.getsource(random_tensor),
        inputs="\n".join(f"        {line}," for line in inputs),
        compiled=compiled,
        shown=textwrap.indent(shown.strip(), "    "),
    )


def _copies(inputs: Sequence[Any]) -> list[Any]:
    return [each.clone() if isinstance(each, torch.Tensor) else each for each in inputs]


def _flat(results: Any) -> list[Any]:
    return list(tree_leaves(results))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context manager that suppresses the messages of the minimiser."""
    logger = logging.getLogger("torch._functorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
