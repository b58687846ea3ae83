"""Prints values of a program as Python: arguments, results, views, allocations, and the names of globals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from compiler_core.codegen.wrapper.executable import LARGE_BYTES, NAMES
from compiler_core.codegen.wrapper.memory_plan import views
from compiler_core.loops import ir
from compiler_core.support import opaque_ops
from compiler_core.support.size_expr import Int, Real, Size, symbols_in
from compiler_core.support.texts import unused_name
from compiler_core.torch_private import OpOverload


class NameScope:
    """The global names of a wrapper's source.

    `globals` are the objects that the source names besides `NAMES`: constants and operators of the graph.
    """

    def __init__(self, program: ir.Program) -> None:
        self._node_names = {*program.buffers, *(s.name for s in program.steps if isinstance(s, ir.Call))}
        self.globals: dict[str, Any] = {}
        self.retained = self.unique(f"{program.name}_kept")
        """The name of the list of buffers that a run leaves for the next one."""

    def unique(self, name: str) -> str:
        """Returns `name`, with underscores appended if a node of the graph has it."""
        return unused_name(name, self._node_names)

    def add(self, value: Any, name: str) -> str:
        """Returns the name of a global for `value`, similar to `name`, and adds it to `globals`."""
        name = name if name.isidentifier() else "constant"
        while self._is_taken(name, value):
            name += "_"
        self.globals[name] = value
        return name

    def _is_taken(self, name: str, value: Any) -> bool:
        if name in self._node_names or name in NAMES or name == self.retained:
            return True
        return self.globals.get(name, value) is not value


class ValuePrinter:
    """Prints the values of one program."""

    def __init__(self, program: ir.Program, names: NameScope) -> None:
        self._program, self._names = program, names
        self.symbols: set[str] = set()
        """The symbols that the printed values use."""
        found = {b.device for b in program.buffers.values() if b.device.type == "cuda"}
        self.device = found.pop() if len(found) == 1 and None not in {d.index for d in found} else None
        self._uses_in_results = Counter(view.buffer for view in views(program.results))
        self.uses_dispatcher = any(isinstance(s, ir.Call) or program.language(s) == "triton" for s in program.steps)
        """Whether the source calls PyTorch functions that autograd would record."""

    def number(self, value: Int | Real | tuple[Int, ...]) -> str:
        """Returns a number or a tuple of numbers; its symbols are added to `symbols`."""
        self.symbols.update(symbols_in(value))
        return repr(value)

    def argument(self, value: Any) -> str:
        """Returns an argument of a call, which may contain views and results."""
        if isinstance(value, ir.TensorView):
            if value.whole(self._program.buffers[value.buffer]):
                return value.buffer
            return self.window(value.buffer, value.size, value.stride, value.offset)
        if isinstance(value, ir.Result):
            return value.name
        if isinstance(value, (list, tuple)):
            inner = map(self.argument, value)
            return f"[{', '.join(inner)}]" if isinstance(value, list) else tuple_text(inner)
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.argument, (value.start, value.stop, value.step)))})"
        return self.plain(value)

    def window(self, buffer: str, size: tuple[Int, ...], stride: tuple[Int, ...], offset: Int) -> str:
        """Returns a tensor of another size and stride on the memory of a buffer."""
        self.uses_dispatcher = True
        numbers = ", ".join(map(self.number, (size, stride, offset)))
        return f"{self._names.unique('window')}({buffer}, {numbers})"

    def result(self, result: Any) -> str:
        """Returns a result of the function; a view of memory that is also used elsewhere is a true view, which shares
        its version counter."""
        if not isinstance(result, ir.TensorView):
            return self.argument(result)
        buffer = self._program.buffers[result.buffer]
        is_only_one = buffer.kind == "loops" and self._uses_in_results[buffer.name] == 1
        if is_only_one or result.whole(buffer):
            return self.argument(result)
        self.uses_dispatcher = True
        offset = f"{result.buffer}.storage_offset() + {self.number(result.offset)}"
        return f"{result.buffer}.as_strided({self.number(result.size)}, {self.number(result.stride)}, {offset})"

    def empty(self, buffer: ir.Buffer) -> str:
        """Returns the allocation of a buffer."""
        size, stride = self.number(buffer.size), self.number(buffer.stride)
        if buffer.device.type == "cpu":
            function = "empty_large" if buffer.bytes >= LARGE_BYTES else "empty"
            return f"{self._names.unique(function)}({size}, {stride}, {self.dtype(buffer.dtype)})"
        if buffer.device == self.device:
            return f"{self._names.unique('empty_cuda')}({size}, {stride}, {self.dtype(buffer.dtype)})"
        where = f"dtype={buffer.dtype}, device={str(buffer.device)!r}"
        return f"{self._names.unique('torch')}.empty_strided({size}, {stride}, {where})"

    def dtype(self, dtype: torch.dtype) -> str:
        """Returns a dtype, by its short name if it has one."""
        if dtype in ir.SHORT and dtype is not torch.bool:
            return self._names.unique(ir.SHORT[dtype])
        return f"{self._names.unique('torch')}.{str(dtype).removeprefix('torch.')}"

    def plain(self, value: Any) -> str:
        """Returns a constant: a literal, or the name of a global."""
        if isinstance(value, (Size, Real)):
            return self.number(value)
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if abs(value) < float("inf") else f"float('{value}')"
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value).replace("torch", self._names.unique("torch"), 1)
        if isinstance(value, torch.device):
            return f"{self._names.unique('torch')}.device({str(value)!r})"
        return self._names.add(value, getattr(value, "__name__", "constant"))

    def operator(self, value: Any) -> str:
        """Returns an opaque operator."""
        return f"{self._names.unique('torch')}.ops.{value}" if isinstance(value, OpOverload) else self.plain(value)

    def target(self, target: Any) -> str:
        """Returns the name of a called function."""
        name = getattr(target, "__name__", "")
        if name in opaque_ops.NAMES and opaque_ops.NAMES[name] is target:
            return self._names.unique(name)
        if isinstance(target, OpOverload):
            name = str(target).replace("::", "_").replace(".", "_").removesuffix("_default")
        else:
            name = getattr(target, "__name__", type(target).__name__)
        return self._names.add(target, name)


def tuple_text(parts: Iterable[str]) -> str:
    """Returns Python source of a tuple of the expressions `parts`."""
    items = list(parts)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
