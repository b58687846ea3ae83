"""Lets the hook see the frames that stock `torch.compile` skips.

Where stock captures nothing of a frame, PyTorch stores that in the code object, and then calls no hook for frames of
this code, unless there is a decision about it for the isolation id that is set.  So a loop in `Sequential.forward` that
stock could not capture would keep us from every `Sequential`.  Before a call, the hook therefore stores the decision to
call it, for its id.  What is stored for stock stays.

PyTorch before 2.13 has no ids, and calls from other threads than the main one set none: there, the hook sees none of
the frames that stock skips.  Neither does it see those that stock skipped before this module was imported, nor those
about which it decided before `torch._dynamo.reset()` and stock after it.
"""

from __future__ import annotations

import functools
import operator
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compiler_core.hook.skip_rules import is_generator, skip_reason
from compiler_core.torch_private import C_eval_frame, ConvertFrameReturn, FrameAction, FrameExecStrategy, convert_frame

_DEFAULT = FrameExecStrategy(FrameAction.DEFAULT, FrameAction.DEFAULT)
_NOTHING = (lambda: None).__code__
_isolation: Any = getattr(C_eval_frame, "get_eval_frame_isolate_recompiles_id", None)


@dataclass(frozen=True)
class Decision:
    """What PyTorch stores in a code object for stock: to skip its frames, or to compile no more of them."""

    number: int
    code: weakref.ref[types.CodeType]
    strategy: Any


_decisions: dict[int, Decision] = {}
"""The latest decision about each code object, by its id, in order of time."""

newest = 0
"""The number of the latest decision."""

_decided_in_regions: dict[int, weakref.ref[types.CodeType]] = {}
"""Code objects about which stock has decided while an isolation id was set, perhaps ours, from another thread."""


def _note_decision(result: Any, code: types.CodeType) -> None:
    """Notes what stock has decided about a frame of this code."""
    if not result.apply_to_code or is_generator(code):
        return
    key = id(code)
    if _isolation() != -1:
        _decided_in_regions[key] = weakref.ref(code, lambda _: _decided_in_regions.pop(key, None))
        return
    global newest
    _decisions.pop(key, None)
    strategy = result.frame_exec_strategy
    keeps_callees_from_us = strategy.recursive_action != FrameAction.DEFAULT
    if keeps_callees_from_us or (strategy.cur_action != FrameAction.DEFAULT and not skip_reason(code)):
        ref = weakref.ref(code, lambda _: _decisions.pop(key, None))
        newest += 1
        _decisions[key] = Decision(newest, ref, strategy)


def decisions_since(number: int) -> list[Decision]:
    """Returns the decisions after this one that hold: `torch._dynamo.reset()` discards them."""
    return [
        decision
        for decision in list(_decisions.values())
        if decision.number > number
        and (code := decision.code()) is not None
        and code in convert_frame.input_codes
        and id(code) not in _decided_in_regions
    ]


def show(code: types.CodeType, strategy: Any, run: Callable[[types.CodeType], ConvertFrameReturn]) -> None:
    """Makes PyTorch call the hook for frames of this code while the isolation id is the one that is set now.

    PyTorch stores a decision for an id only when the hook decides about a frame.  So a frame is made that runs nothing.
    There must be no decision for this id yet, otherwise the function would run without its arguments.

    Args:
        code: the code object.
        strategy: what is stored for stock.
        run: returns the decision to run the code that it is given.
    """
    empty = code.replace(
        co_code=_NOTHING.co_code, co_consts=_NOTHING.co_consts, co_exceptiontable=b"", co_linetable=b""
    )
    fn = types.FunctionType(code, {}, closure=tuple(types.CellType() for _ in code.co_freevars))
    keywords = dict.fromkeys(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])
    ask = functools.partial(C_eval_frame.set_code_exec_strategy, code, _DEFAULT)
    call = functools.partial(fn, *[None] * code.co_argcount, **keywords)

    def decide(frame: Any, *_: Any) -> ConvertFrameReturn:
        if frame.f_code is code:
            return run(empty)
        return ConvertFrameReturn(_DEFAULT, False)  # a finalizer or a signal handler

    hook = C_eval_frame.set_eval_frame(decide)
    try:
        # from C, so that no other thread runs in between, where stock would decide once more
        list(map(operator.call, (ask, call)))
    finally:
        C_eval_frame.set_eval_frame(hook)
        C_eval_frame.set_code_exec_strategy(code, strategy)


_handle_skip: Any = getattr(convert_frame.CatchErrorsWrapper, "_handle_skip", None)
if _isolation is not None and _handle_skip is not None:
    # not `__call__`: stock looks at which function has called it

    @functools.wraps(_handle_skip)
    def _noting(self: Any, result: Any, frame: Any) -> Any:
        _note_decision(result, frame.f_code)
        return _handle_skip(self, result, frame)

    convert_frame.CatchErrorsWrapper._handle_skip = _noting
