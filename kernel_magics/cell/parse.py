"""A notebook cell as functions that the compiler can take.

A cell's top level is module code: it has no locals and cannot be called, so no frame of it could
be compiled.  `parse` turns it into a *skeleton* and *units*:

    x = torch.randn(3)                  unit 0: a function of these two statements, every name
    y = x.cos()                                 that they bind declared global
    for i in range(500):                skeleton: loops stay where they are ...
        if i == 3: continue             unit 1: ... and their bodies are units, so that a training
        step(y)                                 loop compiles its body once instead of unrolling

Imports, definitions, headers of loops and whatever cannot live in a function (``from m import *``,
top-level ``await``, ``exec``, IPython's own magics) stay in the skeleton, which runs as ordinary
module code in the same namespace.  Both keep the lines of the cell, and the units' code objects
are named ``<module>``, so that tracebacks, `inspect.getsource` and prints read as in a plain cell.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from compiler_core.bytecode import assemble, disassemble
from kernel_magics.cell.names import Plain, bound_names, contains_loop, is_future, why_plain

Unit = Callable[[], object]
CompileUnit = Callable[[types.FunctionType], Unit]
Node = TypeVar("Node", bound=ast.AST)

MODULE = "<module>"
FUNCTION = "__cutaway_unit__"
# Strings that stand in the skeleton for what is called; no name of ours enters the user's namespace.
UNIT = "\0unit "
RESULT = "\0result"
# What a unit returns when the loop around it is to go on, or to end, early.
CONTINUE, BREAK = 1, 2


class Shell(Protocol):
    """What is used here of IPython's InteractiveShell."""

    compile: Any
    displayhook: Any

    def transform_cell(self, raw_cell: str) -> str: ...
    def transform_ast(self, node: ast.Module) -> ast.Module: ...


@dataclass
class Program:
    """A parsed cell, ready to run.  `notes` say in words which lines no compiler will see."""

    filename: str
    source: str
    skeleton: types.CodeType
    units: list[types.CodeType]
    notes: list[str]

    @property
    def is_async(self) -> bool:
        return bool(self.skeleton.co_flags & inspect.CO_COROUTINE)

    def run(
        self,
        namespace: dict[str, Any],
        compile_unit: CompileUnit,
        run_coroutine: Callable[[Coroutine[Any, Any, Any]], object],
    ) -> object:
        """Run the cell in `namespace`, its units through `compile_unit`; the last expression's value."""
        skeleton, results = self._ready(namespace, compile_unit)
        if self.is_async:
            run_coroutine(eval(skeleton, namespace))
        else:
            exec(skeleton, namespace)
        return results[-1]

    async def run_awaiting(self, namespace: dict[str, Any], compile_unit: CompileUnit) -> object:
        """The same for a cell that awaits, in the loop that runs."""
        skeleton, results = self._ready(namespace, compile_unit)
        await eval(skeleton, namespace)
        return results[-1]

    def _ready(self, namespace: dict[str, Any], compile_unit: CompileUnit) -> tuple[types.CodeType, list[object]]:
        """The skeleton with its units, and where it puts the value of the last expression."""
        results: list[object] = [None]
        constants: dict[str, Callable[..., object]] = {RESULT: results.append}
        for number, code in enumerate(self.units):
            constants[f"{UNIT}{number}"] = compile_unit(types.FunctionType(code, namespace))
            if "__annotations__" in code.co_names:
                namespace.setdefault("__annotations__", {})
        return self.skeleton.replace(co_consts=_replaced(self.skeleton.co_consts, constants)), results


