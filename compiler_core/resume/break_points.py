"""Where a capture that met a break stops, so that the graph before it is kept.

The frames at work are the one that is compiled and those of the calls inlined into it.  The best
place is the very instruction that broke, in the innermost of them: it runs as it is, and each frame
goes on in a resume function.  Where that cannot be, the call that led there is run whole, one frame
further out.  A loop cannot be split: what is in one is left to Python, loop and all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler_core.bytecode import Instruction
from compiler_core.capture.interpreter import Interpreter, Mark
from compiler_core.capture.values.base import Raised, Value
from compiler_core.capture.values.user.generators import GeneratorValue
from compiler_core.errors import Unsupported
from compiler_core.resume.resume_functions import BRANCHES, OR_POP

MAX_LEVELS = 8
TOUCHES_FRAME = frozenset({
    "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "DELETE_FAST", "LOAD_DEREF",
    "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_CLOSURE", "COPY", "SWAP",
    "YIELD_VALUE", "GET_AWAITABLE", "RETURN_VALUE", "RETURN_CONST",
})  # fmt: skip
"""Instructions on locals, cells and the stack itself: they run where the whole frame is, in the resume function."""


@dataclass(frozen=True)
class Split:
    """Stop before step `step`, whose frame is `level` calls deep.  Its instruction then runs as it is (`run`), or a
    resume function goes on at it."""

    level: int
    step: int
    run: bool


@dataclass(frozen=True)
class Stopped:
    """A capture that has stopped: the frames at work, outermost first; of the innermost, whether its next
    instruction is to run as it is."""

    frames: list[Interpreter]
    run: bool


def at_work(innermost: Interpreter) -> list[Interpreter]:
    """The frames at work, outermost first."""
    found = [innermost]
    while (parent := found[-1].parent) is not None:
        found.append(parent)
    return found[::-1]


def splits(innermost: Interpreter, why: Unsupported) -> list[Split]:
    """Where to stop after `why` was raised: the best first."""
    found: list[Split] = []
    if innermost.capture.suspended and _lets_go(innermost):
        return []
    for level, tx in enumerate(frames := at_work(innermost)):
        mark = tx.mark
        if tx.capture.suspended:  # a real generator goes on after the break, so Python must make it
            mark = min(tx.capture.suspended.values(), key=lambda m: m.step)
        elif tx is innermost and isinstance(why, Raised) and why.exception in tx.raised_at:
            mark = tx.raised_at[why.exception]
        found = [*_at(level, tx, mark), *found]
        if mark.at != tx.pc - 1 or mark.in_loop or not _goes_on(frames, level + 1):
            break
    return found


def _lets_go(innermost: Interpreter) -> bool:
    """Whether the program has dropped a generator that stands in a try or with block.  Python leaves the block at that
    moment; a resume function would do it later, for who calls it holds its arguments until it returns."""
    frames = at_work(innermost)
    work = [v for tx in frames for v in _held_by(tx)] + innermost.capture.effects.values()
    found: set[int] = set()
    while work:
        value = work.pop()
        if id(value) not in found:
            found.add(id(value))
            work += [*value.children(), *(_held_by(value.body) if isinstance(value, GeneratorValue) else ())]
    return any(id(generator) not in found for generator in innermost.capture.suspended)


def _held_by(tx: Interpreter) -> list[Value]:
    return [*tx.stack, *tx.locals.values(), *tx.cells.values()]


def _at(level: int, tx: Interpreter, mark: Mark) -> Iterator[Split]:
    """At `mark` or, should the state there hold what cannot be carried, where the first such thing was made."""
    marks = [mark, *tx.raised_at.values(), *([tx.made_at] if tx.made_at else [])]
    for each in dict.fromkeys([mark, min(marks, key=lambda m: m.step)]):
        run = not each.in_loop and runs_alone(tx.instructions[each.at])
        if run or level == 0:
            yield Split(level, each.step, run)


def _goes_on(frames: list[Interpreter], level: int) -> bool:
    """Whether the frame at this level can have a resume function of its own.  One for each round of a recursion would
    be one too many.  What a script's top level calls is compiled as a frame of its own: there people look for it."""
    if frames[0].code.co_name == "<module>" or level >= len(frames) or level > MAX_LEVELS:
        return False
    if not frames[level].answers or frames[level].returned is not None:
        return False
    functions = {(f.code.co_filename, f.code.co_firstlineno, f.code.co_name) for f in frames[: level + 1]}
    return len(functions) == level + 1


def runs_alone(instruction: Instruction) -> bool:
    """Whether Python can run it outside its frame, given what it takes off the stack."""
    name = instruction.opname
    if name == "RERAISE":
        return instruction.handler is None
    if instruction.target is not None:
        return name in BRANCHES or name in OR_POP
    return name not in TOUCHES_FRAME
