"""Reads the text of an FX graph, as the record prints it and the user changed it, back into a graph."""

from __future__ import annotations

import ast
import math
import operator
from typing import Any

import torch
import torch.fx as fx

from compiler_core.errors import GraphPassError
from compiler_core.support.fx_graphs import copy_graph, graph_module, graph_text, node_text

_BINARY: dict[type[ast.AST], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.USub: operator.neg, ast.Invert: operator.invert,
}  # fmt: skip
_VALUES = (torch.device, torch.Size, slice, range, float, int, bool, tuple, list)
"""What a graph's text calls to make a constant."""


def parse_function(text: str) -> tuple[list[ast.stmt], ast.FunctionDef]:
    """Returns the statements before the one function of a graph's text, and the function.

    Raises:
        GraphPassError: the text is not Python, or not of this form.
    """
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise GraphPassError(f"line {error.lineno}: {error.msg}") from None
    functions = [each for each in body if isinstance(each, ast.FunctionDef)]
    if len(functions) != 1:
        raise GraphPassError(f"the text of a graph defines one function; this one defines {len(functions)}")
    return [each for each in body if each is not functions[0]], functions[0]


def graph_from_text(text: str, before: fx.GraphModule) -> fx.GraphModule:
    """Returns the graph that `text` defines, an edited text of the graph `before`.

    Nodes whose line did not change are copied from `before` with their metadata.

    Raises:
        GraphPassError: the text cannot be read as a graph; the message says where and why.
    """
    return _Reader(text, before).read()