def parse(shell: Shell, cell: str, above: str = "") -> Program:
    """The program of a cell; a SyntaxError as a plain cell's.

    `above` is the comment that stands in the place of the magic's line, so that lines count as they are seen.
    """
    source = above + "\n" * _leading_empty_lines(cell) + shell.transform_cell(cell)
    filename = shell.compile.cache(source, cell_number(shell), raw_code=source)
    with shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
        tree = shell.transform_ast(shell.compile.ast_parse(source, filename))
        for statement in tree.body:
            # As IPython compiles it first: its syntax errors and warnings are the user's to see, once.
            shell.compile(ast.Module([statement], []), filename, "exec")
        splitter = _Splitter(filename, source, shell.compile.flags)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return splitter.program(tree)


def cell_number(shell: Shell) -> int:
    """That of the cell that runs now, as in ``In[3]``; `execution_count` may be one ahead already."""
    return int(shell.displayhook.prompt_count)


def _leading_empty_lines(cell: str) -> int:
    """IPython drops these when it transforms a cell, which would shift every line."""
    lines = cell.splitlines()
    return next((number for number, line in enumerate(lines) if line.strip()), 0)


def _replaced(constants: tuple[Any, ...], values: dict[str, Callable[..., object]]) -> tuple[Any, ...]:
    return tuple(values.get(c, c) if isinstance(c, str) else c for c in constants)


def _call(name: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Constant(name), arguments, [])


def _at(made: Node, place: ast.stmt) -> Node:
    return ast.fix_missing_locations(ast.copy_location(made, place))


def _documented(statement: ast.stmt) -> ast.stmt:
    """IPython compiles each statement but the last as a module of its own, in which a text is the docstring."""
    match statement:
        case ast.Expr(ast.Constant(str())):
            return _at(ast.Assign([ast.Name("__doc__", ast.Store())], statement.value), statement)
    return statement


@dataclass
class _Splitter:
    """Takes one cell apart into its skeleton and its units."""

    filename: str
    source: str
    flags: int
    units: list[types.CodeType] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def program(self, tree: ast.Module) -> Program:
        # IPython takes ``from __future__`` anywhere in a cell, a module only at its top.
        statements = [*map(_documented, tree.body[:-1]), *tree.body[-1:]]
        statements.sort(key=lambda s: not is_future(s))
        skeleton = self.compile(self.block(statements, is_cell=True))
        return Program(self.filename, self.source, skeleton, self.units, self.notes)

    def compile(self, statements: list[ast.stmt]) -> types.CodeType:
        module = ast.Module(statements, [])
        return cast(types.CodeType, compile(module, self.filename, "exec", self.flags, dont_inherit=True))

    def block(self, statements: list[ast.stmt], is_cell: bool = False) -> list[ast.stmt]:
        """The skeleton of a block; that of the whole cell keeps the value it ends with."""
        skeleton: list[ast.stmt] = []
        run: list[ast.stmt] = []
        for statement in statements:
            is_result = is_cell and statement is statements[-1] and isinstance(statement, ast.Expr)
            plain = None if contains_loop(statement) else why_plain(statement)
            if contains_loop(statement) or plain:
                skeleton += self.call(run)
                skeleton.append(self.keep(statement, plain, is_result))
                run = []
            elif is_result:
                skeleton += self.result([*run, statement])
                run = []
            else:
                run.append(statement)
        return skeleton + self.call(run)

    def keep(self, statement: ast.stmt, plain: Plain | None, is_result: bool) -> ast.stmt:
        """A statement that stays in the skeleton: as it is, or around a loop, whose blocks are taken apart."""
        if plain is None:
            return self.inside(statement)
        if plain.note:
            self.notes.append(f"Line {statement.lineno} ran as plain Python: {plain.note}.")
        if is_result and isinstance(statement, ast.Expr):
            return _at(ast.Expr(_call(RESULT, [statement.value])), statement)
        return statement

    def inside(self, node: Node) -> Node:
        for name, value in ast.iter_fields(node):
            if not isinstance(value, list) or not value:
                continue
            if isinstance(value[0], ast.stmt):
                setattr(node, name, self.block(value))
            elif isinstance(value[0], (ast.ExceptHandler, ast.match_case)):
                setattr(node, name, [self.inside(part) for part in value])
        return node

    def call(self, run: list[ast.stmt]) -> list[ast.stmt]:
        """A new unit made of `run`, as the statement that calls it."""
        if all(isinstance(s, (ast.Pass, ast.Break, ast.Continue, ast.Global)) for s in run):
            return run
        unit = _ToFunction(self.flags)
        call = _call(self.unit(unit.body(run), run[0]), [])
        if not unit.leaves:
            return [_at(ast.Expr(call), run[0])]
        # `match` looks at the returned value without giving it a name.
        cases = [ast.match_case(ast.MatchValue(ast.Constant(code)), None, [way]) for code, way in unit.leaves.items()]
        return [_at(ast.Match(call, cases), run[0])]

    def result(self, run: list[ast.stmt]) -> list[ast.stmt]:
        """The end of a cell: a unit that returns the value of the last expression."""
        last = run[-1]
        assert isinstance(last, ast.Expr)
        returns = ast.copy_location(ast.Return(last.value), last)
        call = _call(self.unit([*_ToFunction(self.flags).body(run[:-1]), returns], run[0]), [])
        return [_at(ast.Expr(_call(RESULT, [call])), run[0])]

    def unit(self, body: list[ast.stmt], first: ast.stmt) -> str:
        """Compile `body` as a function; the constant that stands for it."""
        names = sorted(bound_names(body))
        if names:
            body = [ast.Global(names), *body]
        function = ast.FunctionDef(FUNCTION, ast.arguments([], [], None, [], [], None, []), body, [])
        if sys.version_info >= (3, 12):
            function.type_params = []
        module = self.compile([_at(function, first)])
        (code,) = (c for c in module.co_consts if isinstance(c, types.CodeType))
        self.units.append(_as_module(_renamed(code)))
        return f"{UNIT}{len(self.units) - 1}"


