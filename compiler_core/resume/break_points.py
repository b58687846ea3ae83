"""Where a capture that met a graph break stops, so that the graph before the break is kept.

The active frames are the one that is compiled and those of the calls that were inlined into it.  The best place to stop
is the very instruction that broke the graph, in the innermost frame: Python runs that instruction, and each frame
continues in a resume function.  If that is impossible, the call that led to the instruction is run as a whole, one
frame further out.  A loop cannot be split: Python runs a loop with a break inside from its start to its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler_core.capture.interpreter import Interpreter, StopPoint
from compiler_core.capture.values.base import ObservedException, Value
from compiler_core.capture.values.user.generators import GeneratorValue
from compiler_core.errors import Unsupported

MAX_LEVEL = 8
"""Of an active frame that continues in a resume function."""


def active_frames(innermost: Interpreter) -> list[Interpreter]:
    """Returns the active frames, outermost first."""
    found = [innermost]
    while (parent := found[-1].parent) is not None:
        found.append(parent)
    return found[::-1]


def break_points_for(innermost: Interpreter, why: Unsupported) -> list[StopPoint]:
    """Returns where capture may stop after `why` was raised, the best place first."""
    found: list[StopPoint] = []
    if innermost.capture.open_generators and _drops_suspended_generator(innermost):
        return []
    frames = active_frames(innermost)
    if unfinished := [*innermost.capture.open_generators.values(), *innermost.capture.pending_works.values()]:
        # a real generator or collective continues after the break, so Python must start it
        return list(_with_earlier(frames[0], min(unfinished, key=lambda stop: stop.step)))
    for level, tx in enumerate(frames):
        stop = tx.stop_point
        if tx is innermost and isinstance(why, ObservedException) and why.exception in tx.raised_at:
            stop = tx.raised_at[why.exception]
        found = [*_with_earlier(tx, stop), *found]
        if stop.at != tx.pc - 1 or stop.in_loop or not _can_have_resume_function(frames, level + 1):
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


def _with_earlier(tx: Interpreter, stop: StopPoint) -> Iterator[StopPoint]:
    """Yields `stop` and, if the state there has a value that cannot be reconstructed, the stop point before the first
    such value was made; of both, only where the frame can continue."""
    stops = [stop, *tx.raised_at.values(), *([tx.generator_made_at] if tx.generator_made_at else [])]
    for each in dict.fromkeys([stop, min(stops, key=lambda s: s.step)]):
        if each.runs_instruction or each.level == 0:
            yield each


def _can_have_resume_function(frames: list[Interpreter], level: int) -> bool:
    """Returns whether the frame at this level can continue in a resume function.

    In a recursion it cannot, since there would be one resume function for each round.  What the top level of a script
    calls is compiled as a separate frame, because users look for it there.
    """
    if frames[0].code.co_name == "<module>" or level >= len(frames) or level > MAX_LEVEL:
        return False
    if not frames[level].is_resumable or frames[level].returned is not None:
        return False
    functions = {(f.code.co_filename, f.code.co_firstlineno, f.code.co_name) for f in frames[: level + 1]}
    return len(functions) == level + 1
