"""Floats that change from call to call, such as a learning rate, as elements of a tensor on the GPU.

A recorded launch contains its arguments.  So a program whose launches are replayed (`backends/cuda_graphs.py`) has no
number among its inputs: they are elements of one tensor, the last input, which is written before each replay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from compiler_core.loops import ir
from compiler_core.support.size_expr import symbols_in

NAME = "numbers"


@dataclass(frozen=True)
class NumbersInput:
    """How the inputs of the program are made from those of the graph."""

    tensors: list[int]
    """The graph's inputs that are tensors, by their numbers."""
    source: str
    """A function ``numbers(inputs)`` as Python, which returns the numbers."""
    device: str


def numbers_in_memory(program: ir.Program) -> tuple[ir.Program, NumbersInput | None]:
    """Returns a program that reads the floats among its inputs from a tensor, and how that is made.

    The program itself and None are returned if it has no such inputs, or is not for one GPU alone.
    """
    names = list(dict.fromkeys(n for s in program.steps if isinstance(s, ir.Loops) for n in s.scalars))
    devices = {buffer.device for buffer in program.buffers.values()}
    if not names or len(devices) != 1 or not _are_all(program, names) or NAME in program.buffers:
        return program, None
    (device,) = devices
    if device.type != "cuda":
        return program, None
    numbers = ir.Buffer(NAME, torch.float64, (len(names),), (1,), device, "input")
    at = {name: i for i, name in enumerate(names)}
    steps = [_with_loads(s, at) if isinstance(s, ir.Loops) else s for s in program.steps]
    tensors = [i for i, name in enumerate(program.inputs) if name in program.buffers]
    changed = replace(
        program,
        buffers=program.buffers | {NAME: numbers},
        inputs=(*(program.inputs[i] for i in tensors), NAME),
        steps=tuple(steps),
        symbols={},
        numbers={},
    )
    return changed, NumbersInput(tensors, _source(program, names), str(device))


def _are_all(program: ir.Program, names: list[str]) -> bool:
    """Whether only the arguments `names` of kernels depend on numbers."""
    loops = [s for s in program.steps if isinstance(s, ir.Loops)]
    calls = [s for s in program.steps if isinstance(s, ir.Call)]
    draws = {name for call in calls for name in call.draws}
    if any(s.symbols for s in loops) or not draws.isdisjoint(names):
        return False
    used = [program.results, *((call.args, tuple(call.kwargs.values())) for call in calls)]
    sizes = [(buffer.size, buffer.stride) for buffer in program.buffers.values()]
    return not any(symbols_in([*used, *sizes])) and not any(isinstance(n, int) for n in program.numbers.values())


def _with_loads(loops: ir.Loops, at: dict[str, int]) -> ir.Loops:
    def load(scalar: ir.Scalar) -> ir.Load:
        address = ir.Address((0,) * len(loops.space), at[scalar.number.name])
        return ir.Load(scalar.name, scalar.dtype, NAME, address, scalar.origin)

    return replace(loops, body=tuple(load(s) if isinstance(s, ir.Scalar) else s for s in loops.body))


def _source(program: ir.Program, names: list[str]) -> str:
    unpacked = f"{', '.join(program.inputs)}, = inputs"
    body = [unpacked, *program.definitions(set(names)), f"return [{', '.join(names)}]"]
    return "\n    ".join(["def numbers(inputs):", *body])
