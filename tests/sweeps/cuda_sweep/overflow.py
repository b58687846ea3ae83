"""Checks that the integers in a Triton kernel do not overflow.

An independent check of the choice between 32 and 64 bits in `codegen.triton`: it interprets the kernel's text with the
least and the greatest value of each integer, typed as Triton types them.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

MOST = 2**31 - 1


class Whole(NamedTuple):
    """An integer from `low` to `high`; a literal (0 bits) takes the type of the other operand."""

    low: int
    high: int
    bits: int


def problems_in(text: str, kernel: str, programs: int) -> Iterator[str]:
    """Returns where integers of `kernel` may overflow 32 bits with `programs` programs; symbolic sizes are unknown."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            heading = next(line for line in text.splitlines() if line.startswith(f"# {kernel}: "))
            yield from _Kernel(node, _sizes(heading), programs).problems(node.body)


def _sizes(heading: str) -> dict[str, int]:
    """Returns the number of values of each index."""
    sizes = {name: int(size) for name, size in re.findall(r"\b([ij]\d+) < (\d+)\b", heading)}
    for letter in "ij":
        sizes[letter] = math.prod(n for name, n in sizes.items() if name[0] == letter)
    return sizes


class _Kernel:
    def __init__(self, function: ast.FunctionDef, sizes: Mapping[str, int], programs: int) -> None:
        defaults = zip(reversed(function.args.args), reversed(function.args.defaults), strict=False)
        self._values: dict[str, Whole | None] = {
            a.arg: Whole(d.value, d.value, 0)
            for a, d in defaults
            if isinstance(d, ast.Constant) and isinstance(d.value, int)
        }
        self._values |= {a.arg: None for a in function.args.args if a.arg not in self._values}
        self._sizes, self._programs = sizes, programs
        self._found: list[str] = []

    def problems(self, statements: Sequence[ast.stmt]) -> Iterator[str]:
        for statement in statements:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._assign(statement.targets[0].id, self._value(statement.value))
            elif isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
                self._assign(statement.target.id, self._range(statement.iter))
                yield from self.problems(statement.body)
            elif isinstance(statement, ast.If):
                self._value(statement.test)
                yield from self.problems([*statement.body, *statement.orelse])
            elif isinstance(statement, (ast.Expr, ast.AugAssign)):
                self._value(statement.value)
        yield from self._found
        self._found = []

    def _assign(self, name: str, value: Whole | None) -> None:
        size = self._sizes.get(name)
        if value is not None and size is not None:  # larger values are masked off
            value = Whole(max(value.low, 0), min(value.high, size - 1), value.bits)
        self._values[name] = value

    def _range(self, call: ast.expr) -> Whole | None:
        arguments = call.args[:2] if isinstance(call, ast.Call) else []
        ends = [self._value(a) for a in arguments]
        if len(ends) < 2 or ends[0] is None or ends[1] is None:
            return None
        return Whole(ends[0].low, ends[1].high - 1, 32 if ends[1].high <= MOST else 64)

    def _value(self, node: ast.expr) -> Whole | None:
        """Returns the range of an expression; None if it is unknown or not an integer."""
        if isinstance(node, ast.Constant):
            known = isinstance(node.value, int) and not isinstance(node.value, bool)
            return Whole(node.value, node.value, 0) if known else None  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return self._values.get(node.id)
        if isinstance(node, ast.BinOp):
            return self._operation(node, self._value(node.left), self._value(node.right))
        if isinstance(node, ast.Subscript):
            return self._value(node.value)
        if isinstance(node, ast.Call):
            return self._call(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child)
        return None

    def _call(self, node: ast.Call) -> Whole | None:
        name = ast.unparse(node.func)
        values = [self._value(a) for a in node.args]
        for keyword in node.keywords:
            self._value(keyword.value)
        if name == "tl.program_id":
            return Whole(0, max(0, self._programs - 1), 32)
        if name == "tl.arange" and values[0] and values[1]:
            return Whole(values[0].low, values[1].high - 1, 32)
        if name == "tl.cdiv" and values[0] and values[1] and values[1].low > 0:
            return Whole(-(-values[0].low // values[1].high), -(-values[0].high // values[1].low), values[0].bits)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            value, dtype = self._value(node.func.value), ast.unparse(node.args[0])
            return value and {"tl.int64": value._replace(bits=64), "tl.int32": value._replace(bits=32)}.get(dtype)
        return values[0] if name == "tl.broadcast_to" else None

    def _operation(self, node: ast.BinOp, left: Whole | None, right: Whole | None) -> Whole | None:
        if left is None or right is None:
            return None
        ends = self._ends(node.op, left, right)
        if ends is None:
            return None
        bits = max(left.bits, right.bits)
        if bits == 32 and max(abs(left.low), abs(left.high), abs(right.low), abs(right.high)) > MOST + 1:
            bits = 64  # a literal that does not fit 32 bits
        if bits == 32 and not -MOST - 1 <= min(ends) <= max(ends) <= MOST:
            self._found.append(f"line {node.lineno}: {ast.unparse(node)} goes up to {max(ends):,} in 32 bits")
        return Whole(min(ends), max(ends), bits)

    def _ends(self, op: ast.operator, left: Whole, right: Whole) -> list[int] | None:
        if isinstance(op, ast.Add):
            return [left.low + right.low, left.high + right.high]
        if isinstance(op, ast.Sub):
            return [left.low - right.high, left.high - right.low]
        if isinstance(op, ast.Mult):
            return [a * b for a in left[:2] for b in right[:2]]
        if isinstance(op, ast.FloorDiv) and right.low > 0 and left.low >= 0:
            return [left.low // right.high, left.high // right.low]
        if isinstance(op, ast.Mod) and right.low > 0 and left.low >= 0:
            return [0, min(left.high, right.high - 1)]
        return None
