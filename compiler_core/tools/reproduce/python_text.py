"""Writes functions, modules and values as Python text that a file can have on its own."""

from __future__ import annotations

import ast
import dataclasses
import dis
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from compiler_core.errors import UsageError
from compiler_core.hook.skip_rules import is_library_file
from compiler_core.tools.example_inputs import random_tensor
from compiler_core.tools.reproduce.values import number_text, tensor_text

HELPERS = ("random_tensor", "make_module")
"""Functions that texts may call."""


class PythonText:
    """Texts of values, and the definitions and imports that these texts need.

    Args:
        exact: write small tensors with their values; otherwise as random ones of the same shape and type.
    """

    def __init__(self, exact: bool = False) -> None:
        self._exact = exact
        self._unfinished: set[str] = set()
        """The functions and classes whose definitions are being written."""
        self._definitions: dict[str, str] = {"torch": "import torch"}

    def definitions(self) -> list[str]:
        """Returns imports, functions, classes and variables, each after those that it needs to be defined."""
        imports = [text for text in self._definitions.values() if text.startswith(("import ", "from "))]
        return [*imports, *(text for text in self._definitions.values() if text not in imports)]

    def name_of(self, fn: Callable[..., Any]) -> str:
        """Returns a name for a callable, and defines it.

        Raises:
            UsageError: it, or something that it needs, has no Python text.
        """
        if isinstance(fn, (types.FunctionType, type)):
            return self._define(fn)
        self._definitions["program"] = f"program = {self.value(fn)}"
        return "program"

    def value(self, value: Any) -> str:
        """Returns an expression for a value.

        Raises:
            UsageError: it has no Python text.
        """
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.nn.Module):
            return self._module(value)
        if isinstance(value, types.MethodType):
            return f"{self.value(value.__self__)}.{value.__name__}"
        if isinstance(value, (types.FunctionType, type)):
            return self._define(value)
        if type(value) in (list, tuple):
            inside = ", ".join(map(self.value, value))
            comma = "," if len(value) == 1 and type(value) is tuple else ""
            return f"[{inside}]" if type(value) is list else f"({inside}{comma})"
        if dataclasses.is_dataclass(value) and all(field.init for field in dataclasses.fields(value)):
            fields = [f"{each.name}={self.value(getattr(value, each.name))}" for each in dataclasses.fields(value)]
            return f"{self._define(type(value))}({', '.join(fields)})"
        if type(value) is dict:
            return "{" + ", ".join(f"{self.value(key)}: {self.value(each)}" for key, each in value.items()) + "}"
        if isinstance(value, (bool, int, float, str, bytes, complex, types.NoneType, types.EllipsisType)):
            return number_text(value)
        if isinstance(value, (torch.dtype, torch.device)):
            return f"torch.device({str(value)!r})" if isinstance(value, torch.device) else str(value)
        raise UsageError(f"a {type(value).__name__} cannot be written as Python text")

    def _tensor(self, value: torch.Tensor) -> str:
        text = tensor_text(value, self._exact)
        if text.startswith("random_tensor("):
            self._definitions.setdefault("random_tensor", inspect.getsource(random_tensor))
        return text

    def _module(self, module: torch.nn.Module) -> str:
        """Returns an expression for a module: of PyTorch by its constructor, of the user with its attributes."""
        cls = type(module)
        if cls.__module__.startswith("torch.nn") and not module._modules:
            return f"torch.nn.{module!r}" + ("" if module.training else ".eval()")
        if cls in (torch.nn.Sequential, torch.nn.ModuleList):
            inside = ", ".join(map(self.value, module.children()))
            return f"torch.nn.{cls.__name__}({inside if cls is torch.nn.Sequential else f'[{inside}]'})"
        name = self._define(cls)
        self._definitions.setdefault("make_module", _MAKE_MODULE)
        attributes = {key: each for key, each in vars(module).items() if key not in vars(torch.nn.Module())}
        attributes |= module._parameters | module._buffers | module._modules
        texts = [name, *(f"{key}={self._attribute(each)}" for key, each in attributes.items())]
        return f"make_module({', '.join(texts)})"

    def _attribute(self, value: Any) -> str:
        text = self.value(value)
        return f"torch.nn.Parameter({text})" if isinstance(value, torch.nn.Parameter) else text

    def _define(self, thing: Any) -> str:
        """Defines a function or class, and all that it names; returns its name."""
        name: str = thing.__name__
        if _is_of_library(thing):
            module = "builtins" if thing.__module__ is None else thing.__module__
            if module != "builtins":
                self._definitions.setdefault(name, f"from {module} import {name}")
            return name
        if name in self._definitions or name in self._unfinished:  # a function may call itself
            return name
        try:
            text = textwrap.dedent(inspect.getsource(thing))
        except (OSError, TypeError):
            raise UsageError(f"the source of {name} is not known") from None
        if name == "<lambda>":
            raise UsageError("a lambda cannot be written to a file: name it with def")
        self._unfinished.add(name)
        needed = [*_names_around(thing, text), *(pair for each in _functions_of(thing) for pair in _names_used(each))]
        for used, value in needed:
            self._define_name(used, value)
        for base in getattr(thing, "__bases__", ()):
            if not _is_of_library(base):
                self._define(base)
        self._definitions[name] = text
        return name

    def _define_name(self, name: str, value: Any) -> None:
        if name in self._definitions:
            return
        if isinstance(value, types.ModuleType):
            plain = f"import {value.__name__}"
            self._definitions[name] = plain if value.__name__ == name else f"{plain} as {name}"
        elif _is_of_library(value) and hasattr(value, "__module__"):
            called = value.__name__ if value.__name__ == name else f"{value.__name__} as {name}"
            self._definitions[name] = f"from {value.__module__} import {called}"
        elif isinstance(value, (types.FunctionType, type)):
            defined = self._define(value)
            if defined != name:
                self._definitions[name] = f"{name} = {defined}"
        else:
            self._definitions[name] = f"{name} = {self.value(value)}"


