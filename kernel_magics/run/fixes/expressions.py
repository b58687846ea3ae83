"""Rewrites expressions so that values stay tensors: reads of values are dropped, and torch computes what NumPy did."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from compiler_core.support.texts import copied_tree

_SAME_IN_TORCH = frozenset(
    "abs add all any arange arccos arcsin arctan arctan2 argmax argmin ceil clip cos cosh cumsum divide dot exp exp2 "
    "expm1 floor isfinite isinf isnan log log10 log1p log2 logical_and logical_not logical_or matmul max maximum mean "
    "min minimum multiply negative outer power prod reciprocal remainder round sign sin sinh sqrt square stack "
    "subtract sum tan tanh tril triu trunc where".split()
)
"""Functions that torch has under the name that they have in NumPy."""
_OTHER_NAMES = {"fabs": "abs", "concatenate": "cat", "acos": "arccos", "asin": "arcsin", "atan": "arctan"}
_KEYWORDS = {"axis": "dim", "keepdims": "keepdim"}
_TO_TENSOR = frozenset({"from_numpy", "tensor", "as_tensor", "asarray"})


@dataclass(frozen=True)
class Modules:
    """The names that the code has for modules; empty for those that it does not have."""

    torch: str = ""
    numpy: str = ""
    math: str = ""
    with_gradients: bool = False
    """Whether gradients are computed, which do not flow through a value that was read."""


@dataclass
class KeptTensors(ast.NodeTransformer):
    """Drops what makes Python values of tensors, and calls torch for NumPy and `math`."""

    modules: Modules
    reads: int = 0
    """How many reads of values were dropped."""
    calls: int = 0
    """How many calls of NumPy and of `math` became calls of torch."""
    _arrays: int = field(default=0)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        before = self.reads + self.calls
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(value, "item" | "numpy"), [], []):
                return self._kept(_without_cpu(value))
            case ast.Call(
                ast.Name("float" | "bool"), [ast.Call() | ast.Name() | ast.BinOp() | ast.Compare() as value], []
            ):
                return self._kept(value)
            case ast.Call(ast.Attribute(ast.Name(module), name), [value], []) if self._makes_tensor(module, name):
                return value if self.reads + self.calls > before else node
            case ast.Call(ast.Attribute(ast.Name(module), name)) if self._is_same(module, name):
                return self._in_torch(node, name)
        return node

    def _kept(self, value: ast.expr) -> ast.expr:
        self.reads += 1
        if not self.modules.with_gradients or ast.unparse(value).endswith(".detach()"):
            return value
        return ast.Call(ast.Attribute(value, "detach", ast.Load()), [], [])

    def _makes_tensor(self, module: str, name: str) -> bool:
        return module in {self.modules.torch, self.modules.numpy} and name in _TO_TENSOR

    def _is_same(self, module: str, name: str) -> bool:
        known = _OTHER_NAMES.get(name, name) in _SAME_IN_TORCH | {"cat"}
        return bool(self.modules.torch) and module in {self.modules.numpy, self.modules.math} and known

    def _in_torch(self, node: ast.Call, name: str) -> ast.Call:
        self.calls += 1
        function = ast.Attribute(ast.Name(self.modules.torch, ast.Load()), _OTHER_NAMES.get(name, name), ast.Load())
        keywords = [ast.keyword(_KEYWORDS.get(each.arg or "", each.arg), each.value) for each in node.keywords]
        return ast.Call(function, node.args, keywords)


def _without_cpu(value: ast.expr) -> ast.expr:
    """Returns the tensor of ``tensor.cpu()``, which was called to read its value."""
    match value:
        case ast.Call(ast.Attribute(tensor, "cpu"), [], []):
            return tensor
    return value


def kept_tensors(node: ast.AST, modules: Modules) -> tuple[ast.AST, str]:
    """Returns a copy of `node` whose values stay tensors, and what was changed; empty if nothing was."""
    transformer = KeptTensors(modules)
    made = transformer.visit(copied_tree(node))
    if transformer.calls:
        return made, "torch's functions, which the graph can contain"
    return made, "keep the value a tensor" if transformer.reads else ""


def as_condition(test: ast.expr, modules: Modules) -> ast.expr | None:
    """Returns a test as the condition of `torch.where`; None for `and`, `or` and tests that are of no tensor."""
    made, _ = kept_tensors(test, modules)
    match made:
        case ast.BoolOp() | ast.Constant() | ast.NamedExpr():
            return None
        case ast.UnaryOp(ast.Not(), operand):
            inner = as_condition(operand, modules)
            return ast.UnaryOp(ast.Invert(), inner) if inner else None
        case ast.Compare(_, [ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()], _):
            return None
        case ast.Compare(_, [_], _):
            return made
        case ast.Call(ast.Attribute(_, "any" | "all")):
            return made
        case ast.expr():
            return ast.Compare(made, [ast.NotEq()], [ast.Constant(0)])
    return None
