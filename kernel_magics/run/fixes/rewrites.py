"""Rewrites the statement at a line as the advice on graph breaks says.

A rule knows one form of code that people write.  Whether a change keeps the values and removes the break, `trial`
finds out by running it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from compiler_core.records.differences import SourceEdit
from compiler_core.support.texts import copied_tree
from kernel_magics.run.fixes.expressions import Modules, as_condition, kept_tensors

_BLOCKS = ("body", "orelse", "finalbody")
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)


@dataclass(frozen=True)
class Rewrite:
    """One change of the user's code."""

    edit: SourceEdit
    flipped: tuple[SourceEdit, SourceEdit] | None = None
    """For a branch: the code as it is and as it becomes, both with the condition negated.  They must have the same
    values, too, since the program may take the other branch for other inputs."""


@dataclass(frozen=True)
class _Place:
    """The statement at a line, and the block of statements that it is in."""

    statement: ast.stmt
    block: list[ast.stmt]
    modules: Modules
    in_function: bool

    @property
    def after(self) -> list[ast.stmt]:
        return self.block[self.block.index(self.statement) + 1 :]


@dataclass(frozen=True)
class _Replacement:
    """What a rule makes: new statements in place of those from `first` to `last`."""

    title: str
    first: ast.stmt
    last: ast.stmt
    new: Sequence[ast.stmt]
    flipped: tuple[Sequence[ast.stmt], Sequence[ast.stmt]] | None = None


def rewritten(filename: str, lines: list[str], lineno: int, modules: Modules) -> Rewrite | None:
    """Returns the change that may remove the graph break at a line of a file; None if no rule knows the code."""
    place = _place_of(_parsed(lines), lineno, modules, in_function=False)
    if place is None:
        return None
    for rule in _RULES:
        made = rule(place)
        if made is not None and _is_alone(made, place.block, lines):
            return _rewrite(made, place.block, filename, lines)
    return None


def disabled(filename: str, lines: list[str], lineno: int, modules: Modules) -> tuple[str, SourceEdit] | None:
    """Returns the name of the function at a line, and the change that leaves it to Python; None if there is none."""
    for each in _parsed(lines):
        if isinstance(each, ast.FunctionDef) and each.lineno <= lineno <= (each.end_lineno or 0) and modules.torch:
            line = lines[each.lineno - 1]
            title = "run the function as plain Python"
            added = [f"@{modules.torch}.compiler.disable", line]
            return each.name, SourceEdit(title, filename, each.lineno, [line], added)
    return None


def _parsed(lines: list[str]) -> list[ast.stmt]:
    """Returns the statements of a file; none if it has what only a cell may, such as `await` at its top level."""
    try:
        return ast.parse("\n".join(lines)).body
    except SyntaxError:
        return []


def _place_of(block: list[ast.stmt], lineno: int, modules: Modules, in_function: bool) -> _Place | None:
    """Returns the place of the innermost statement at a line; None if there is none."""
    for statement in block:
        if not statement.lineno <= lineno <= (statement.end_lineno or 0):
            continue
        inside = in_function or isinstance(statement, ast.FunctionDef)
        for inner in _inner_blocks(statement):
            if (found := _place_of(inner, lineno, modules, inside)) is not None:
                return found
        return _Place(statement, block, modules, in_function)
    return None


def _inner_blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    yield from (getattr(statement, name) for name in _BLOCKS if getattr(statement, name, None))
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


# ---- rules -------------------------------------------------------------------------------------


def _branch(place: _Place) -> _Replacement | None:
    """``if c: y = a`` becomes ``y = torch.where(c, a, y)``."""
    match place.statement:
        case ast.If(test, [then], [] | [_] as otherwise) if (target := _assigned(then)) is not None:
            name, value = target
            other = _assigned(otherwise[0]) if otherwise else (name, ast.Name(name, ast.Load()))
            if other is None or other[0] != name:
                return None
            return _where(place, test, value, other[1], partial(_assignment, name), place.statement)
    return None


