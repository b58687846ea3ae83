"""Reads the text of a loop nest, as `Loops.text` prints it, back into `Loops`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from compiler_core.errors import UsageError
from compiler_core.loops.ir.loops import Loops
from compiler_core.loops.ir.statements import (
    COMPARISONS,
    SHORT,
    Address,
    Argument,
    Compute,
    Index,
    Literal,
    Load,
    Position,
    Range,
    Reduce,
    Scalar,
    Scan,
    Statement,
    Store,
)
from compiler_core.support.size_expr import Int, Real, Size, symbol

_TYPES = {short: dtype for dtype, short in SHORT.items()}
_HEADING = re.compile(r"(\w+): for (.+?):(?: over (.+):)?")
_STORE = re.compile(r"store (\w+)\[(.*)\] (=|put|\+=) (?:(\w+) over i of )?(\S+)")
_VALUE = re.compile(r"(\w+): (\w+) = (.+)")
_LITERALS: dict[str, Any] = {"True": True, "False": False, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@dataclass
class ParseContext:
    """What parsing needs to know besides the text of a loop nest.

    Args:
        dtypes: the types of the buffers.
        symbols: the symbols in sizes and addresses, by name; a symbol that is not here becomes a new one.
        scalars: the names of the numbers that are arguments of the kernel.
    """

    dtypes: Mapping[str, torch.dtype]
    symbols: Mapping[str, Int] = field(default_factory=dict)
    scalars: Collection[str] = ()


def parse(text: str, context: ParseContext) -> Loops:
    """Returns the loop nest that a text defines; its statements have no origin.

    Raises:
        UsageError: a line is not of the package's grammar; the message has its number.
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    heading = _HEADING.fullmatch(lines[0][1]) if lines else None
    if heading is None:
        raise UsageError("line 1: a loop nest begins with a line `name: for i0 < 32: over j0 < 128:`")
    reader = _Reader(context)
    with _at_line(lines[0][0]):
        outer, inner = reader.sizes("i", heading[2]), reader.sizes("j", heading[3])
    body = []
    for number, line in lines[1:]:
        with _at_line(number):
            body.append(reader.statement(line))
    return Loops(heading[1], outer, inner, tuple(body))


@contextmanager
def _at_line(number: int) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise UsageError(f"line {number}: {error}") from None


def symbols_of(loops: Loops) -> dict[str, Int]:
    """Returns the symbols in the sizes and addresses of a loop nest, by name."""
    symbols = {s for number in loops.numbers if isinstance(number, Size) for monomial in number.terms for s in monomial}
    return {each.name: symbol(each.name, each.least, each.hint) for each in symbols}


def with_origins(loops: Loops, before: Loops) -> Loops:
    """Returns `loops` whose statements have the origins of those in `before` that define the same value or buffer."""
    origins = {_defined(statement): statement.origin for statement in before.body}
    body = (replace(statement, origin=origins.get(_defined(statement), ())) for statement in loops.body)
    return replace(loops, body=tuple(body))


def _defined(statement: Statement) -> tuple[bool, str]:
    return (True, statement.buffer) if isinstance(statement, Store) else (False, statement.name)


