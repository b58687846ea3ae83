"""Where a capture that met a graph break stops, so that the graph before the break is kept.

The active frames are the one that is compiled and those of the calls that were inlined into it.  The best place to stop
is the very instruction that broke the graph, in the innermost frame: Python runs that instruction, and each frame
continues in a resume function.  If that is impossible, the call that led to the instruction is run as a whole, one
frame further out.  A loop cannot be split: Python runs a loop with a break inside from its start to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler_core.bytecode import Instruction
from compiler_core.capture.interpreter import Interpreter, StopPoint
from compiler_core.capture.values.base import ObservedException, Value
from compiler_core.capture.values.user.generators import GeneratorValue
from compiler_core.errors import Unsupported
from compiler_core.resume.resume_functions import JUMP_CONDITIONS, JUMP_OR_POP_CONDITIONS

MAX_DEPTH = 8
NEEDS_FRAME = frozenset({
    "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "DELETE_FAST", "LOAD_DEREF",
    "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_CLOSURE", "COPY", "SWAP",
    "YIELD_VALUE", "GET_AWAITABLE", "RETURN_VALUE", "RETURN_CONST",
})  # fmt: skip
"""Instructions on locals, cells and the stack itself.  They need the whole frame, so the resume function runs them."""


@dataclass(frozen=True)
class BreakPoint:
    """Stop before step `step` of the frame that is `level` calls deep.

    If `runs_instruction`, generated code runs the instruction there and a resume function continues after it; otherwise
    a resume function continues at the instruction itself.
    """

    level: int
    step: int
    runs_instruction: bool


@dataclass(frozen=True)
class StoppedCapture:
    """A capture that has stopped: the active frames, outermost first, and whether generated code runs the next
    instruction of the innermost one (see `BreakPoint`)."""

    frames: list[Interpreter]
    runs_instruction: bool


def active_frames(innermost: Interpreter) -> list[Interpreter]:
    """Returns the active frames, outermost first."""
    found = [innermost]
    while (parent := found[-1].parent) is not None:
        found.append(parent)
    return found[::-1]


def break_points_for(innermost: Interpreter, why: Unsupported) -> list[BreakPoint]:
    """Returns where capture may stop after `why` was raised, the best place first."""
    found: list[BreakPoint] = []
    if innermost.capture.open_generators and _drops_suspended_generator(innermost):
        return []
    frames = active_frames(innermost)
    for level, tx in enumerate(frames):
        mark = tx.stop_point
        if unfinished := [*tx.capture.open_generators.values(), *tx.capture.pending_works.values()]:
            # a real generator or collective continues after the break, so Python must start it
            mark = min(unfinished, key=lambda m: m.step)
        elif tx is innermost and isinstance(why, ObservedException) and why.exception in tx.raised_at:
            mark = tx.raised_at[why.exception]
        found = [*_break_points_at(level, tx, mark), *found]
        if mark.at != tx.pc - 1 or mark.in_loop or not _can_have_resume_function(frames, level + 1):
            break
    return found


def _drops_suspended_generator(innermost: Interpreter) -> bool:
    """Returns whether the program has dropped a generator that is suspended inside a try or with block.

    Python leaves that block at once.  A resume function would leave it later, because its caller holds the arguments
    until it returns.
    """
    frames = active_frames(innermost)
    work = [v for tx in frames for v in _frame_values(tx)] + innermost.capture.effects.values()
    found: set[int] = set()
    while work:
        value = work.pop()
        if id(value) not in found:
            found.add(id(value))
            work += [*value.children(), *(_frame_values(value.body) if isinstance(value, GeneratorValue) else ())]
    return any(id(generator) not in found for generator in innermost.capture.open_generators)


def _frame_values(tx: Interpreter) -> list[Value]:
    return [*tx.stack, *tx.locals.values(), *tx.cells.values()]


def _break_points_at(level: int, tx: Interpreter, mark: StopPoint) -> Iterator[BreakPoint]:
    """Yields the break point at `mark` and, if the state there has a value that cannot be reconstructed, the one before
    the first such value was made."""
    marks = [mark, *tx.raised_at.values(), *([tx.generator_made_at] if tx.generator_made_at else [])]
    for each in dict.fromkeys([mark, min(marks, key=lambda m: m.step)]):
        run = not each.in_loop and can_run_alone(tx.instructions[each.at])
        if run or level == 0:
            yield BreakPoint(level, each.step, run)


def _can_have_resume_function(frames: list[Interpreter], level: int) -> bool:
    """Returns whether the frame at this level can continue in a resume function.

    In a recursion it cannot, since there would be one resume function for each round.  What the top level of a script
    calls is compiled as a separate frame, because users look for it there.
    """
    if frames[0].code.co_name == "<module>" or level >= len(frames) or level > MAX_DEPTH:
        return False
    if not frames[level].is_resumable or frames[level].returned is not None:
        return False
    functions = {(f.code.co_filename, f.code.co_firstlineno, f.code.co_name) for f in frames[: level + 1]}
    return len(functions) == level + 1


def can_run_alone(instruction: Instruction) -> bool:
    """Returns whether generated code can run the instruction outside its frame, given its operands from the stack."""
    name = instruction.opname
    if name == "RERAISE":
        return instruction.handler is None
    if instruction.target is not None:
        return name in JUMP_CONDITIONS or name in JUMP_OR_POP_CONDITIONS
    return name not in NEEDS_FRAME