_MAKE_MODULE = """\
def make_module(cls, **attributes):
    module = cls.__new__(cls)
    torch.nn.Module.__init__(module)
    for name, value in attributes.items():
        setattr(module, name, value)
    return module
"""


_OF_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")


def _is_of_library(thing: Any) -> bool:
    if not isinstance(thing, (type, types.FunctionType, types.BuiltinFunctionType)):
        return False
    if isinstance(thing, types.BuiltinFunctionType):
        return True
    module = sys.modules.get(thing.__module__ or "builtins")
    filename = getattr(module, "__file__", None)
    if module is None or module.__name__ == "__main__":
        return False
    return filename is None or is_library_file(filename)


def _functions_of(thing: Any) -> list[types.FunctionType]:
    if isinstance(thing, types.FunctionType):
        return [inspect.unwrap(thing)]
    functions = [each for each in vars(thing).values() if isinstance(each, types.FunctionType)]
    return [each for each in functions if not _is_generated(each.__code__.co_filename)]


def _is_generated(filename: str) -> bool:
    """Whether the code is what ``dataclasses`` writes for a class."""
    return filename == "<string>" or is_library_file(filename)


def _names_around(thing: Any, text: str) -> Iterator[tuple[str, Any]]:
    """Yields the globals that are read when a function or class is defined, with their values: those of decorators,
    defaults and annotations."""
    names = thing.__globals__ if isinstance(thing, types.FunctionType) else vars(sys.modules[thing.__module__])
    definition = ast.parse(text).body[0]
    if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    parts: list[ast.AST] = list(definition.decorator_list)
    for each in ast.walk(definition):
        parts += [each] if isinstance(each, (ast.arguments, ast.AnnAssign)) else []
    for part in parts:
        for name in ast.walk(part):
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and name.id in names:
                yield name.id, names[name.id]


def _names_used(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields the globals and the variables of outer functions that a function reads, with their values."""
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        if name != "__class__":
            yield name, cell.cell_contents
    codes = [fn.__code__]
    while codes:
        code = codes.pop()
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname in _OF_GLOBALS and instruction.argval in fn.__globals__:
                yield instruction.argval, fn.__globals__[instruction.argval]