def _assignment(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _assigned(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """Returns the name that a statement assigns to, and the value."""
    match statement:
        case ast.Assign([ast.Name(name)], value):
            return name, value
    return None


def _chosen_return(place: _Place) -> _Replacement | None:
    """``if c: return a`` and ``return b`` become ``return torch.where(c, a, b)``."""
    match place.statement, place.after:
        case ast.If(test, [ast.Return(ast.expr() as value)], []), [ast.Return(ast.expr() as other) as last, *_]:
            return _where(place, test, value, other, ast.Return, last)
        case ast.If(test, [ast.Return(ast.expr() as value)], [ast.Return(ast.expr() as other)]), _:
            return _where(place, test, value, other, ast.Return, place.statement)
    return None


def _where(
    place: _Place,
    test: ast.expr,
    value: ast.expr,
    other: ast.expr,
    make: Callable[[ast.expr], ast.stmt],
    last: ast.stmt,
) -> _Replacement | None:
    condition = as_condition(test, place.modules)
    if condition is None or not place.modules.torch:
        return None

    where = partial(_call_where, place.modules, condition)
    negated = copied_tree(place.statement)
    assert isinstance(negated, ast.If)
    negated.test = ast.UnaryOp(ast.Not(), test)
    old = [negated] if last is place.statement else [negated, last]
    return _Replacement("torch.where in place of the branch", place.statement, last, [make(where(value, other))],
                 (old, [make(where(other, value))]))  # fmt: skip


def _call_where(modules: Modules, condition: ast.expr, value: ast.expr, other: ast.expr) -> ast.expr:
    return ast.Call(
        ast.Attribute(ast.Name(modules.torch, ast.Load()), "where", ast.Load()), [condition, value, other], []
    )


def _chosen_value(place: _Place) -> _Replacement | None:
    """``y = a if c else b`` becomes ``y = torch.where(c, a, b)``."""
    found = [node for node in ast.walk(place.statement) if isinstance(node, ast.IfExp)]
    if len(found) != 1 or not isinstance(place.statement, _SIMPLE) or not place.modules.torch:
        return None
    condition = as_condition(found[0].test, place.modules)
    if condition is None:
        return None

    body, orelse, statement = found[0].body, found[0].orelse, place.statement
    where = partial(_call_where, place.modules, condition)
    flipped = _ExpressionReplacer(found[0], ast.IfExp(found[0].test, orelse, body)).visit(statement)
    new = [
        _ExpressionReplacer(found[0], where(*values)).visit(statement) for values in ((body, orelse), (orelse, body))
    ]
    return _Replacement("torch.where in place of the branch", statement, statement, new[:1], ([flipped], new[1:]))


class _ExpressionReplacer(ast.NodeTransformer):
    """Makes a copy of a tree with one expression replaced."""

    def __init__(self, node: ast.expr, by: ast.expr) -> None:
        self._node, self._by = node, by

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return self._by if node is self._node else super().generic_visit(copy.copy(node))


def _kept_tensor(place: _Place) -> _Replacement | None:
    """``s = x.sum().item()`` becomes ``s = x.sum()``; in the whole block, if NumPy computes in several statements."""
    made = {each: kept_tensors(each, place.modules) for each in place.block if isinstance(each, _SIMPLE)}
    # of a call whose result is not used, such as one that logs, only what it does is known to matter
    changed = [each for each, (_, title) in made.items() if title and not isinstance(each, ast.Expr)]
    if place.statement not in changed:
        return None
    first, last = changed[0], changed[-1]
    between = place.block[place.block.index(first) : place.block.index(last) + 1]
    new = [made[each][0] if each in changed else each for each in between]
    title = max((made[each][1] for each in changed), key=len)
    return _Replacement(title, first, last, [each for each in new if isinstance(each, ast.stmt)])


def _is_print(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Call(ast.Name("print"))):
            return True
    return False


def _moved_print(place: _Place) -> _Replacement | None:
    """Moves a `print` from the middle of a function to its end."""
    after = place.after
    if not (after and place.in_function and _is_print(place.statement)) or _read(place.statement) & _stored(after):
        return None
    *middle, last = after
    match last:
        case ast.Return(ast.Name() | ast.Constant() | None):
            end: list[ast.stmt] = [place.statement, last]
        case ast.Return(ast.expr() as value):
            name = _new_name(place.block)
            end = [
                ast.Assign([ast.Name(name, ast.Store())], value),
                place.statement,
                ast.Return(ast.Name(name, ast.Load())),
            ]
        case _:
            middle, end = after, [place.statement]
    if not middle and len(end) < 3:
        return None
    return _Replacement("print at the end, after the graph", place.statement, last, [*middle, *end])


def _read(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _stored(statements: list[ast.stmt]) -> set[str]:
    names = [node for each in statements for node in ast.walk(each) if isinstance(node, ast.Name)]
    return {name.id for name in names if not isinstance(name.ctx, ast.Load)}


def _new_name(block: list[ast.stmt]) -> str:
    taken = set().union(*map(_read, block))
    return next(name for name in ("result", "returned", "result_1", "result_2") if name not in taken)


_RULES: tuple[Callable[[_Place], _Replacement | None], ...] = (
    _branch,
    _chosen_return,
    _chosen_value,
    _kept_tensor,
    _moved_print,
)


# ---- text --------------------------------------------------------------------------------------


def _is_alone(made: _Replacement, block: list[ast.stmt], lines: list[str]) -> bool:
    """Whether the replaced statements share their lines with no others."""
    replaced = block[block.index(made.first) : block.index(made.last) + 1]
    before = lines[made.first.lineno - 1].encode()[: made.first.col_offset]
    after = _behind(made.last, lines)
    apart = all(one.end_lineno < two.lineno for one, two in pairwise(replaced) if one.end_lineno)
    return apart and not before.strip() and not after.partition("#")[0].strip()


def _rewrite(made: _Replacement, block: list[ast.stmt], filename: str, lines: list[str]) -> Rewrite:
    first, last = made.first.lineno, made.last.end_lineno or 0
    removed = lines[first - 1 : last]

    def edit(statements: Sequence[ast.stmt]) -> SourceEdit:
        added: list[str] = []
        for each in statements:
            added += _comments_above(each, first, lines)
            added += _text(each, any(each is old for old in block), lines, made.first.col_offset)
        return SourceEdit(made.title, filename, first, removed, added)

    flipped = made.flipped and (edit(made.flipped[0]), edit(made.flipped[1]))
    return Rewrite(edit(made.new), flipped)


def _text(statement: ast.stmt, is_old: bool, lines: list[str], column: int) -> list[str]:
    """Returns the lines of a statement, with the comment at its end."""
    if is_old:
        return lines[statement.lineno - 1 : statement.end_lineno]
    text = ast.unparse(ast.fix_missing_locations(_OriginalLiterals(lines).visit(copied_tree(statement))))
    made = [" " * column + line for line in text.splitlines()]
    comment = _behind(statement, lines).strip() if hasattr(statement, "lineno") else ""
    return [*made[:-1], f"{made[-1]}  {comment}".rstrip()]


class _OriginalLiterals(ast.NodeTransformer):
    """Gives numbers and texts the form that they have in the code, such as 1e-9 and double quotes."""

    def __init__(self, lines: list[str]) -> None:
        self._source = "\n".join(lines)

    def _literal(self, node: ast.expr) -> ast.expr:
        text = ast.get_source_segment(self._source, node) if hasattr(node, "lineno") else None
        return ast.Name(text, ast.Load()) if text and "\n" not in text else node

    visit_Constant = visit_JoinedStr = _literal


def _comments_above(statement: ast.stmt, first: int, lines: list[str]) -> list[str]:
    """Returns the comments and empty lines directly above a statement of the code, after line `first`."""
    at = start = getattr(statement, "lineno", 0) - 1
    while at > first and lines[at - 1].strip()[:1] in ("#", ""):
        at -= 1
    return lines[at:start] if start > 0 else []


def _behind(statement: ast.stmt, lines: list[str]) -> str:
    return lines[(statement.end_lineno or 0) - 1].encode()[statement.end_col_offset :].decode()
