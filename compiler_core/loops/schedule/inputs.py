"""How kernels read and write the inputs of a program: updates in place, gradients that may be absent, and floats that
change from call to call.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from compiler_core.loops import ir
from compiler_core.loops.lower.scattering import replace_buffer
from compiler_core.support.operators import Fact, facts
from compiler_core.support.size_expr import are_dense, symbols_in
from compiler_core.torch_private import OpOverload

# ---------------------------------------------------------------- updates in place


def update_in_place(program: ir.Program) -> ir.Program:
    """Writes new values of inputs, such as a parameter's after an optimizer's step, to the inputs themselves.

    In a functional graph an update makes a new tensor, which the caller copies into the input.  The loops write to the
    input where each element's new value depends on no other element of it, and nothing reads the old value later:

    >>> in_place("aten.mul(x, 2)", x="f32[8]")
    forward_0: for i0 < 8:
        v0: f32 = load x[i0]
        mul: f32 = mul(v0, 2.0)
        store x[i0] = mul

    The loops move behind the last step that reads the old value.  No step that may raise an error follows.
    """
    if not program.is_alone:
        return program
    for name in [s.name for s in program.steps if isinstance(s, ir.Loops)]:
        loops = next(s for s in program.steps if isinstance(s, ir.Loops) and s.name == name)
        made = {new: program.new_values[new] for new in loops.makes if new in program.new_values}
        updates = {new: old for new, old in made.items() if _is_elementwise(program, loops, new, old)}
        if updates:
            program = _updated(program, loops, updates)
    return program


def _is_elementwise(program: ir.Program, loops: ir.Loops, new: str, old: str) -> bool:
    """Whether the loops write each element of `new` once, and read no other element of `old` for it."""
    made, given = program.buffers[new], program.buffers[old]
    if (made.size, made.stride, made.dtype, made.device) != (given.size, given.stride, given.dtype, given.device):
        return False
    returned = [r.buffer for r in program.results if isinstance(r, ir.TensorView)]
    if old in returned or returned.count(new) != 1 or not are_dense(given.size, given.stride):
        return False
    return sum(new in s.writes for s in program.steps) == 1 and may_overwrite(loops, new, old)


def may_overwrite(loops: ir.Loops, new: str, old: str) -> bool:
    """Whether the loops can write `new` where they read `old`, which has the same elements in the same order.

    They write each element once, and read no other element of `old` for it.
    """
    accesses = [s for s in loops.body if isinstance(s, ir.Load | ir.Store) and s.buffer in (new, old)]
    stores = [s for s in accesses if isinstance(s, ir.Store)]
    if len(stores) != 1 or stores[0].reduction or stores[0].mode != "=":
        return False
    alike = all(s.address == stores[0].address and not getattr(s, "within", ()) for s in accesses)
    return alike and accesses[-1] is stores[0] and not _is_read_again(loops, stores[0], old)


def _is_read_again(loops: ir.Loops, store: ir.Store, old: str) -> bool:
    """Whether a sweep after that of the store loads from `old`, as one does that computes a value again."""
    sweeps = [[*sweep.outer, *sweep.inner, *sweep.recomputed] for sweep in ir.sweeps(loops)]
    at = next(i for i, statements in enumerate(sweeps) if store in statements)
    return any(isinstance(s, ir.Load) and s.buffer == old for later in sweeps[at + 1 :] for s in later)


def _updated(program: ir.Program, loops: ir.Loops, updates: Mapping[str, str]) -> ir.Program:
    """Returns the program in which these loops write to inputs; `program` itself if they cannot."""
    steps = list(program.steps)
    at = steps.index(loops)
    readers = [i for i, s in enumerate(steps) if s is not loops and not set(updates.values()).isdisjoint(s.reads)]
    behind = max([at, *readers]) + 1
    passed, rest = steps[at + 1 : behind], steps[behind:]
    if any(_depend(loops, s) for s in passed) or any(_may_fail(program, s) for s in (loops, *rest)):
        return program
    program = program.with_steps([*steps[:at], *passed, loops, *rest])
    for new, old in updates.items():
        program = replace_buffer(program, new, old)
    return program


def _depend(loops: ir.Loops, passed: ir.Step) -> bool:
    """Whether the loops cannot move behind a step: it needs what they write, or writes to an input that they read."""
    is_barrier = isinstance(passed, ir.Call) and passed.barrier
    needs = not set(loops.writes).isdisjoint(passed.needs)
    return is_barrier or needs or not set(loops.reads).isdisjoint(passed.writes)


def _may_fail(program: ir.Program, step: ir.Step) -> bool:
    """Whether a step may raise an error for some values: eager PyTorch has then made no update that comes later, and
    the graph may run again."""
    if isinstance(step, ir.Loops):
        return step.may_fail and program.language(step) == "cpp"
    if not isinstance(step.target, OpOverload):
        return step.target is not operator.getitem
    on_cpu = step.name not in program.buffers or program.buffers[step.name].device.type == "cpu"
    checks = _CHECKS if on_cpu else Fact.CHECKS_ON_REQUEST  # a GPU's kernels do not raise
    return step.target.namespace != "aten" or bool(facts(step.target) & checks)


_CHECKS = Fact.CHECKS_VALUES | Fact.CHECKS_ON_REQUEST | Fact.DIVIDES


# ---------------------------------------------------------------- gradients that may be absent


def read_if_given(program: ir.Program) -> ir.Program:
    """Makes loads of `tangents_2`, an input of a backward, depend on the flag `given_2`.

        v0: f32 = load tangents_2[i0]    ->    v0: f32 = load tangents_2[i0] if given_2

    So an absent gradient needs no zeros.  Tangents stay as they are if one of PyTorch's operators takes them, if a
    result is in their memory, or if the loops that read them become C++.
    """
    needed = {result.buffer for result in program.results if isinstance(result, ir.TensorView)}
    for step in program.steps:
        is_triton = isinstance(step, ir.Loops) and program.language(step) == "triton"
        needed.update(step.writes if is_triton else step.reads)
    tangents = {name for name in program.inputs if name.startswith("tangents")} - needed
    flags = {name: flag for name in tangents if (flag := name.replace("tangents", "given")) in program.inputs}
    steps: list[ir.Step] = []
    for step in program.steps:
        if isinstance(step, ir.Loops) and not flags.keys().isdisjoint(step.reads):
            body = [replace(s, given=flags.get(s.buffer, "")) if isinstance(s, ir.Load) else s for s in step.body]
            step = replace(step, body=tuple(body))
        steps.append(step)
    return program.with_steps(steps)


# ---------------------------------------------------------------- floats that change from call to call
#
# A recorded launch contains its arguments.  So a program whose launches are replayed (`backends/cuda_graphs.py`) has no
# number among its inputs: they are elements of one tensor on the GPU, the last input, which is written before each
# replay.

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
