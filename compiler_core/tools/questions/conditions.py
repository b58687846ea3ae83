"""Conditions on sizes and numbers, which guards have as Python expressions: read and written by their syntax."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from compiler_core.records.recompiles import readable

_LARGEST_INT = 2**31
_LARGEST_FLOAT = 1.7976e308
"""No float that is printed with fewer digits than it has, as PyTorch prints the largest, is below."""


def is_of_all_compiles(code: str, sources: Sequence[str]) -> bool:
    """Whether all compiles with symbols for these values have a condition: that sizes are at least 2, and numbers
    finite and not huge."""
    match _parsed(code):
        case ast.Compare(ops=[ast.LtE()], comparators=[ast.Constant(value=float(largest))]):
            return largest > _LARGEST_FLOAT
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="abs")), ops=[ast.LtE()], comparators=[ast.Constant(value=largest)]
        ):
            return bool(largest == _LARGEST_INT)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Attribute(attr="isnan" | "isinf"))):
            return True
        case ast.Compare(left=size, ops=[ast.GtE()], comparators=[ast.Constant(value=2)]):
            return ast.unparse(size) in sources
        case ast.Compare(left=ast.Constant(value=2), ops=[ast.LtE()], comparators=[size]):
            return ast.unparse(size) in sources
    return False


def condition_text(code: str, source: str, name: str) -> str:
    """Returns a condition on the value of a source, which is called `name`, as a user would write it:
    ``x.size(0) >= 4`` for ``4 <= L['x'].size()[0]``."""
    tree = _parsed(code.replace("math.trunc(", "int("))
    if tree is None:
        return readable(code.replace(source, name))
    return readable(ast.unparse(_AsUsersWrite().visit(tree)).replace(source, name))


def _parsed(code: str) -> ast.expr | None:
    try:
        return ast.parse(code, mode="eval").body
    except SyntaxError:
        return None


class _AsUsersWrite(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(attr="size" | "stride") as method, args=[]), slice=dim
            ):
                return ast.Call(method, [dim], [])
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Compare(left=ast.Constant() | ast.UnaryOp() as least, ops=[ast.LtE()], comparators=[value]):
                return ast.Compare(value, [ast.GtE()], [least])
        return node
