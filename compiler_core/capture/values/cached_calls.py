"""Calls of functions with a cache (``functools.lru_cache``) that a captured frame makes.

The cache is state of the program: it shows whether it has the result, each call counts as a hit or a miss, and a call
changes the order of eviction.  So the generated code begins with a look for the result of each call, which is not
counted.  As long as the results are those that capture saw, the graph after them is right, and when it has run, the
calls are made, in the same order.  `resume/eager_fallback.py` has what happens otherwise.

A function whose cache does not have the result runs where it is looked for, after the calls before it were made.  So
does one whose cache cannot be looked at.  A call that was really made is not made again for the same run of the frame:
further attempts to capture the frame, and the first run of the code that was generated for it, take its outcome from
here.  So does what runs after a graph break, if capture had made the call before it found the break: the instruction
that broke the graph, and the frames that are compiled before that run ends.

Such a function may change what the frame reads.  It would do so before the frame reads anything, where eagerly it does
so at the call.  So one that may change what the frame has read before the call is called only if the cache has the
result (`rules/python/cached.py`).
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode import make
from compiler_core.capture.values.builtin.constant import is_atom
from compiler_core.guards.sources import Box
from compiler_core.guards.value_guards import same_constant
from compiler_core.records import Recompile
from compiler_core.support.interrupts import raised_by_handler
from compiler_core.support.texts import safe_repr
from compiler_core.support.torch_state import StateChange, as_in_program

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter


@dataclass(frozen=True)
class Outcome:
    """What a call of a function with a cache does."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    error: Exception | None
    """Without its traceback, which would keep the frames of the compiler alive."""
    raised_in: list[tuple[types.CodeType, int]]
    """The code and the line of each entry of that traceback, from the function on."""
    missed: bool
    """Whether the cache did not have the result, so that the function ran."""
    random_state: Any = None
    """Python's random state after the call if it drew numbers: the frame hook sets it back after a compile."""

    def __str__(self) -> str:
        return safe_repr(self.result) if self.error is None else type(self.error).__qualname__

    @classmethod
    def of_call(cls, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Outcome:
        """Calls ``fn(*args, **kwargs)``."""
        misses, result, raised = fn.cache_info().misses, None, None
        raised_in = list[tuple[types.CodeType, int]]()
        try:
            result = fn(*args, **kwargs)
        except Exception as error:
            if raised_by_handler(error):
                raise
            raised_in = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)][1:]
            raised = error
            _drop_tracebacks(error)
        missed = fn.cache_info().misses != misses
        return cls(fn, tuple(args), kwargs, result, raised, raised_in, missed)

    @classmethod
    def found(cls, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Outcome | None:
        """Returns what ``fn(*args, **kwargs)`` would do, which is not called, if its cache has the result."""
        found = find_result(fn, args, kwargs)
        return None if found is None else cls(fn, tuple(args), kwargs, found[0], None, [], missed=False)

    def is_of(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Returns whether the call was ``fn(*args, **kwargs)``."""
        if self.function is not fn or len(self.args) != len(args) or list(self.kwargs) != list(kwargs):
            return False
        pairs = zip([*self.args, *self.kwargs.values()], [*args, *kwargs.values()], strict=True)
        return all(a is b or (_is_constant(a) and same_constant(a, b)) for a, b in pairs)

    def draw(self) -> None:
        """Draws the numbers that the call drew."""
        if self.random_state is not None:
            random.setstate(self.random_state)


def _drop_tracebacks(error: BaseException) -> None:
    """Drops the tracebacks of an exception that the caller has caught, and of those that were handled before it in
    functions that it called."""
    outer = {frame for frame, _ in traceback.walk_stack(sys._getframe(2))}
    pending, known = [error], set[int]()
    while pending:
        each = pending.pop()
        if id(each) in known or (each.__traceback__ is not None and each.__traceback__.tb_frame in outer):
            continue
        known.add(id(each))
        each.__traceback__ = None
        pending += filter(None, (each.__cause__, each.__context__))


@dataclass(frozen=True)
class ExpectedOutcome:
    """What a call did at capture: all that the compiled code keeps of it."""

    name: str
    state: tuple[StateChange, ...]
    """The changes of PyTorch's global state under which the frame calls the function."""
    result: Box
    error: tuple[Box, tuple[Any, ...]] | None
    """The class and the arguments of the exception that the function raised."""

    def repeat(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Makes the call again, with these arguments."""
        with _changed(self.state):
            return Outcome.of_call(fn, args, kwargs)

    def agrees(self, outcome: Outcome) -> bool:
        """Returns whether this is the outcome: the same object or constant, or an exception like that one."""
        error, result = outcome.error, self.result.value
        if self.error is not None:
            kind, args = self.error
            return error is not None and type(error) is kind.value and same_constant(error.args, args)
        if error is not None:
            return False
        return outcome.result is result or (is_atom(result) and same_constant(outcome.result, result))

    def __str__(self) -> str:
        return safe_repr(self.result.value) if self.error is None else self.error[0].name


@dataclass(frozen=True)
class CachedCall:
    """A call that a compiled frame makes.

    Its arguments are values that have a source, tuples of arguments, and objects that are the same in each run.
    """

    function: Any
    args: list[Any]
    kwargs: dict[str, Any]
    expected: ExpectedOutcome

    def load(self, emit: Emitter) -> None:
        """Pushes the function, its arguments and its keyword arguments."""
        emit.load_outside_object(self.function)
        for arg in self.args:
            _load(emit, arg)
        emit.add(make.build_tuple(len(self.args)))
        for name, arg in self.kwargs.items():
            emit.constant(name)
            _load(emit, arg)
        emit.add(make.build_map(len(self.kwargs)), make.build_tuple(3))


@contextmanager
def _changed(state: Sequence[StateChange]) -> Iterator[None]:
    done: list[StateChange] = []
    try:
        for change in state:
            change.do(*change.args)
            done.append(change)
        yield
    finally:
        for change in reversed(done):
            change.undo(*change.undo_args)


def _load(emit: Emitter, arg: Any) -> None:
    if isinstance(arg, SourcedArgument):
        assert arg.value.source is not None
        emit.source(arg.value.source)
    elif type(arg) is tuple:
        for item in arg:
            _load(emit, item)
        emit.add(make.build_tuple(len(arg)))
    elif is_atom(arg):
        emit.constant(arg)
    else:
        emit.load_outside_object(arg)


@dataclass(frozen=True)
class SourcedArgument:
    """An argument that is guarded to be the same object whenever the calls are made."""

    value: Any


@dataclass(frozen=True)
class OutsideState:
    """State outside of a frame that it has read, or changed, so far."""

    objects: frozenset[int]
    """The ids of objects."""
    globals: frozenset[tuple[int, str]]
    """The ids of namespaces, and the names in them."""
    context: bool
    """Whether context variables are among it."""
    tensors: bool
    """Whether the memory of tensors is among it."""

    def __bool__(self) -> bool:
        return bool(self.objects or self.globals or self.context or self.tensors)


class CacheChanges:
    """How often functions with a cache have had another result than a compile of a frame expects."""

    def __init__(self) -> None:
        self._times: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def count(self, fn: Any) -> None:
        """Counts a change."""
        self._times[fn] = self._times.get(fn, 0) + 1

    def are_frequent(self, fn: Any) -> bool:
        """Returns whether calls of `fn` break the graph from now on, so that the frame is not compiled for each
        result."""
        return self._times.get(fn, 0) > 1


class CallLog:
    """The calls of functions with a cache that one attempt to capture a frame makes, in order.

    Args:
        outcomes: what such calls have done in this run of the frame, also in earlier attempts.
        changes: which functions have had other results than compiles of the frame expected.
    """

    def __init__(self, outcomes: list[Outcome], changes: CacheChanges) -> None:
        self.calls: list[CachedCall] = []
        self.outcomes, self.changes = outcomes, changes
        self._waiting: list[Callable[[], Outcome]] = []
        """Makes the calls that were not made, which are the last ones."""

    def next_outcome(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Outcome | None:
        """Returns what the next call did if it was made already."""
        made = len(self.calls)
        if made < len(self.outcomes) and self.outcomes[made].function is not fn:
            del self.outcomes[made:]
        if made == len(self.outcomes) and not self._waiting and (outcome := known_outcomes.next_of(fn, args, kwargs)):
            self.outcomes.append(outcome)
        return self.outcomes[made] if made < len(self.outcomes) else None

    def outcome(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any], torch_functions: bool) -> Outcome:
        """Returns what the next call does; it is made if the cache does not have the result.

        `torch_functions`: whether ``__torch_function__`` of arguments is called.
        """
        self._waiting.append(partial(Outcome.of_call, fn, args, kwargs))
        if found := Outcome.found(fn, args, kwargs):
            return found
        with as_in_program(torch_functions):
            self.outcomes += [_with_draws(make_call) for make_call in self._waiting]
        self._waiting.clear()
        return self.outcomes[-1]

    def made(self) -> list[Outcome]:
        """Returns the outcomes of the calls of this attempt that were made."""
        return self.outcomes[: len(self.calls)]

    def made_after_break(self) -> list[Outcome]:
        """Returns the outcomes of the calls that earlier attempts made after the point at which this one stopped."""
        return self.outcomes[len(self.calls) :]


def _with_draws(make_call: Callable[[], Outcome]) -> Outcome:
    """Returns the outcome of a call, with Python's random state after it if it drew numbers."""
    before = random.getstate()
    outcome = make_call()
    after = random.getstate()
    return outcome if after == before else replace(outcome, random_state=after)


class KnownOutcomes(threading.local):
    """The outcomes of the calls that a frame has made so far, for the next run of it, which begins at once."""

    code: types.CodeType | None = None
    outcomes: tuple[Outcome, ...] = ()
    cause: Recompile | None = None
    after_break: Sequence[Outcome] = ()
    """The outcomes of calls that were made while a frame was captured, and that its run comes to after a break."""
    after_break_of: types.CodeType | None = None
    """The code of that frame, until its run has come to the break."""
    runs: tuple[int, types.CodeType] | None = None
    """The id and the code of the Python frame that is this run, from the break on."""

    def put(self, code: types.CodeType, outcomes: Sequence[Outcome], cause: Recompile | None = None) -> None:
        """Notes outcomes for a run of `code`; `cause` says which of them differs from what a compile expects."""
        self.code, self.outcomes, self.cause = code, tuple(outcomes), cause

    def put_after_break(self, code: types.CodeType, outcomes: Sequence[Outcome]) -> None:
        """Notes outcomes of calls that a run of `code` comes to after its break."""
        later = self.after_break if self._is_running() else ()
        self.after_break, self.after_break_of = (*outcomes, *later), code
        self.runs = self.runs if later else None

    def are_for(self, code: types.CodeType) -> bool:
        """Returns whether calls were made for a run of `code` that is about to begin."""
        return self.code is code and bool(self.outcomes)

    def take(self, code: types.CodeType) -> tuple[list[Outcome], Recompile | None]:
        """Returns what is known of this run of `code`, once; the numbers that its calls drew are drawn then."""
        found = (list(self.outcomes), self.cause) if self.code is code else ([], None)
        for outcome in found[0]:
            outcome.draw()
        self.code, self.outcomes, self.cause = None, (), None
        return found

    def reach_break(self, code: types.CodeType, frame: types.FrameType) -> None:
        """Notes that a run of `code`, in `frame`, has come to its break."""
        run = (id(frame), frame.f_code)
        is_expected, is_another = self.after_break_of is code, self.runs != run and self._is_running()
        self.after_break_of = None
        if not is_another:
            self.after_break, self.runs = (self.after_break, run) if is_expected else ((), None)

    def next_of(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Outcome | None:
        """Returns what the next call, which code after a break makes, did if it was made before, once."""
        if not self._is_running() or not self.after_break[0].is_of(fn, args, kwargs):
            return None
        return self._taken()

    def at_break(self, fn: Any, frame: types.FrameType) -> Outcome | None:
        """Returns what the call of `fn` at the break of this run, in `frame`, did if it was made before, once."""
        if not self.after_break or self.runs != (id(frame), frame.f_code) or self.after_break[0].function is not fn:
            return None
        return self._taken()

    def _taken(self) -> Outcome:
        first, *self.after_break = self.after_break
        return first

    def _is_running(self) -> bool:
        """Whether calls are known that a run comes to which has not ended."""
        frame = sys._getframe() if self.after_break and self.runs else None
        while frame is not None and (id(frame), frame.f_code) != self.runs:
            frame = frame.f_back
        return frame is not None


known_outcomes = KnownOutcomes()


# ---------------------------------------------------------------- a look for a result, which is not counted as a call
#
# A cache shows what it has only to the garbage collector: its dict, its mark before keyword arguments, and, if it has a
# limit, the key and the result of each call, from the one that is evicted next.  Keys are those of
# ``functools._make_key`` but for the class of tuples.


_MEMBERS_OF_CALL = 3
"""How many objects a cache with a limit refers to for each result: the key, the result, and the class of both."""


def find_result(fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any] | None:
    """Returns what the cache has for a call, alone in a tuple.

    Returns None if it has no result, or if a look might run code of the program.
    """
    contents = _contents(fn)
    if contents is None:
        return None
    results, mark, calls = contents
    parts = _parts(fn, mark, args, kwargs)
    if not all(_is_constant(part) or _is_compared_by_identity(part) for part in parts):
        return None
    key = _key(parts)
    if key not in results:
        return None
    if fn.cache_parameters()["maxsize"] is None:
        return (results[key],)
    found = (i for i in range(0, len(calls), _MEMBERS_OF_CALL) if _are_same(calls[i], key))
    return next(((calls[i + 1],) for i in found), None)


def finder(fn: Any, args: Sequence[Any], kwargs: dict[str, Any], calls_before: int) -> Callable[[], bool]:
    """Returns a function that looks whether the cache of `fn` has the result of a call, and so many calls before it
    cannot evict it.

    It keeps no argument alive that the program may drop.
    """
    contents = _contents(fn)
    if contents is None:
        return lambda: False
    results, mark, _ = contents
    references = [_reference(part) for part in _parts(fn, mark, args, kwargs)]
    size = fn.cache_parameters()["maxsize"]

    def has_result() -> bool:
        parts = [refer() for refer in references if refer is not None]
        if len(parts) < len(references):
            return False
        return _key(parts) in results and (size is None or len(results) + calls_before <= size)

    return has_result


def _contents(fn: Any) -> tuple[dict[Any, Any], object, list[Any]] | None:
    """Returns the dict of a cache, its mark, and what it refers to for each call.  None if it is built otherwise."""
    cls, *calls = gc.get_referents(fn)
    calls, others = calls[:-6], calls[-6:]
    if cls is not type(fn) or [type(other) for other in (*others[:1], *others[2:3])] != [dict, object]:
        return None
    results, _, mark = others[:3]
    has_limit = fn.cache_parameters()["maxsize"] is not None
    return (results, mark, calls) if len(calls) == len(results) * _MEMBERS_OF_CALL * has_limit else None


def _parts(fn: Any, mark: object, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Returns the parts of the key of a call."""
    named = [part for item in kwargs.items() for part in item]
    types = map(type, [*args, *kwargs.values()]) if fn.cache_parameters()["typed"] else ()
    return [*args, *([mark, *named] if kwargs else ()), *types]


def _key(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 and type(parts[0]) in (str, int) else tuple(parts)


def _reference(part: Any) -> Callable[[], Any] | None:
    """Returns a function that returns a part of a key, which it does not keep alive if the program may drop it.

    Returns None for a part whose comparison might run code of the program."""
    if _is_constant(part) or type(part) is object:
        return lambda: part
    return weakref.ref(part) if _is_compared_by_identity(part) and type(part).__weakrefoffset__ else None


def _is_compared_by_identity(part: Any) -> bool:
    cls = type(part)
    return [cls.__hash__, cls.__eq__] == [object.__hash__, object.__eq__]


def _is_constant(part: Any) -> bool:
    return all(map(_is_constant, part)) if type(part) is tuple else is_atom(part)


def _are_same(part: Any, other: Any) -> bool:
    """Whether two keys, or parts of them, are equal; runs no code of the program."""
    if type(part) is tuple and type(other) is tuple:
        return len(part) == len(other) and all(map(_are_same, part, other))
    return part is other or (is_atom(part) and is_atom(other) and bool(part == other))