class _Reader:
    def __init__(self, context: ParseContext) -> None:
        self._context = context
        self._symbols: dict[str, Int] = dict(context.symbols)
        self._indices: list[str] = []
        self._positions: set[str] = set()
        self._dtypes: dict[str, torch.dtype] = {}

    def sizes(self, letter: str, text: str | None) -> tuple[Int, ...]:
        """Reads ``i0 < 32, i1 < s0`` or ``()``."""
        found: list[Int] = []
        for each in text.split(", ") if text and text != "()" else ():
            name, _, size = each.partition(" < ")
            if name != f"{letter}{len(found)}" or not size:
                raise UsageError(f"expected `{letter}{len(found)} < size`, not {each!r}")
            found.append(self._size(size))
        self._indices += [f"{letter}{at}" for at in range(len(found))]
        return tuple(found)

    def statement(self, line: str) -> Statement:
        if stored := _STORE.fullmatch(line):
            buffer, place, reduction, value = stored.group(1, 2, 4, 5)
            mode: Any = stored[3]
            argument = self._argument(value, self._buffer_dtype(buffer))
            return Store(buffer, self._address(place), argument, (), mode, reduction or "")
        match = _VALUE.fullmatch(line)
        if match is None or match[2] not in _TYPES:
            raise UsageError(f"not a statement of a loop nest: {line}")
        name, dtype = match[1], _TYPES[match[2]]
        made = self._value(name, dtype, match[3])
        if isinstance(made, Position):
            self._positions.add(name)
        self._dtypes[name] = dtype
        return made

    def _value(self, name: str, dtype: torch.dtype, text: str) -> Statement:
        text, _, ranges = text.partition(" where ")
        within = tuple(map(self._range, ranges.split(" and "))) if ranges else ()
        if loaded := re.fullmatch(r"load (\w+)\[(.*)\]", text):
            self._buffer_dtype(loaded[1])
            return Load(name, dtype, loaded[1], self._address(loaded[2]), (), within)
        if position := re.fullmatch(r"(\S+) below (.+)", text):
            return Position(name, self._argument(position[1], torch.int64), self._size(position[2]), (), within)
        if within:
            raise UsageError("only loads and positions have ranges")
        if reduced := re.fullmatch(r"(\w+) (over|up to) j of (\S+)", text):
            kind = Reduce if reduced[2] == "over" else Scan
            return kind(name, dtype, reduced[1], self._argument(reduced[3], dtype))
        if called := re.fullmatch(r"(\w+)\((.*)\)", text):
            return Compute(name, dtype, called[1], self._arguments(called[1], dtype, called[2].split(", ")))
        if text in self._context.scalars:
            return Scalar(name, Real(text), (), dtype)
        return Index(name, dtype, self._address(text))

    def _arguments(self, op: str, dtype: torch.dtype, texts: Sequence[str]) -> tuple[Argument, ...]:
        wanted = [dtype] * len(texts)
        if op == "where":
            wanted[0] = torch.bool
        elif op == "uniform":
            wanted = [torch.int64] * 4 + [torch.int32] * (len(texts) - 4)
        elif op in COMPARISONS or op == "cast":
            named = [self._dtypes[each] for each in texts if each in self._dtypes]
            wanted = [*named, torch.float32][:1] * len(texts)
        return tuple(self._argument(each, want) for each, want in zip(texts, wanted, strict=True))

    def _argument(self, text: str, dtype: torch.dtype) -> Argument:
        if text in self._dtypes:
            return text
        if typed := re.fullmatch(r"(\w+)\((.*)\)", text):
            return self._argument(typed[2], _TYPES.get(typed[1], dtype))
        if text in _LITERALS:
            return Literal(_LITERALS[text], dtype)
        try:
            value = float(text) if re.search(r"[.en]", text) else int(text)
        except ValueError:
            raise UsageError(f"{text} is not defined above this line") from None
        return Literal(value, dtype)

    def _range(self, text: str) -> Range:
        match = re.fullmatch(r"0 <= (.+) < (.+)", text)
        if match is None:
            raise UsageError(f"a range is `0 <= address < size`, not {text!r}")
        return Range(self._address(match[1]), self._size(match[2]))

    def _buffer_dtype(self, name: str) -> torch.dtype:
        if name not in self._context.dtypes:
            raise UsageError(f"there is no buffer {name}; there are {', '.join(self._context.dtypes)}")
        return self._context.dtypes[name]

    def _address(self, text: str) -> Address:
        return self._affine(self._expression(text))

    def _size(self, text: str) -> Int:
        size = self._expression(text)
        if isinstance(size, Address):
            raise UsageError(f"a size does not depend on an index: {text}")
        return size

    def _affine(self, value: Int | Address) -> Address:
        return value if isinstance(value, Address) else Address((0,) * len(self._indices), value)

    def _expression(self, text: str) -> Int | Address:
        try:
            tree = ast.parse(text, mode="eval").body
        except SyntaxError:
            raise UsageError(f"not an index expression: {text}") from None
        return self._evaluated(tree)

    def _evaluated(self, tree: ast.expr) -> Int | Address:
        match tree:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return self._named(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._evaluated(operand) * -1
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                first, second = self._evaluated(left), self._evaluated(right)
                if not isinstance(second, Address):
                    return first * second
                if not isinstance(first, Address):
                    return second * first
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as kind, right=right):
                first, second = self._evaluated(left), self._evaluated(right)
                if isinstance(kind, ast.Sub):
                    second = second * -1
                if isinstance(first, Address) or isinstance(second, Address):
                    return self._affine(first) + self._affine(second)
                return first + second
        raise UsageError(f"an index expression adds multiples of indices, positions and symbols: {ast.unparse(tree)}")

    def _named(self, name: str) -> Int | Address:
        if name in self._indices:
            return Address(tuple(int(each == name) for each in self._indices))
        if name in self._positions:
            return Address((0,) * len(self._indices), 0, ((name, 1),))
        if name in self._dtypes or re.fullmatch(r"[ij]\d+", name):
            raise UsageError(f"{name} is neither an index nor a position of this loop nest")
        return self._symbols.setdefault(name, symbol(name, 2, 8))
