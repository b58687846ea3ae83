"""The symbolic interpreter: runs CPython's bytecode over symbolic values.

An `Interpreter` runs one code object, the frame's or that of an inlined call, one instruction at a time.  The opcodes
are in `opcodes/`, a method each, named like the opcode.
"""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Sequence
from typing import Any

import torch

from compiler_core.bytecode import Instruction, disassemble_cached, outermost_loops
from compiler_core.capture import opcodes
from compiler_core.capture.break_kinds import kind_of_skipped
from compiler_core.capture.builder.guard_collector import Location
from compiler_core.capture.comparisons import Comparisons
from compiler_core.capture.function_markers import marked_call
from compiler_core.capture.generator_frames import GeneratorFrames
from compiler_core.capture.graph_builder import Capture
from compiler_core.capture.positions import Positions
from compiler_core.capture.rules.table import HANDLERS
from compiler_core.capture.rules.torch import autograd_functions, contexts, masked, modules, queries, scan, transforms  # noqa: F401  (they register their rules)
from compiler_core.capture.rules.torch.functions import is_leaf_function
from compiler_core.capture.rules.torch.overrides import PYTHON_METHODS, is_overridden
from compiler_core.capture.source_lines import SourceLines
from compiler_core.capture.stop_points import StopPoint
from compiler_core.capture.value_operations import ValueOperations
from compiler_core.capture.values.base import ObservedException, Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.capture.values.user.exceptions import ExceptionValue, exception_value
from compiler_core.capture.values.user.functions import FunctionValue, bind_arguments
from compiler_core.capture.values.user.generators import GeneratorValue
from compiler_core.capture.values.user.modules import ModuleValue
from compiler_core.errors import Unsupported
from compiler_core.hook.skip_rules import is_stock_compiled, packs_sequences, runs_as_a_whole, skip_reason
from compiler_core.records.capture import BreakReason
from compiler_core.support.interrupts import safe_point

MAX_DEPTH = 60
"""Inlined calls within one another."""
COROUTINE_FLAGS = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR


class StopCapture(BaseException):
    """Raised when capture reaches the step before which it has to stop."""


