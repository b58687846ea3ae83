"""Texts: of the user's objects, unused names, copies of syntax trees, and generated source that tracebacks find."""

from __future__ import annotations

import ast
import enum
import fractions
import linecache
import pathlib
import types
import uuid
import weakref
from collections.abc import Container
from typing import Any, TypeVar

Tree = TypeVar("Tree", bound=ast.AST)


def safe_repr(obj: Any) -> str:
    """Returns ``repr(obj)`` if that runs no Python code, which may be the user's; else the object's type in angle
    brackets."""
    if isinstance(obj, enum.Enum):
        return f"{type(obj).__qualname__}.{getattr(obj, '_name_', None)}"
    brackets = _BRACKETS.get(type(obj))
    if brackets is not None:
        opening, closing = brackets
        items = ", ".join(map(safe_repr, obj))
        comma = "," if type(obj) is tuple and len(obj) == 1 else ""
        return f"{opening}{items}{comma}{closing}"
    names = ("__repr__", "__iter__") if isinstance(obj, (set, frozenset)) else ("__repr__",)  # of a set iterates
    is_in_python = any(isinstance(getattr(type(obj), name, None), types.FunctionType) for name in names)
    if is_in_python and type(obj) not in _OF_LIBRARY:
        return f"<{type(obj).__qualname__}>"
    return repr(obj)


_OF_LIBRARY = frozenset({
    fractions.Fraction, uuid.UUID, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath,
    pathlib.WindowsPath,
})  # fmt: skip
"""Types of constants whose ``__repr__`` is code of Python's library, and calls none of the user's."""
_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), frozenset: ("frozenset([", "])")}


def unused_name(name: str, taken: Container[str]) -> str:
    """Returns `name`, with as many underscores appended as it takes to differ from all names in `taken`."""
    while name in taken:
        name += "_"
    return name


def copied_tree(tree: Tree) -> Tree:
    """Returns a copy of a syntax tree: its fields and its places in the text.

    `copy.deepcopy` would copy what else nodes have, too.  Once IPython has printed a traceback, each node of the files
    in it has its parent, also ``Load()``, of which there is one in a process: any tree has it, and with it such a file.
    """

    def copied(value: Any) -> Any:
        if isinstance(value, ast.AST):
            fields = {name: copied(field) for name, field in ast.iter_fields(value)}
            return ast.copy_location(type(value)(**fields), value)
        return [copied(each) for each in value] if isinstance(value, list) else value

    result: Tree = copied(tree)
    return result


def keep_source(owner: object, filename: str, text: str) -> None:
    """Lets tracebacks and `inspect` find the source of generated code, until `owner` is freed."""
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    weakref.finalize(owner, linecache.cache.pop, filename, None).atexit = False