def _as_module(code: types.CodeType) -> types.CodeType:
    """`code`, saying of itself what module code does: IPython prints tracebacks by the name and the first line."""
    return assemble(disassemble(code), code, co_name=MODULE, co_qualname=MODULE, co_firstlineno=1)


def _renamed(code: types.CodeType) -> types.CodeType:
    """`code` and those within it, with the names that they would have at module level."""
    constants = tuple(_renamed(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_consts=constants, co_qualname=code.co_qualname.removeprefix(f"{FUNCTION}.<locals>."))


class _ToFunction(ast.NodeTransformer):
    """Rewrites the few statements that mean something else, or nothing, inside a function."""

    def __init__(self, flags: int) -> None:
        self.annotations_are_text = bool(flags & __future__.annotations.compiler_flag)
        self.leaves: dict[int, ast.stmt] = {}
        """What the unit may return to leave the loop around it, and the statement that does."""

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        for statement in statements:
            made = self.visit(statement)
            body += made if isinstance(made, list) else [made]
        return body

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        self.leaves[CONTINUE] = node
        return _at(ast.Return(ast.Constant(CONTINUE)), node)

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        self.leaves[BREAK] = node
        return _at(ast.Return(ast.Constant(BREAK)), node)

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        return _at(ast.Pass(), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | list[ast.stmt]:
        if not isinstance(node.target, ast.Name):
            return node
        made: list[ast.stmt] = []
        if node.value:
            made.append(_at(ast.Assign([node.target], node.value), node))
        if node.simple:
            made.append(_at(ast.Assign([self._slot(node.target.id)], self._annotation(node)), node))
        return made or _at(ast.Pass(), node)

    def _slot(self, name: str) -> ast.expr:
        return ast.Subscript(ast.Name("__annotations__", ast.Load()), ast.Constant(name), ast.Store())

    def _annotation(self, node: ast.AnnAssign) -> ast.expr:
        return ast.Constant(ast.unparse(node.annotation)) if self.annotations_are_text else node.annotation

    def _leave_alone(self, node: Node) -> Node:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave_alone
