"""Splits a notebook cell into functions that the compiler can compile.

A cell's top level is module code: it has no locals and cannot be called, so its frame could not
be compiled.  `parse` turns it into a *skeleton* and *units*:

    x = torch.randn(3)                  unit 0: a function of these two statements, every name
    y = x.cos()                                 that they bind declared global
    for i in range(500):                skeleton: loops stay where they are ...
        if i == 3: continue             unit 1: ... and their bodies are units, so that a training
        step(y)                                 loop compiles its body once instead of unrolling

Imports, definitions, loop headers and statements that cannot be in a function (``from m import *``,
top-level ``await``, ``exec``, IPython magics) stay in the skeleton, which runs as ordinary
module code in the same namespace.  Both keep the cell's line numbers, and the units' code objects
are named ``<module>``, so that tracebacks and `inspect.getsource` are those of a plain cell.
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
from typing import Any, TypeVar, cast

from compiler_core.bytecode import assemble, disassemble
from kernel_magics.cell.names import SkeletonStatement, bound_names, contains_loop, is_future, skeleton_reason

Unit = Callable[[], object]
CompileUnit = Callable[[types.FunctionType], Unit]
Node = TypeVar("Node", bound=ast.AST)

MODULE_NAME = "<module>"
UNIT_NAME = "__cutaway_unit__"
# String constants in the skeleton, replaced by the functions to call: no name is added to the user's namespace.
UNIT_PLACEHOLDER = "\0unit "
RESULT_PLACEHOLDER = "\0result"
# Returned by a unit to `continue` or `break` the loop around it.
CONTINUE, BREAK = 1, 2


@dataclass
class Program:
    """A parsed cell, ready to run.  `notes` are sentences about the lines that are not compiled."""

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
        """Runs the cell in `namespace`, with each unit compiled by `compile_unit`.

        `run_coroutine` runs the skeleton if it awaits.  Returns the value of the last expression, or None.
        """
        if not self.is_async:
            return self.bind(namespace, compile_unit)()
        skeleton, results = self._bind_units(namespace, compile_unit)
        run_coroutine(eval(skeleton, namespace))
        return results[-1]

    def bind(self, namespace: dict[str, Any], compile_unit: CompileUnit) -> Callable[[], object]:
        """Returns a function that runs the cell, which must not await, as often as it is called.

        Each unit is compiled once.  The function returns the value of the last expression, or None.
        """
        skeleton, results = self._bind_units(namespace, compile_unit)

        def run() -> object:
            results.append(None)
            exec(skeleton, namespace)
            value = results[-1]
            results.clear()
            return value

        return run

    async def run_awaiting(self, namespace: dict[str, Any], compile_unit: CompileUnit) -> object:
        """Like `run`, for a cell that awaits, in the running event loop."""
        skeleton, results = self._bind_units(namespace, compile_unit)
        await eval(skeleton, namespace)
        return results[-1]

    def _bind_units(self, namespace: dict[str, Any], compile_unit: CompileUnit) -> tuple[types.CodeType, list[object]]:
        """Returns the skeleton with its units filled in, and the list to which it appends the last expression's
        value."""
        results: list[object] = [None]
        constants: dict[str, Callable[..., object]] = {RESULT_PLACEHOLDER: results.append}
        for number, code in enumerate(self.units):
            constants[f"{UNIT_PLACEHOLDER}{number}"] = compile_unit(types.FunctionType(code, namespace))
            if "__annotations__" in code.co_names:
                namespace.setdefault("__annotations__", {})
        return self.skeleton.replace(co_consts=_replace_constants(self.skeleton.co_consts, constants)), results


def parse(shell: Any, cell: str, above: str = "") -> Program:
    """Parses a cell; raises the SyntaxError of a plain cell.

    `above` is a comment in place of the magic's line, so that line numbers are those that the user sees.
    """
    source = above + "\n" * _leading_empty_lines(cell) + shell.transform_cell(cell)
    filename = shell.compile.cache(source, cell_number(shell), raw_code=source)
    with shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
        tree = shell.transform_ast(shell.compile.ast_parse(source, filename))
        for statement in tree.body:
            # Compiled as IPython does first, so that the user sees its syntax errors and warnings once.
            shell.compile(ast.Module([statement], []), filename, "exec")
        splitter = _Splitter(filename, source, shell.compile.flags)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return splitter.program(tree)


def cell_number(shell: Any) -> int:
    """Returns the number of the running cell, as in ``In[3]``; `execution_count` may already be one higher."""
    return int(shell.displayhook.prompt_count)


def _leading_empty_lines(cell: str) -> int:
    """Counts the empty lines at the start, which IPython drops when it transforms a cell: line numbers would shift."""
    lines = cell.splitlines()
    return next((number for number, line in enumerate(lines) if line.strip()), 0)


def _replace_constants(constants: tuple[Any, ...], values: dict[str, Callable[..., object]]) -> tuple[Any, ...]:
    return tuple(values.get(c, c) if isinstance(c, str) else c for c in constants)


def _call(name: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Constant(name), arguments, [])


def _located(node: Node, place: ast.stmt) -> Node:
    return ast.fix_missing_locations(ast.copy_location(node, place))


def _docstring_assigned(statement: ast.stmt) -> ast.stmt:
    """Replaces a string statement by an assignment to ``__doc__``.

    IPython compiles each statement except the last as a separate module, in which a string is the docstring.
    """
    match statement:
        case ast.Expr(ast.Constant(str())):
            return _located(ast.Assign([ast.Name("__doc__", ast.Store())], statement.value), statement)
    return statement


@dataclass
class _Splitter:
    """Splits one cell into its skeleton and its units."""

    filename: str
    source: str
    flags: int
    units: list[types.CodeType] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def program(self, tree: ast.Module) -> Program:
        # IPython accepts ``from __future__`` anywhere in a cell, a module only at its top.
        statements = [*map(_docstring_assigned, tree.body[:-1]), *tree.body[-1:]]
        statements.sort(key=lambda s: not is_future(s))
        skeleton = self.compile(self.split_block(statements, is_cell=True))
        return Program(self.filename, self.source, skeleton, self.units, self.notes)

    def compile(self, statements: list[ast.stmt]) -> types.CodeType:
        module = ast.Module(statements, [])
        return cast(types.CodeType, compile(module, self.filename, "exec", self.flags, dont_inherit=True))

    def split_block(self, statements: list[ast.stmt], is_cell: bool = False) -> list[ast.stmt]:
        """Returns the skeleton of a block of statements; the skeleton of the whole cell stores the final value."""
        skeleton: list[ast.stmt] = []
        run: list[ast.stmt] = []
        for statement in statements:
            is_result = is_cell and statement is statements[-1] and isinstance(statement, ast.Expr)
            plain = None if contains_loop(statement) else skeleton_reason(statement)
            if contains_loop(statement) or plain:
                skeleton += self.unit_call(run)
                skeleton.append(self.skeleton_statement(statement, plain, is_result))
                run = []
            elif is_result:
                skeleton += self.result_call([*run, statement])
                run = []
            else:
                run.append(statement)
        return skeleton + self.unit_call(run)

    def skeleton_statement(self, statement: ast.stmt, plain: SkeletonStatement | None, is_result: bool) -> ast.stmt:
        """Returns a statement of the skeleton: unchanged, or, if it contains a loop, with its blocks split."""
        if plain is None:
            return self.split_nested_blocks(statement)
        if plain.note:
            self.notes.append(f"Line {statement.lineno} ran as plain Python: {plain.note}.")
        if is_result and isinstance(statement, ast.Expr):
            return _located(ast.Expr(_call(RESULT_PLACEHOLDER, [statement.value])), statement)
        return statement

    def split_nested_blocks(self, node: Node) -> Node:
        for name, value in ast.iter_fields(node):
            if not isinstance(value, list) or not value:
                continue
            if isinstance(value[0], ast.stmt):
                setattr(node, name, self.split_block(value))
            elif isinstance(value[0], (ast.ExceptHandler, ast.match_case)):
                setattr(node, name, [self.split_nested_blocks(part) for part in value])
        return node

    def unit_call(self, run: list[ast.stmt]) -> list[ast.stmt]:
        """Makes a new unit of the statements `run` and returns the statement that calls it."""
        if all(isinstance(s, (ast.Pass, ast.Break, ast.Continue, ast.Global)) for s in run):
            return run
        unit = _UnitBody(self.flags)
        call = _call(self.add_unit(unit.body(run), run[0]), [])
        if not unit.loop_exits:
            return [_located(ast.Expr(call), run[0])]
        # `match` tests the returned value without binding it to a name.
        cases = [
            ast.match_case(ast.MatchValue(ast.Constant(code)), None, [way]) for code, way in unit.loop_exits.items()
        ]
        return [_located(ast.Match(call, cases), run[0])]

    def result_call(self, run: list[ast.stmt]) -> list[ast.stmt]:
        """Returns the end of the cell's skeleton: the call of a unit that returns the value of the last expression."""
        last = run[-1]
        assert isinstance(last, ast.Expr)
        returns = ast.copy_location(ast.Return(last.value), last)
        call = _call(self.add_unit([*_UnitBody(self.flags).body(run[:-1]), returns], run[0]), [])
        return [_located(ast.Expr(_call(RESULT_PLACEHOLDER, [call])), run[0])]

    def add_unit(self, body: list[ast.stmt], first: ast.stmt) -> str:
        """Compiles `body` as a function and returns the string constant that stands for it."""
        names = sorted(bound_names(body))
        if names:
            body = [ast.Global(names), *body]
        function = ast.FunctionDef(UNIT_NAME, ast.arguments([], [], None, [], [], None, []), body, [])
        if sys.version_info >= (3, 12):
            function.type_params = []
        module = self.compile([_located(function, first)])
        (code,) = (c for c in module.co_consts if isinstance(c, types.CodeType))
        self.units.append(_with_module_name(_without_unit_prefix(code)))
        return f"{UNIT_PLACEHOLDER}{len(self.units) - 1}"


