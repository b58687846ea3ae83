"""Edits what stock torch.compile generated: Inductor's output code, the kernels in it, and graphs.

Inductor compiles as always, and the edited text replaces the output code that it generates.  An edited graph
is a pass at Inductor's hooks: before its own passes for the captured graph, after them for forward and backward.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch.fx as fx

from compiler_core.config import CodeEdit
from compiler_core.errors import UsageError
from compiler_core.records import Compile, Kernel
from compiler_core.tools.editing.graph_from_text import graph_from_text

_NUMBER = re.compile(r"^# AOT ID: .*\n")


def without_number(output_code: str) -> str:
    """Returns Inductor's output code without its first line, which counts the graphs of the process."""
    return _NUMBER.sub("", output_code)


def kernel_text(compile_: Compile, kernel: Kernel) -> str:
    """Returns the text of a kernel in Inductor's output code."""
    return compile_.find((kernel.item or "").partition(":")[2].rpartition("#")[0]).text


def with_kernel(output_code: str, kernel: Kernel, before: str, after: str) -> str:
    """Returns the output code with another text of a kernel in it.

    Raises:
        UsageError: the output code has no such kernel, or the text would end the string that it is in.
    """
    start = output_code.find(f"{kernel.name} = async_compile.")
    if start < 0 or before.strip() not in output_code[start:]:
        raise UsageError(f"the output code has no text of the kernel {kernel.name}")
    if "'''" in after:
        raise UsageError("the text of a kernel stands in ''' ''' in the output code, so it cannot contain '''")
    return output_code[:start] + output_code[start:].replace(before.strip(), after.strip(), 1)


def graph_text(text: str) -> str:
    """Returns the text of one of stock's graphs as a function of its inputs, without the lines that free values."""
    function = next(each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef))
    arguments = {each.arg: each for each in function.args.args if each.arg != "self"}
    body: list[ast.stmt] = []
    for statement in function.body:
        match statement:
            case ast.Assign(value=ast.Constant(value=None)):
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=argument)) if argument in arguments:
                arguments[argument].arg = name
            case _:
                body.append(statement)
    function.args.args, function.body = list(arguments.values()), body
    return ast.unparse(ast.Module([function], [])) + "\n"


def _without_types(text: str) -> str:
    """Returns the text of a graph without the types of its values."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for field, old in ast.iter_fields(node):
            if isinstance(old, list):
                setattr(node, field, [_plain_assignment(each) for each in old])
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(tree)


def _plain_assignment(node: Any) -> Any:
    if not isinstance(node, ast.AnnAssign) or node.value is None:
        return node
    return ast.fix_missing_locations(ast.copy_location(ast.Assign([node.target], node.value), node))


@dataclass(frozen=True)
class StockGraphEdit:
    """The function of a pass that takes an edited text for each graph of stock's whose text is `original`."""

    original: str
    text: str

    def __call__(self, gm: fx.GraphModule) -> None:
        is_now = graph_text(gm.print_readable(print_output=False))
        if _without_types(is_now) == _without_types(self.original):
            edited = graph_from_text(self.text, gm)
            for name, value in vars(edited).items():
                if name.startswith("_edited_constant_"):
                    setattr(gm, name, value)
            for old, new in zip(gm.graph.nodes, edited.graph.nodes, strict=False):
                if old.op == new.op == "placeholder":  # Dynamo writes its sources to attributes
                    vars(new).update({name: value for name, value in vars(old).items() if name not in vars(new)})
            gm.graph = edited.graph


@contextmanager
def with_output_code(edits: Sequence[CodeEdit]) -> Iterator[None]:
    """Within the block, the output code that Inductor generates gets these edits; its caches are off meanwhile.

    Raises:
        UsageError: this version of PyTorch has no place for it.
    """
    texts = {without_number(edit.original): edit.text for edit in edits if edit.kind == "wrapper"}
    if not texts:
        yield
        return
    from compiler_core.torch_private import GraphLowering, functorch_config
    from compiler_core.torch_private import inductor_config as config

    generated = getattr(GraphLowering, "_compile_to_module_lines", None)
    if generated is None:
        raise UsageError("this version of PyTorch cannot load edited output code")

    def with_edits(lowering: Any, code: Any) -> Any:
        text = texts.get(without_number(code.value))
        if text is not None:
            code.value, code.line_map = text, []
        return generated(lowering, code)

    inductor: Any = config.patch
    functorch: Any = functorch_config.patch
    with (
        inductor(fx_graph_cache=False, fx_graph_remote_cache=False),
        functorch(enable_autograd_cache=False),
        mock.patch.object(GraphLowering, generated.__name__, with_edits),
    ):
        yield
