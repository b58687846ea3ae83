"""A launch of a Triton kernel in Triton's interpreter that notes every access to memory.

Operands stand apart in one block of memory, in which everything else is NaN.  Before a load or store runs, the
addresses that its mask leaves are compared with where the operands are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

GAP = 1 << 16
"""The bytes before, between and behind operands."""


@dataclass(frozen=True)
class _Operand:
    name: str
    tensor: Any
    element_size: int

    @property
    def start(self) -> int:
        return int(self.tensor.data_ptr())

    @property
    def end(self) -> int:
        return self.start + int(self.tensor.nbytes)

    def distance(self, address: int) -> int:
        return max(self.start - address, address + self.element_size - self.end, 0)

    def place(self, address: int) -> str:
        index = (address - self.start) // self.element_size
        where = "" if self.distance(address) == 0 else ", before its start" if index < 0 else ", past its end"
        return f"{self.name}[{index}]{where}"


@dataclass
class _Accesses:
    """What a launch read and wrote: its faults, and which instance wrote each element."""

    operands: list[_Operand]
    memory: tuple[int, int]
    faults: list[str] = field(default_factory=list)
    writers: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def note(self, verb: str, addresses: Any, mask: Any, instance: tuple[int, ...]) -> None:
        for address in map(int, addresses[mask].flat):
            operand = min(self.operands, key=lambda each: each.distance(address))
            if operand.distance(address):
                self.faults.append(f"{verb} {operand.place(address)}")
                if not self.memory[0] <= address < self.memory[1]:
                    raise IndexError(self.faults[-1])  # the access would end the process
            elif verb == "stores":
                first = self.writers.setdefault(address, instance)
                if first != instance:
                    self.faults.append(f"stores {operand.place(address)} in two instances")


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> dict[str, Any]:
    """Runs a kernel on copies of its tensors; returns these by the names of its parameters, and `faults`.

    A fault is an access outside of the operands, or a store of an element that another instance has stored, too.  An
    argument that is a shape (`torch.Size`) is a tensor of float32 that only the kernel writes: it starts as NaN.
    """
    import torch

    names = kernel.arg_names
    given = {
        name: torch.full(value, torch.nan) if isinstance(value, torch.Size) else value
        for name, value in zip(names, arguments, strict=False)
    }
    tensors = {name: value.contiguous() for name, value in given.items() if isinstance(value, torch.Tensor)}
    memory = torch.full((GAP + sum(each.nbytes + 2 * GAP for each in tensors.values()),), 0xFF, dtype=torch.uint8)
    operands, at = [], GAP
    for name, tensor in tensors.items():
        copy = memory[at : at + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
        operands.append(_Operand(name, copy, tensor.element_size()))
        at += -(-tensor.nbytes // GAP) * GAP + GAP
    copies = {operand.name: operand.tensor for operand in operands}
    accesses = _Accesses(operands, (memory.data_ptr(), memory.data_ptr() + memory.nbytes))
    with _watched(accesses):
        kernel[grid](*({**given, **copies}.values()), **constants)
    results = {name: tensor.clone() for name, tensor in copies.items()}
    return results | {"faults": list(dict.fromkeys(accesses.faults))}


@contextlib.contextmanager
def _watched(accesses: _Accesses) -> Iterator[None]:
    """Notes the accesses of the kernels that Triton's interpreter runs: all of them are made by these two methods."""
    from triton.runtime.interpreter import interpreter_builder as builder

    load, store = builder.create_masked_load, builder.create_masked_store

    def watched_load(pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        accesses.note("loads", pointers.data, mask.data, builder.grid_idx)
        loaded = load(pointers, mask, other, *rest)
        if other is None and loaded.data.dtype.kind == "f":
            loaded.data[~mask.data] = float("nan")  # the interpreter has 0 there, a GPU any value
        return loaded

    def watched_store(pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        accesses.note("stores", pointers.data, mask.data, builder.grid_idx)
        return store(pointers, value, mask, *rest)

    builder.create_masked_load, builder.create_masked_store = watched_load, watched_store
    try:
        yield
    finally:
        del builder.create_masked_load, builder.create_masked_store  # the methods of the class again
