"""Writes a stand-alone file that shows a graph break: the user's functions with few statements, and small inputs."""

from __future__ import annotations

import ast
import copy
import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Literal

import torch

from compiler_core.api.compile import compile as compile_
from compiler_core.errors import FullGraphError, UsageError
from compiler_core.support.texts import copied_tree, keep_source
from compiler_core.tools.reproduce.python_text import HELPERS, PythonText
from compiler_core.tools.reproduce.values import smaller_values
from compiler_core.torch_private import StockUnsupported, StockUserError

Engine = Literal["core", "torch"]
Arguments = list[Any]

_FILE = '''\
"""A graph break of {compiler}: {kind}."""

{program}


def inputs():
    torch.manual_seed(0)
    return [
{inputs}
    ]


if __name__ == "__main__":
    {compile}
    print({name}(*inputs()))  # plain Python runs it
    try:
        compiled(*inputs())
    except Exception as error:
        print(error)
'''


def break_reproducer(fn: Callable[..., Any], args: Sequence[Any], engine: Engine) -> str:
    """Returns the text of a file that shows the first graph break of a call; see `reproducer`.

    Raises UsageError if the call has no graph break, or something in it has no Python text.
    """
    arguments = list(args)
    for exact in (False, True):  # the values of parameters may matter
        parts = PythonText(exact)
        name = parts.name_of(fn)
        program = _parsed(parts.definitions())
        wanted = _break_of(program, name, arguments, engine)
        if wanted is not None:
            break
    else:
        raise UsageError("the call has no graph break")

    def breaks(tree: ast.Module, given: Arguments) -> bool:
        return _break_of(tree, name, given, engine) == wanted

    program = _without_statements(program, lambda tree: breaks(tree, arguments))
    arguments = smaller_values(arguments, lambda given: breaks(program, given))
    program = _without_unused(program, name)
    return _text(program, name, arguments, wanted, engine, breaks)


def _parsed(definitions: Sequence[str]) -> ast.Module:
    """Parses a program, and removes the annotations of functions, whose names may not be defined."""
    program = ast.parse("\n\n".join(definitions))
    for node in ast.walk(program):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
    return program


def _break_of(program: ast.Module, name: str, args: Arguments, engine: Engine) -> str | None:
    """Returns the kind of the first graph break of a call, or None: there is none, or the program does not run."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            function = _defined(program)[name]
            function(*copy.deepcopy(args))
        except Exception:
            return None
        try:
            if engine == "core":
                compiled = compile_(function, backend="eager", fullgraph=True)
            else:
                compiled = torch.compile(function, backend="eager", fullgraph=True)
            compiled(*copy.deepcopy(args))
        except FullGraphError as error:
            return str(error).splitlines()[0].partition("must break: ")[2]
        except (StockUnsupported, StockUserError) as error:
            return str(error).splitlines()[0]
        except Exception:
            return None
    return None


class _Namespace(dict[str, Any]):
    """The globals of a program: a dict with weak references, for `keep_source`."""


def _defined(program: ast.Module) -> dict[str, Any]:
    """Executes a program; its functions have sources that `inspect` finds, as those of a file."""
    text = ast.unparse(program)
    filename = f"<reproducer {hash(text)}>"
    namespace = _Namespace({"__name__": "__main__", "__file__": filename})
    keep_source(namespace, filename, text)
    exec(compile(text, filename, "exec"), namespace)
    return namespace


# ---------------------------------------------------------------- fewer statements


def _without_statements(program: ast.Module, breaks: Callable[[ast.Module], bool]) -> ast.Module:
    """Returns the program without the statements that the break does not need, found by leaving each out in turn."""
    changed = True
    while changed:
        changed = False
        for place in reversed(list(_places(program))):
            for smaller in _changed_at(program, place):
                if breaks(smaller):
                    program, changed = smaller, True
                    break
    return program


Place = tuple[tuple[str | int, ...], int]
"""The path to a list of statements, and an index in it."""


def _places(node: ast.AST, path: tuple[str | int, ...] = ()) -> Iterator[Place]:
    for field, value in ast.iter_fields(node):
        if not isinstance(value, list):
            continue
        for index, each in enumerate(value):
            if isinstance(each, ast.stmt) and getattr(each, "name", "") not in HELPERS:
                yield (*path, field), index
                yield from _places(each, (*path, field, index))


def _changed_at(program: ast.Module, place: Place) -> Iterator[ast.Module]:
    """Yields the program with a statement left out, and with its body in its place."""
    path, index = place
    for keeps_body in (False, True):
        changed = copied_tree(program)
        body: Any = changed
        try:
            for step in path:
                body = body[step] if isinstance(step, int) else getattr(body, step)
            removed = body.pop(index)
        except IndexError:  # an earlier change removed what is around it
            return
        if keeps_body:
            inner = getattr(removed, "body", None)
            if not isinstance(inner, list) or isinstance(removed, (ast.FunctionDef, ast.ClassDef)):
                return
            body[index:index] = inner
        if body or path == ("body",):
            yield ast.fix_missing_locations(changed)


def _without_unused(program: ast.Module, name: str) -> ast.Module:
    """Returns the program without imports and definitions that nothing names."""
    used = {name} | {each.id for each in ast.walk(program) if isinstance(each, ast.Name)}
    kept: list[ast.stmt] = []
    for statement in program.body:
        names = [a.asname or a.name.partition(".")[0] for a in getattr(statement, "names", ())]
        if not names or used.intersection(names):
            kept.append(statement)
    return ast.Module(kept, [])


# ---------------------------------------------------------------- the file


def _text(
    program: ast.Module,
    name: str,
    args: Arguments,
    kind: str,
    engine: Engine,
    breaks: Callable[[ast.Module, Arguments], bool],
) -> str:
    for exact in (False, True):
        parts = PythonText(exact)
        lines = [parts.value(each) for each in args]
        whole = _with_definitions(program, parts.definitions())
        if breaks(whole, _evaluated(lines, whole)):
            break
    call = f"compiled = torch.compile({name}, backend='eager', fullgraph=True)"
    if engine == "core":
        call = f"import compiler_core\n\n    compiled = compiler_core.compile({name}, backend='eager', fullgraph=True)"
    return _FILE.format(
        compiler="Cutaway" if engine == "core" else "torch.compile",
        kind=kind,
        program=_spaced(whole),
        inputs=textwrap.indent("\n".join(f"{line}," for line in lines), "        "),
        name=name,
        compile=call,
    )


def _with_definitions(program: ast.Module, definitions: Sequence[str]) -> ast.Module:
    """Returns the program with those of the definitions added that it lacks."""
    known = [ast.unparse(each) for each in program.body]
    more = [each for each in _parsed(definitions).body if ast.unparse(each) not in known]
    statements = [*more, *program.body]
    return ast.Module(sorted(statements, key=lambda each: not isinstance(each, (ast.Import, ast.ImportFrom))), [])


def _evaluated(lines: Sequence[str], program: ast.Module) -> Arguments:
    namespace = _defined(program)
    torch.manual_seed(0)
    return [eval(line, namespace) for line in lines]


def _spaced(program: ast.Module) -> str:
    """Returns the text of a program with empty lines around definitions."""
    parts: list[str] = []
    for statement in program.body:
        is_definition = isinstance(statement, (ast.FunctionDef, ast.ClassDef))
        parts.append(("\n\n" if is_definition else "") + ast.unparse(statement))
    return "\n".join(parts).strip()