class _Reader:
    def __init__(self, text: str, before: fx.GraphModule) -> None:
        above, self._function = parse_function(text)
        self._namespace: dict[str, Any] = {"torch": torch, "operator": operator, "inf": math.inf, "nan": math.nan}
        self._namespace["device"] = torch.device
        imports: list[ast.stmt] = [s for s in above if isinstance(s, ast.Import | ast.ImportFrom | ast.Assign)]
        try:
            exec(compile(ast.Module(imports, []), "<graph>", "exec"), self._namespace)
        except Exception as error:
            raise GraphPassError(f"{type(error).__name__}: {error}") from None
        self._before = copy_graph(before)
        self._old = {_canonical(node_text(n)): n for n in self._before.graph.nodes if n.op.startswith(("call", "get"))}
        self._by_name = {n.name: n for n in self._before.graph.nodes}
        self._graph = fx.Graph()
        self._nodes: dict[str, fx.Node] = {}

    def read(self) -> fx.GraphModule:
        placeholders = {n.name: n for n in self._before.graph.find_nodes(op="placeholder")}
        for each in self._function.args.args:
            if each.arg != "self":
                old = placeholders.get(each.arg)
                node = self._graph.node_copy(old) if old is not None else self._graph.placeholder(each.arg)
                self._nodes[each.arg] = node
        for statement in self._function.body:
            try:
                self._statement(statement)
            except GraphPassError as error:
                raise GraphPassError(f"line {statement.lineno}: {error}") from None
        module = graph_module(self._before, self._graph)
        module.graph.eliminate_dead_code()
        return module

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return) and statement.value is not None:
            output = self._graph.output(self._value(statement.value))
            output.meta = dict(self._before.graph.output_node().meta)
            return
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            raise GraphPassError("the lines of a graph are `name = call(...)` and a return")
        if not isinstance(target, ast.Name):
            raise GraphPassError("a graph assigns to names")
        name = target.id
        old = self._old.get(f"{name} = {ast.unparse(value)}")
        if old is not None and all(each.name in self._nodes for each in old.all_input_nodes):
            self._nodes[name] = self._graph.node_copy(old, lambda n: self._nodes[n.name])
            return
        made = self._value(value)
        if not isinstance(made, fx.Node):
            raise GraphPassError(f"{name} is not a tensor operation")
        if made not in self._nodes.values():
            made._rename(name)
            same = self._by_name.get(name)
            if same is not None and _call_text(same) == _call_text(made):  # written in another way
                made.meta = dict(same.meta)
        self._nodes[name] = made

    def _value(self, expression: ast.expr) -> Any:
        """Returns the node of an expression, or its value if it has no node."""
        match expression:
            case ast.Name(id=name) if name in self._nodes:
                return self._nodes[name]
            case ast.Tuple(elts=parts):
                return tuple(map(self._value, parts))
            case ast.List(elts=parts):
                return list(map(self._value, parts))
            case ast.Dict(keys=keys, values=values):
                return {self._value(k): self._value(v) for k, v in zip(keys, values, strict=True) if k is not None}
            case ast.Slice(lower=first, upper=last, step=step):
                return slice(*(None if each is None else self._value(each) for each in (first, last, step)))
            case ast.Call():
                return self._call(expression)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if "self" not in self._nodes:
                return self._graph.get_attr(name)
            case ast.Attribute(value=base, attr=name):
                held = self._value(base)
                return self._graph.call_function(getattr, (held, name)) if _is_node(held) else _attribute(held, name)
            case ast.Subscript(value=base, slice=index):
                held, at = self._value(base), self._value(index)
                return self._graph.call_function(operator.getitem, (held, at)) if _is_node(held) else held[at]
            case ast.BinOp(left=left, op=kind, right=right):
                return self._operation(kind, left, right)
            case ast.Compare(left=left, ops=[kind], comparators=[right]):
                return self._operation(kind, left, right)
            case ast.UnaryOp(op=kind, operand=operand):
                return self._operation(kind, operand)
        try:
            return eval(compile(ast.Expression(expression), "<graph>", "eval"), self._namespace)
        except Exception as error:
            raise GraphPassError(f"{type(error).__name__}: {error}") from None

    def _call(self, call: ast.Call) -> Any:
        args = [self._value(each) for each in call.args]
        kwargs = {each.arg: self._value(each.value) for each in call.keywords if each.arg}
        if isinstance(call.func, ast.Attribute):
            base = self._value(call.func.value)
            if _is_node(base):
                return self._graph.call_method(call.func.attr, (base, *args), kwargs)
            target = _attribute(base, call.func.attr)
        else:
            target = self._value(call.func)
        if target is torch.tensor and not any(map(_is_node, args)):
            name = f"_edited_constant_{len(self._nodes)}"
            setattr(self._before, name, target(*args, **kwargs))
            return self._graph.get_attr(name)
        if target in _VALUES and not any(map(_is_node, (*args, *kwargs.values()))):
            return target(*args, **kwargs)
        if not callable(target):
            raise GraphPassError(f"{ast.unparse(call.func)} is not a function")
        return self._graph.call_function(target, tuple(args), kwargs)

    def _operation(self, kind: ast.AST, *operands: ast.expr) -> Any:
        function = _BINARY.get(type(kind))
        if function is None:
            raise GraphPassError(f"a graph has no operator {type(kind).__name__}")
        values = tuple(map(self._value, operands))
        return self._graph.call_function(function, values) if any(map(_is_node, values)) else function(*values)


def _canonical(line: str) -> str:
    """Returns the assignment of a node without its annotation, as `ast.unparse` writes it."""
    (statement,) = ast.parse(line).body
    assert isinstance(statement, ast.Assign | ast.AnnAssign)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    assert statement.value is not None
    return f"{ast.unparse(target)} = {ast.unparse(statement.value)}"


def _attribute(held: Any, name: str) -> Any:
    try:
        return getattr(held, name)
    except AttributeError as error:
        raise GraphPassError(str(error)) from None


def _call_text(node: fx.Node) -> str:
    return f"{node.op} {node.target} {node.args} {node.kwargs}"


def _is_node(value: Any) -> bool:
    return isinstance(value, fx.Node)


def printed(gm: fx.GraphModule, name: str) -> str:
    """Returns the text of a graph as the record has it."""
    return graph_text(gm.graph, name)[0]
