"""Tries an edited graph beside the original, on random inputs like the recorded ones.

PyTorch runs both, and the values are compared; then both are compiled and timed.
"""

from __future__ import annotations

import ast
import functools
import re
import types
from collections.abc import Callable
from typing import Any

import torch

from compiler_core.errors import UsageError
from compiler_core.records import Artifact
from compiler_core.tools.accuracy import relative_error
from compiler_core.tools.editing.graph_from_text import parse_function
from compiler_core.tools.editing.kernel_trial import Trial, text_change, tolerance
from compiler_core.tools.example_inputs import random_tensor
from compiler_core.tools.in_turn import seconds_in_rounds
from compiler_core.tools.measure import preserved_state
from compiler_core.tools.recording import record
from compiler_core.torch_private import tree_leaves

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
SYMBOL = 6
"""The value of symbolic sizes."""


def try_graph(artifact: Artifact, text: str, compiler: Compiler) -> Trial:
    """Runs the edited text of a graph beside the original; `compiler` compiles both, to be timed.

    Raises:
        UsageError: the original cannot run: it has constants that are not in its text.
        GraphPassError: the text is not a graph.
    """
    trial = Trial(artifact.name, change=text_change(artifact.text, text))
    if "self." in artifact.text:
        raise UsageError("the graph has constants that are too large for its text")
    with preserved_state(), torch.no_grad():
        torch.manual_seed(0)
        inputs = _inputs(artifact)
        right = _results(graph_function(artifact.text), inputs)
        try:
            edited = graph_function(text)
            found = _results(edited, inputs)
        except Exception as error:
            trial.fault = f"it raises {type(error).__name__}: {str(error).strip().splitlines()[0]}"
            return trial
    names = _returned(artifact.text)
    if len(right) != len(found):
        trial.fault = f"the graph must return {len(right)} values; it returns {len(found)} now"
        return trial
    for number, (one, other) in enumerate(zip(right, found, strict=True)):
        name = names[number] if number < len(names) else f"result {number}"
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            if one is not other and one != other:
                trial.fault = f"{name} must stay {one!r}; it is {other!r} now"
        elif one.shape != other.shape or one.dtype != other.dtype:
            trial.fault = f"{name} must stay {_kind(one)}; it is {_kind(other)} now"
        else:
            trial.errors[name] = off = relative_error(other, one)
            if off is None or off > tolerance(one.dtype):
                trial.wrong.append(name)
    if trial.is_right:
        with preserved_state(), torch.no_grad():
            trial.set_times(_times(graph_function(artifact.text), edited, inputs, compiler))
    return trial


def _kind(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _inputs(artifact: Artifact) -> list[Any]:
    assert artifact.graph is not None
    found: list[Any] = []
    for node in artifact.graph.nodes:
        if node.op == "placeholder":
            if node.shape is None or node.dtype is None:
                found.append(SYMBOL)
                continue
            shape = tuple(map(_size, node.shape))
            stride = torch.empty(shape, device="meta").stride()
            found.append(random_tensor(shape, stride, getattr(torch, node.dtype), node.device or "cpu"))
    return found


def _size(size: int | str) -> int:
    """Returns a size; symbols in it are `SYMBOL`."""
    if isinstance(size, int):
        return size
    text = re.sub(r"\b[a-z]\w*\b", str(SYMBOL), size)
    return int(eval(compile(ast.parse(text, mode="eval"), "<size>", "eval"), {"__builtins__": {}}))


def graph_function(text: str) -> types.FunctionType:
    """Returns the function that a graph's text defines."""
    _, function = parse_function(text)
    namespace: dict[str, Any] = {"torch": torch, "device": torch.device}
    exec(compile(text, "<graph>", "exec"), namespace)
    found: types.FunctionType = namespace[function.name]
    return found


def _results(function: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    torch.manual_seed(0)
    results = function(*(each.clone() if isinstance(each, torch.Tensor) else each for each in inputs))
    return tree_leaves(results, is_leaf=lambda each: each is None)


def _times(
    original: types.FunctionType, edited: types.FunctionType, inputs: list[Any], compiler: Compiler
) -> list[list[float]]:
    """Returns the seconds of both graphs, compiled, in each round."""
    calls: list[Callable[[], Any]] = []
    with record():
        for function in (original, edited):
            compiled = compiler(function)
            compiled(*inputs)
            calls.append(functools.partial(compiled, *inputs))
        on_gpu = any(isinstance(each, torch.Tensor) and each.is_cuda for each in inputs)
        return seconds_in_rounds(calls, torch.cuda.synchronize if on_gpu else lambda: None)


def _returned(text: str) -> list[str]:
    """Returns the names that a graph's text returns."""
    _, function = parse_function(text)
    last = function.body[-1]
    elements = last.value.elts if isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple | ast.List) else []
    return [ast.unparse(each) for each in elements]
