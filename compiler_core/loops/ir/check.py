"""The verifier of the loop IR: it checks the rules of the package's docstring."""

from __future__ import annotations

from collections.abc import Set

import torch

from compiler_core.errors import CompilerBug
from compiler_core.loops.ir.loops import Loops
from compiler_core.loops.ir.ops import COMPARISONS, OPS, REDUCTIONS, SCANS, SHORT
from compiler_core.loops.ir.program import Program
from compiler_core.loops.ir.statements import (
    Compute,
    Literal,
    Load,
    Position,
    Reduce,
    Scan,
    Statement,
    Store,
    addresses,
)


def check(loops: Loops) -> None:
    """Checks one loop nest.

    Raises:
        CompilerBug: a rule is broken; the message shows the body and marks the statement.
    """
    dtypes: dict[str, torch.dtype] = {}
    positions = {s.name for s in loops.body if isinstance(s, Position)}
    for at, statement in enumerate(loops.body):
        if problem := _statement_problem(loops, statement, dtypes, positions):
            lines = loops.text().splitlines()
            lines[at + 1] += f"    <-- {problem}"
            raise CompilerBug("loop IR: " + "\n".join([problem, *lines]))
        if not isinstance(statement, Store):
            dtypes[statement.name] = statement.dtype


def check_devices(program: Program) -> None:
    """Checks that the buffers of each kernel are on one device, for which there is a language.

    Raises:
        CompilerBug: they are not; the message lists the buffers with their devices.
    """
    for loops in (step for step in program.steps if isinstance(step, Loops)):
        where = {name: program.buffers[name].device for name in loops.arguments}
        devices = set(where.values())
        if len(devices) == 1 and devices.pop().type in program.languages:
            continue
        placed = ", ".join(f"{name} on {device}" for name, device in where.items())
        known = " and ".join(program.languages) or "no device"
        problem = f"the buffers of a kernel must be on one device, and this program has kernels for {known}: {placed}"
        raise CompilerBug(f"loop IR: {problem}\n{loops.text()}")


def _statement_problem(
    loops: Loops, statement: Statement, dtypes: dict[str, torch.dtype], positions: Set[str]
) -> str | None:
    """Returns what is wrong with `statement`, or None; `dtypes` has the values that are defined before it."""
    types = []
    for argument in statement.arguments:
        if isinstance(argument, str) and argument not in dtypes:
            return f"{argument} is used before it is defined"
        types.append(argument.dtype if isinstance(argument, Literal) else dtypes[argument])
    if not isinstance(statement, Store) and statement.name in dtypes:
        return f"{statement.name} is defined twice"
    for address in addresses(statement):
        if len(address.strides) != len(loops.space):
            return f"the address has {len(address.strides)} strides for {len(loops.space)} sizes"
        if any(name not in positions for name, _ in address.values):
            return "the address depends on a value that is not a position"
    if isinstance(statement, Load) and statement.buffer in loops.writes:
        return f"{statement.buffer} is both read and written"
    if isinstance(statement, Store) and statement.mode != "=" and loops.inner:
        return "a store that updates an existing buffer is in a loop nest without inner indices"
    if isinstance(statement, Store) and statement.value in loops.inner_names and not loops.is_inner(statement):
        return "an inner value is stored at the outer level"
    if isinstance(statement, Position):
        return None if types[0] is torch.int64 else "a position needs an i64 argument"
    if isinstance(statement, Store) and statement.reduction:
        return _column_store_problem(loops, statement)
    if isinstance(statement, Scan) and not loops.inner:
        return "a scan needs an inner index"
    if isinstance(statement, (Reduce, Scan)):
        if statement.op not in (SCANS if isinstance(statement, Scan) else REDUCTIONS):
            return f"unknown reduction {statement.op}; ir.REDUCTIONS and ir.SCANS have the known ones"
        return None if types == [statement.dtype] else "a reduction has the type of its value"
    return _compute_problem(statement, types) if isinstance(statement, Compute) else None


def _column_store_problem(loops: Loops, store: Store) -> str | None:
    """Checks a store over the last outer indices, whose kernel runs through the rows of a part in order."""
    sequential = len(loops.outer) - loops.sequential_rank
    if not 0 < sequential < len(loops.outer):
        return "a loop nest with a store over an index has outer indices of two kinds, for the part and for the row"
    if not all(store.address.strides[:sequential]):
        return "the address of a store over an index depends on the indices of the part, and on no others"
    return None


def _compute_problem(statement: Compute, types: list[torch.dtype]) -> str | None:
    op, dtype = statement.op, statement.dtype
    if op not in OPS:
        return f"unknown operation {op}; ir.OPS has the known ones"
    if len(types) != OPS[op].arity:
        return f"{op} takes {OPS[op].arity} arguments"
    if op == "cast":
        return None
    if op == "uniform" and dtype is not torch.float32:
        return "the result of uniform is f32"
    want = [torch.bool, dtype, dtype] if op == "where" else [types[0] if op in COMPARISONS else dtype] * len(types)
    if op == "uniform":
        want = [*[torch.int64] * 4, torch.int32]
    if op in COMPARISONS and dtype is not torch.bool:
        return f"the result of {op} is bool"
    if types == want:
        return None
    return f"argument types are {[SHORT[t] for t in types]}, must be {[SHORT[t] for t in want]}"