def _with_module_name(code: types.CodeType) -> types.CodeType:
    """Returns `code` with the name and first line of module code, by which IPython prints tracebacks."""
    return assemble(disassemble(code), code, co_name=MODULE_NAME, co_qualname=MODULE_NAME, co_firstlineno=1)


def _without_unit_prefix(code: types.CodeType) -> types.CodeType:
    """Returns `code`, and the code objects nested in it, with the qualified names that they have at module level."""
    constants = tuple(_without_unit_prefix(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_consts=constants, co_qualname=code.co_qualname.removeprefix(f"{UNIT_NAME}.<locals>."))


class _UnitBody(ast.NodeTransformer):
    """Rewrites the statements whose meaning is different inside a function: continue, break, global, annotations."""

    def __init__(self, flags: int) -> None:
        self.annotations_are_text = bool(flags & __future__.annotations.compiler_flag)
        self.loop_exits: dict[int, ast.stmt] = {}
        """The codes that the unit may return to leave the loop around it, and the statement for each."""

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        for statement in statements:
            visited = self.visit(statement)
            body += visited if isinstance(visited, list) else [visited]
        return body

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        self.loop_exits[CONTINUE] = node
        return _located(ast.Return(ast.Constant(CONTINUE)), node)

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        self.loop_exits[BREAK] = node
        return _located(ast.Return(ast.Constant(BREAK)), node)

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        return _located(ast.Pass(), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | list[ast.stmt]:
        if not isinstance(node.target, ast.Name):
            return node
        statements: list[ast.stmt] = []
        if node.value:
            statements.append(_located(ast.Assign([node.target], node.value), node))
        if node.simple:
            statements.append(_located(ast.Assign([self._slot(node.target.id)], self._annotation(node)), node))
        return statements or _located(ast.Pass(), node)

    def _slot(self, name: str) -> ast.expr:
        return ast.Subscript(ast.Name("__annotations__", ast.Load()), ast.Constant(name), ast.Store())

    def _annotation(self, node: ast.AnnAssign) -> ast.expr:
        return ast.Constant(ast.unparse(node.annotation)) if self.annotations_are_text else node.annotation

    def _keep_unchanged(self, node: Node) -> Node:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _keep_unchanged
