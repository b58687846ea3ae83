"""Opens what was compiled before: its record, its guards as Python with their costs, and its decompiled code."""

from __future__ import annotations

import ast
import builtins
import textwrap
import types
from dataclasses import replace
from typing import Any

from compiler_core.api.compiled import is_compiled, region_of
from compiler_core.errors import UsageError
from compiler_core.pipeline.compiled_region import Region
from compiler_core.records import Compile, Record
from compiler_core.tools.decompile import all_names, called_builtins, runnable_text
from compiler_core.tools.stock import cached_compiles
from compiler_core.tools.stock.hooks.torch_internals import cache_entries


def already_compiled(fn: Any) -> Record:
    """Returns a record of the compiles of a function that are in use, whether or not it was observed.

    For our functions it is what was recorded when they were compiled.  For stock `torch.compile` it is what PyTorch
    still has: guards, bytecode, and Inductor's code and kernels; times, graph breaks and all graphs but the last are
    known only while a function is compiled and are missing.

    Args:
        fn: what `compiler_core.compile` or ``torch.compile`` returned; for stock also the plain function, a method or
            an ``nn.Module``.

    Raises:
        UsageError: `fn` is something else, or it was not compiled, or was reset since.

    Example::

        compiled = torch.compile(f)
        compiled(x)
        print(compiler_core.already_compiled(f).compiles[0].guards)
    """
    function = _root(fn)
    return _ours(function) if is_compiled(function) else cached_compiles.already_compiled(fn)


def _root(fn: Any) -> Any:
    """Returns the function behind a compiled method or module of ours; other objects as they are."""
    function = getattr(fn, "_compiled_forward", fn)
    return getattr(function, "__func__", function)


def _ours(function: Any) -> Record:
    region: Region = region_of(function)
    states = [state for state in region.states.values() if state.entries]
    if not region.installed():
        raise UsageError(f"{function.__name__} has no compile in use: call it first")
    record = next(state.record for state in states if state.frame.kind == "root")
    frames = []
    for state in (state for state in region.states.values() if state.record is record):
        ids = {entry.id for entry in state.entries}
        frames.append(replace(state.frame, compiles=[each for each in state.frame.compiles if each.id in ids]))
    frames.sort(key=lambda frame: frame.id)
    found = replace(record, title=f"{function.__name__}, compiled already", frames=frames, seen=[], comparison=None)
    in_use = {id(entry.guards) for state in states for entry in state.entries}  # ids are those of their records
    if others := len(in_use) - len(found.compiles):
        found.notes = [*record.notes, f"{others} more compiles are in earlier records."]
    return found


# ---------------------------------------------------------------- guards


def guards_text(record: Record, compile_: Compile) -> str:
    """Returns the guards of a compile as the text of a Python function, ``guards(L, G)``.

    Each guard has a comment: its share of the time of checking all of them, in nanoseconds, if that was measured, and
    the user's line.  A guard that is not a Python expression, such as one on PyTorch's global state, is a comment.

    Args:
        record: the record that has the compile, and the texts of its lines.
        compile_: the compile.
    """
    measured = compile_.guards_ns is not None
    cost = f"{(compile_.guards_ns or 0.0) / 1000:.1f} us together" if measured else "their cost was not measured"
    lines = [f"def guards(L, G):  # {len(compile_.guards)} guards, {cost}", "    return ("]
    first = True
    for guard in compile_.guards:
        shown = [
            f"{guard.cost_ns:.0f} ns" if guard.cost_ns is not None else "",
            record.line_text(guard.line),
            "not checked" if guard.dropped else "",
        ]
        why = f"  # {'; '.join(filter(None, shown))}" if any(shown) else ""
        code = expression(guard.code)
        if code is None or guard.dropped:
            lines.append(f"        # {' '.join(guard.code.split())}{why}")
            continue
        lines.append(f"        {'' if first else 'and '}{code}{why}")
        first = False
    return "\n".join([*lines, *(["        True"] if first else []), "    )"]) + "\n"


