"""Random inputs like those that a program was captured with, and the function ``random_inputs`` of a wrapper's source.

The function also sets the program's constants, so that the source can be run without the original process.  Tensors
that contain positions are in range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from compiler_core.codegen.wrapper.values import NameScope, ValuePrinter
from compiler_core.loops import ir
from compiler_core.support import opaque_ops
from compiler_core.support.fx_graphs import constant_text
from compiler_core.support.fx_symbols import hint as symbols_hint
from compiler_core.support.size_expr import hint
from compiler_core.torch_private import OpOverload

INTEGER_DTYPES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


def random_tensor(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: str, below: int = 1
) -> torch.Tensor:
    """Returns a tensor of random numbers; integers are from 0 to `below` - 1."""
    extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else 0
    below = 2 if dtype is torch.bool else below
    memory = torch.randn(extent) if dtype.is_floating_point or dtype.is_complex else torch.randint(below, (extent,))
    return memory.to(dtype).to(device).as_strided(size, stride)


def index_bound(program: ir.Program, name: str) -> int:
    """Returns the exclusive upper bound of a buffer's integers, if loops use them as positions.

    Otherwise returns 1, so that they are 0, which is in range for PyTorch's kernels too.
    """
    sizes = [hint(p.size) for s in program.steps if isinstance(s, ir.Loops) for p in _positions(s, name)]
    return max(1, min(sizes, default=1))


def _positions(loops: ir.Loops, buffer: str) -> list[ir.Position]:
    """Returns the positions that depend on values loaded from `buffer`."""
    from_it: set[ir.Argument] = set()
    found = []
    for s in loops.body:
        if (isinstance(s, ir.Load) and s.buffer == buffer) or from_it.intersection(s.arguments):
            from_it.update(() if isinstance(s, ir.Store) else (s.name,))
            found += [s] if isinstance(s, ir.Position) else []
    return found


def example_inputs(program: ir.Program, names: NameScope, values: ValuePrinter) -> list[str]:
    """Returns the lines of the function ``random_inputs`` of a wrapper's source."""
    return _ExampleInputs(program, names, values).lines()


class _ExampleInputs:
    """Prints example inputs of one program."""

    def __init__(self, program: ir.Program, names: NameScope, values: ValuePrinter) -> None:
        self._program, self._names, self._values = program, names, values
        self._flags = {*program.optional.values()}
        self._packed: dict[str, Mapping[str, Any]] = {}
        """The arguments of operators on packed sequences, by the buffer of their batch sizes."""
        for call in (s for s in program.steps if isinstance(s, ir.Call)):
            operator = opaque_ops.opaque_operator(call)
            if isinstance(operator, OpOverload):
                arguments = opaque_ops.bind_arguments(operator, call.args[1])
                if isinstance(view := arguments.get("batch_sizes"), ir.TensorView):
                    self._packed[view.buffer] = arguments

    def lines(self) -> list[str]:
        """Returns the lines of the function."""
        program = self._program
        constants = sorted(program.constants.keys() & self._names.globals.keys())
        lines = ["", "", f"def {self._names.unique('random_inputs')}():"]
        if constants:
            lines.append(f"    global {', '.join(constants)}")
        for name in constants:
            lines.append(f"    {name} = {constant_text(program.constants[name]) or self._random_buffer(name)}")
        lines.append("    return [")
        lines += [f"        {self._input(name)},  # {name}" for name in program.inputs]
        return [*lines, "    ]"]

    def _input(self, name: str) -> str:
        program = self._program
        if name in program.tapes:
            return self._tape(program.tapes[name])
        if name in self._flags:  # kernels read what they read in a call with all gradients
            torch_, device = self._names.unique("torch"), program.buffers[name].device
            return f"{torch_}.tensor(True, device={str(device)!r})"
        if name in self._packed:
            return self._batch_sizes(self._packed[name])
        return self._random_buffer(name) if name in program.buffers else repr(program.numbers[name])

    def _random_buffer(self, name: str) -> str:
        buffer = self._program.buffers[name]
        size, stride = (tuple(map(hint, numbers)) for numbers in (buffer.size, buffer.stride))
        below = f", {index_bound(self._program, name)}" if buffer.dtype in INTEGER_DTYPES else ""
        return f"random_tensor({size}, {stride}, {self._values.dtype(buffer.dtype)}, {str(buffer.device)!r}{below})"

    def _batch_sizes(self, arguments: Mapping[str, Any]) -> str:
        """Returns batch sizes of a packed sequence that fit the operator's other arguments, each at most the one before
        and at most the size of the hidden state."""
        hidden = arguments["hx"][0] if isinstance(arguments["hx"], (list, tuple)) else arguments["hx"]
        rows, steps = _concrete_shape(arguments["data"])[0], _concrete_shape(arguments["batch_sizes"])[0]
        sizes: list[int] = []
        for left in range(steps, 0, -1):
            sizes.append(min(_concrete_shape(hidden)[1], rows - sum(sizes) - left + 1))
        return f"{self._names.unique('torch')}.tensor({sizes})"

    def _tape(self, tape: opaque_ops.FakeTape) -> str:
        """Returns a call that records a tape of the operator, on random tensors."""
        call = tape.call
        operator = self._values.operator(call.operator)
        arguments = self._tape_argument(call.args, tape)
        autocast = [tuple(each) for each in tape.autocast]
        return f"{self._names.unique('with_tape')}({operator}, {arguments}, {list(tape.wanted)}, {autocast})[-1]"

    def _tape_argument(self, value: Any, tape: opaque_ops.FakeTape) -> str:
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._tape_argument(each, tape) for each in value)}]"
        if not isinstance(value, torch.Tensor):
            return self._values.plain(value)
        if value is tape.call.arguments.get("batch_sizes"):
            return self._batch_sizes(tape.call.arguments)
        size, stride = (tuple(map(symbols_hint, numbers)) for numbers in (value.shape, value.stride()))
        return f"random_tensor({size}, {stride}, {self._values.dtype(value.dtype)}, {str(value.device)!r})"


def _concrete_shape(tensor: ir.TensorView | torch.Tensor) -> list[int]:
    """Returns a shape with the values that symbolic sizes had when the graph was captured."""
    return [hint(symbols_hint(n)) for n in (tensor.size if isinstance(tensor, ir.TensorView) else tensor.shape)]