class Interpreter(opcodes.Opcodes, GeneratorFrames, Comparisons, ValueOperations, Positions):
    """Runs one code object symbolically.

    Args:
        capture: the graph, guards and side effects, shared by all interpreters of one attempt.
        lines: puts the user's source lines into the record.
        code: the code object to run.
        f_globals, f_builtins: the namespaces of the function.
        local: the values of the arguments, by name.
        closure: the cells of the function's free variables, in the order of ``co_freevars``.
        parent: the interpreter whose call is inlined here; None for the frame itself.
        is_resumable: whether the current instruction of `parent` pushes the result of this call and does nothing else
            after the call, so that a graph break in the call can resume in the callee.
    """

    def __init__(
        self,
        capture: Capture,
        lines: SourceLines,
        code: types.CodeType,
        f_globals: dict[str, Any],
        f_builtins: dict[str, Any],
        local: dict[str, Value],
        closure: Sequence[CellValue],
        parent: Interpreter | None = None,
        is_resumable: bool = False,
    ) -> None:
        self.capture = capture
        self.lines = lines
        self.code = code
        self.instructions, self.index = disassemble_cached(code)
        self.loops = outermost_loops(code)
        self.f_globals = f_globals
        self.f_builtins = f_builtins
        self.locals = local
        self.cells: dict[str, CellValue] = dict(zip(code.co_freevars, closure, strict=True))
        self.stack: list[Value] = []
        self.pc = 0
        self.kw_names: tuple[str, ...] = ()
        self.parent = parent
        self._locations: dict[tuple[int, int | None], Location] = {}
        """The locations of instructions, by the index of the root's instruction and the line."""
        self.is_resumable = is_resumable
        self.step_number = 0
        """The number, within the attempt, of the current instruction."""
        self.loop: int | None = None
        """The innermost loop around the current instruction."""
        self._loop_entry_step = 0
        self._iterator_step = 0
        """The latest GET_ITER."""
        self.module_path: str | None = None if parent is None else self._owner_path()
        """The path of the module whose method this is, or was called by."""
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.returned: Value | None = None
        self.yielded: Value | None = None
        self.handled_exceptions: list[ExceptionValue] = []
        self.raised_at: dict[ExceptionValue, StopPoint] = {}
        """The step that raised each exception."""
        self.generator_made_at: StopPoint | None = None
        """The first step that made a generator.  A generator that has begun cannot be reconstructed after a break."""
        self.module = capture.namespace(f_globals)
        lines.add(code)

    def _owner_path(self) -> str | None:
        owner = next(iter(self.locals.values()), None)
        if isinstance(owner, ModuleValue):
            return owner.path
        return self.parent.module_path if self.parent is not None else None

    # ------------------------------------------------------------ running

    def step(self) -> None:
        """Executes exactly one instruction."""
        safe_point()
        instruction = self.instructions[self.pc]
        self.capture.current_tx = self
        self._count_step(instruction)
        self.capture.location = self._location(instruction)
        self.pc += 1
        opname = instruction.opname
        opcode = getattr(self, opname, None)
        if opcode is None:
            raise Unsupported("unsupported instruction", f"{opname}: {opcodes.UNSUPPORTED[opname]}")
        try:
            opcode(instruction)
        except ObservedException as error:
            self.handle_exception(error, instruction)

    def _count_step(self, instruction: Instruction) -> None:
        """Numbers the steps, so that the next attempt can stop at the same step or where its loop began."""
        self.step_number = self.capture.count_step()
        if self.step_number == self.capture.stop_at:
            raise StopCapture
        loop = self.loops[self.pc]
        if loop is not self.loop:
            self.loop = loop
            self._loop_entry_step = self.step_number
            if instruction.opname == "FOR_ITER" and self._iterator_step:
                # the state of the iterator is hard to reconstruct, so stop before it is made
                self._loop_entry_step = self._iterator_step
        if instruction.opname == "GET_ITER":
            self._iterator_step = self.step_number

    def run(self) -> Value:
        """Runs the code object to its end and returns the result."""
        while self.returned is None:
            self.step()
        return self.returned

    def jump(self, target: Instruction | None) -> None:
        assert target is not None
        self.pc = self.index[target]

    # ------------------------------------------------------------ exceptions

    def handle_exception(self, error: ObservedException, instruction: Instruction) -> None:
        """Jumps to the instruction's exception handler; raises `error` again if there is none in this code object."""
        exception = exception_value(error)
        if not error.has_context:
            exception.set_context(self.handled_exception())
            error.has_context = True
        self.raised_at[exception] = self.raised_at.get(exception) or self.stop_point
        handler = instruction.handler
        if handler is None:
            raise error
        del self.stack[handler.depth :]
        if handler.lasti:
            self.push(ConstantValue(instruction.offset))
        self.push(exception)
        self.jump(handler.target)

    def handled_exception(self) -> ExceptionValue | None:
        """Returns the exception being handled in this code object or an inlining caller.

        Returns None if there is none, or only callers of the frame handle one.
        """
        tx: Interpreter | None = self
        while tx is not None:
            if tx.handled_exceptions:
                return tx.handled_exceptions[-1]
            tx = tx.parent
        return None

    # ------------------------------------------------------------ calls

    def call_and_push(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Calls a function whose result the current instruction pushes unchanged: it can resume after a break in it."""
        while (inner := function.forwarded_call(self, args, kwargs)) is not None:
            function, args, kwargs = inner
        if isinstance(function, FunctionValue):
            function.install_guards(self)
            return self.call_function_value(function, args, kwargs, is_resumable=True)
        return function.call(self, args, kwargs)

    def call_function_value(
        self, function: FunctionValue, args: list[Value], kwargs: dict[str, Value], is_resumable: bool = False
    ) -> Value:
        """Calls a Python function: by a rule, as one node of the graph, or by inlining it."""
        fn = function.fn
        if fn is not None:
            marked = marked_call(self, fn, args, kwargs)
            if marked is not None:
                return marked
            handler = HANDLERS.get(fn)
            if handler is not None:
                return handler(self, *args, **kwargs)
            if fn in PYTHON_METHODS and isinstance(args[0], TensorValue) and not is_overridden(self, args, kwargs):
                return args[0].call_method(self, PYTHON_METHODS[fn], args[1:], kwargs)
            if is_leaf_function(fn) and not is_overridden(self, args, kwargs):
                return self.capture.call_function(self, fn, args, kwargs)
        if is_stock_compiled(function.code):
            raise Unsupported("stock-compiled function", function.name)
        if reason := skip_reason(function.code, inlining=True):
            raise Unsupported(_kind_of_skipped(function), f"{function.name} ({reason})")
        return self._inline(function, args, kwargs, is_resumable)

    def _inline(
        self, function: FunctionValue, args: list[Value], kwargs: dict[str, Value], is_resumable: bool = False
    ) -> Value:
        _check_depth(self.depth)
        flags = function.code.co_flags
        if flags & COROUTINE_FLAGS:
            raise Unsupported("generator", function.name)
        is_generator = bool(flags & inspect.CO_GENERATOR)
        callee = type(self)(
            self.capture,
            self.lines,
            function.code,
            function.f_globals,
            self.f_builtins,
            bind_arguments(function, args, kwargs),
            function.closure,
            parent=self,
            is_resumable=is_resumable and not (is_generator or runs_as_a_whole(function.code)),
        )
        if is_generator:
            self.mark_generator_made()
            return GeneratorValue(callee, function, args, kwargs)
        location = self.capture.location
        try:
            result = callee.run()
        except ObservedException:
            self.capture.current_tx, self.capture.location = self, location
            raise
        self.capture.current_tx, self.capture.location = self, location
        return result

    def set_caller(self, caller: Interpreter) -> None:
        """Makes `caller` the parent of a generator's body, which returns to whoever resumes it, not to its maker."""
        self.parent, self.depth = caller, caller.depth + 1
        _check_depth(self.depth)


_DISTRIBUTED_TENSOR_FILES = os.path.join(os.path.dirname(torch.__file__), "distributed", "tensor") + os.sep


def _kind_of_skipped(function: FunctionValue) -> BreakReason:
    """Returns the kind of the graph break at a function of a library that is not captured."""
    if function.code.co_filename.startswith(_DISTRIBUTED_TENSOR_FILES):
        return "distributed tensor"
    if packs_sequences(function.code):
        return "packed sequence"
    if function.fn in (torch.autograd.grad, torch.autograd.backward):
        return "backward"
    return kind_of_skipped(str(getattr(function.fn, "__module__", "")))


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise Unsupported("unroll limit", f"calls {MAX_DEPTH} deep")


__all__ = ["Interpreter", "StopCapture"]