def expression(code: str) -> str | None:
    """Returns the part of a guard's text that is a Python expression on one line, or None."""
    text = " ".join(code.partition("  #")[0].split())
    for end in ("", ", type=", " against "):
        part = text.partition(end)[0] if end else text
        try:
            ast.parse(part, mode="eval")
        except SyntaxError:
            continue
        return f"({part})" if " or " in part or " if " in part or "lambda" in part else part
    return None


# ---------------------------------------------------------------- decompiled code


def decompiled(compiled: Any, index: int = 0) -> types.FunctionType:
    """Returns a function made from the decompiled code of one compile; it checks no guards.

    Its text is in ``__source__``.  It calls the same graphs and resume functions as the compiled code.

    Args:
        compiled: what `compiler_core.compile` or ``torch.compile`` returned, after its first call.
        index: which compile, the oldest first.

    Raises:
        UsageError: there is no such compile, or its code has an instruction without Python text.

    Example::

        print(compiler_core.decompiled(compiled).__source__)
    """
    root = _root(compiled)
    if is_compiled(root):
        fn, codes = root.__wrapped__, [each.replacement for each in region_of(root).installed()]
    else:
        fn = cached_compiles.python_function(compiled)
        codes = [entry.code for entry in reversed(cache_entries(fn.__code__))]
    if not codes:
        raise UsageError(f"{fn.__name__} has no compile: it was not called, or the compiler left it to Python")
    if not 0 <= index < len(codes):
        raise UsageError(f"{fn.__name__} has {len(codes)} compiles, the first is 0")
    return function_from(codes[index], fn)


def function_from(code: types.CodeType, fn: types.FunctionType) -> types.FunctionType:
    """Returns a function made from the decompiled text of `code`, with the globals, cells and defaults of `fn`.

    Raises:
        UsageError: the code has an instruction without Python text.
    """
    try:
        text, constants = runnable_text(code)
    except ValueError as error:
        raise UsageError(str(error)) from None
    name = code.co_name if code.co_name.isidentifier() else "function"
    constants |= _hidden_builtins(text, code, fn)
    around = (
        f"def around({', '.join([*constants, *code.co_freevars])}):\n{textwrap.indent(text, '    ')}    return {name}\n"
    )
    namespace: dict[str, Any] = {}
    try:
        exec(compile(around, f"<decompiled {name}>", "exec"), namespace)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise UsageError(f"{name} cannot be decompiled: a value in `{line}` has no Python text") from None
    outer = types.FunctionType(namespace["around"].__code__, fn.__globals__)
    made: types.FunctionType = outer(*constants.values(), *(None for _ in code.co_freevars))
    cells = dict(zip(made.__code__.co_freevars, made.__closure__ or (), strict=True))
    cells |= {
        key: cell for key, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True) if key in cells
    }
    closure = tuple(cells[key] for key in made.__code__.co_freevars)
    named = _with_qualified_name(made.__code__, made.__code__.co_qualname, code.co_qualname)
    made = types.FunctionType(named, fn.__globals__, name, fn.__defaults__, closure)
    made.__kwdefaults__ = fn.__kwdefaults__
    made.__source__ = text  # type: ignore[attr-defined]
    return made


def _hidden_builtins(text: str, code: types.CodeType, fn: types.FunctionType) -> dict[str, Any]:
    """Returns the builtins that the text calls where a global variable of the function has their name.

    Raises:
        UsageError: the code reads that variable, too.
    """
    hidden = called_builtins(text.splitlines()[1:]).intersection(fn.__globals__)
    if read := hidden & all_names(code):
        raise UsageError(f"{code.co_name} cannot be decompiled: a global variable hides the builtin {min(read)}")
    return {name: getattr(builtins, name) for name in hidden}


def _with_qualified_name(code: types.CodeType, old: str, new: str) -> types.CodeType:
    """Returns the code with `new` in the place of `old` where its qualified name and those nested in it begin."""
    constants = tuple(
        _with_qualified_name(each, old, new) if isinstance(each, types.CodeType) else each for each in code.co_consts
    )
    is_inside = code.co_qualname == old or code.co_qualname.startswith(f"{old}.")
    name = new + code.co_qualname[len(old) :] if is_inside else code.co_qualname
    return code.replace(co_consts=constants, co_qualname=name)
