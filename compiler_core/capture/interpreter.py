"""The symbolic interpreter: runs CPython's bytecode over symbolic values.

An `Interpreter` runs one code object, the frame's or that of an inlined call, one instruction at a time.  The opcodes
are in `opcodes/`, a function each, named like the opcode.
"""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from compiler_core.bytecode import Instruction, disassemble_cached, outermost_loops
from compiler_core.capture.attempt import Capture
from compiler_core.capture.break_kinds import kind_of_skipped
from compiler_core.capture.guard_collector import Location, SourceLines
from compiler_core.capture.opcodes import OPCODES, UNSUPPORTED
from compiler_core.capture.rules import calls
from compiler_core.capture.rules.calls import marked_call
from compiler_core.capture.rules.python import (  # noqa: F401  (they register their rules)
    builtins,
    copying,
    iteration,
    library,
    operators,
    text,
)
from compiler_core.capture.rules.python.library import dispatched
from compiler_core.capture.rules.python.operators import builtin_operation, equal
from compiler_core.capture.rules.table import BY_NAME, HANDLERS, name_of, public_name
from compiler_core.capture.rules.torch import (  # noqa: F401  (they register their rules)
    autograd_functions,
    control_flow,
    gradients,
    optimizers,
    overrides,
    queries,
    transforms,
)
from compiler_core.capture.rules.torch.functions import is_leaf_function
from compiler_core.capture.rules.torch.overrides import PYTHON_METHODS, is_overridden
from compiler_core.capture.values import arrays, reads
from compiler_core.capture.values.base import Kwargs, ObservedException, Value
from compiler_core.capture.values.builtin import static, symbols
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.containers import IteratorValue, iterate_over
from compiler_core.capture.values.builtin.sequences import ListValue
from compiler_core.capture.values.builtin.symbols import is_symbolic
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user import object_attributes
from compiler_core.capture.values.user.exceptions import ExceptionValue, exception_value
from compiler_core.capture.values.user.functions import CellValue, FunctionValue, bind_arguments
from compiler_core.capture.values.user.generators import GeneratorValue
from compiler_core.capture.values.user.modules import ModuleValue
from compiler_core.capture.values.user.objects import contents_of, member_attribute
from compiler_core.errors import Unsupported
from compiler_core.guards.value_guards import may_be_distinct_objects
from compiler_core.hook.skip_rules import (
    is_library_file,
    is_optimizer,
    packs_sequences,
    runs_as_a_whole,
    skip_reason,
)
from compiler_core.records import StackLine
from compiler_core.records.capture import BreakReason, library_of
from compiler_core.support.interrupts import safe_point


@dataclass(frozen=True)
class StopPoint:
    """A step before which a capture can stop.

    The stop point of an instruction in a loop is the step that entered the loop: Python runs the loop, and its body is
    compiled as a function.
    """

    step: int
    level: int
    """How many calls deep the frame is, of those that are active."""
    at: int
    """The index of the instruction in its code object."""
    in_loop: bool
    runs_instruction: bool
    """Whether generated code runs the instruction and a resume function continues after it; otherwise a resume function
    continues at the instruction itself."""


class _Begun(NamedTuple):
    """A step: its number, the index of its instruction, and how many operations the graph has before it."""

    step: int
    at: int
    operations: int


if torch.distributed.is_available():
    from compiler_core.capture.rules.torch import collectives  # noqa: F401  (it registers its rules)

MAX_DEPTH = 60
"""Inlined calls within one another."""
COROUTINE_FLAGS = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR


class StopCapture(BaseException):
    """Raised when capture reaches the step before which it has to stop."""


class Interpreter:
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
        self.graph, self.guards, self.outside = capture.graph, capture.guards, capture.outside
        self.effects = capture.effects
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
        """The step that began the iterable of the latest GET_ITER, or that itself if the iterable is in the graph."""
        self._begun: dict[int, _Begun] = {}
        """The latest step at each depth of the stack."""
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
        self.module = capture.outside.namespace(f_globals)
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
        self.graph.current_tx = self
        self._count_step(instruction)
        self.guards.location = self._location(instruction)
        self.pc += 1
        opname = instruction.opname
        if opname not in OPCODES:
            raise Unsupported("unsupported instruction", f"{opname}: {UNSUPPORTED[opname]}")
        try:
            OPCODES[opname](self, instruction)
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
        graph = self.graph
        operations = len(graph.fx_graph.nodes) - len(graph.inputs)
        self._begun[len(self.stack)] = _Begun(self.step_number, self.pc, operations)
        if instruction.opname == "GET_ITER":
            self._iterator_step = self._iterable_step()

    def _iterable_step(self) -> int:
        """Returns the step that began the expression of an iterable if it has no operation that is in the graph.

        Python can evaluate it: the graph then does not depend on what it is, such as the number in ``range(n)``.
        """
        now, begun = self._begun[len(self.stack)], self._begun.get(len(self.stack) - 1)
        if begun is None or begun.operations != now.operations:
            return now.step
        is_straight = begun.at < now.at and all(x.target is None for x in self.instructions[begun.at : now.at])
        return begun.step if is_straight else now.step

    def run(self) -> Value:
        """Runs the code object to its end and returns the result."""
        while self.returned is None:
            self.step()
        return self.returned

    def jump(self, target: Instruction | None) -> None:
        assert target is not None
        self.pc = self.index[target]

    # ------------------------------------------------------------ the stack

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        return self.stack.pop()

    def pop_many(self, n: int) -> list[Value]:
        """Pops the top `n` values and returns them, the deepest first."""
        if not n:
            return []
        taken = self.stack[-n:]
        del self.stack[-n:]
        return taken

    # ------------------------------------------------------------ where it is

    @property
    def stop_point(self) -> StopPoint:
        """The stop point of the current instruction.

        While an exception is handled that only Python can raise correctly, it is that of the raising instruction.
        """
        caught = next((e for e in self.handled_exceptions if e.was_raised and e in self.raised_at), None)
        if caught is not None:
            return self.raised_at[caught]
        at, in_loop = self.pc - 1, self.loop is not None
        step = self._loop_entry_step if in_loop else self.step_number
        return StopPoint(step, self.depth, at, in_loop, not in_loop and self.instructions[at].can_run_alone)

    def mark_generator_made(self) -> None:
        """Notes, here and in the inlining callers, that the current instruction made a generator."""
        tx: Interpreter | None = self
        while tx is not None:
            tx.generator_made_at = tx.generator_made_at or tx.stop_point
            tx = tx.parent

    def _location(self, instruction: Instruction) -> Location:
        """Returns the location of an instruction: in library code, that of the user's code that called it."""
        if self.parent is not None and is_library_file(self.code.co_filename):
            return self.parent.capture.guards.location
        # when a call is inlined, the root has already moved on to its next instruction
        index = self.pc if self.parent is None else self.root.pc - 1
        key = index, instruction.lineno
        found = self._locations.get(key)
        if found is None:
            found = self._locations[key] = self._make_location(index, instruction.lineno)
        return found

    def _make_location(self, index: int, lineno: int | None) -> Location:
        filename = self.code.co_filename
        line = self.lines.item(filename, lineno) if lineno else None
        items = [f"{self.lines.compile.id}:bytecode#{index}", *([line] if line else [])]
        caller = None
        if self.parent is not None and library_of(filename):
            above = self.parent.capture.guards.location  # of the call
            caller = above.caller or above.line
        return Location(tuple(items), line, f"{filename}:{lineno} in {self.code.co_name}", caller)

    @property
    def root(self) -> Interpreter:
        """The interpreter of the frame itself."""
        tx = self
        while tx.parent is not None:
            tx = tx.parent
        return tx

    @property
    def lineno(self) -> int:
        """The line of the current instruction."""
        return self.instructions[max(self.pc - 1, 0)].lineno or self.code.co_firstlineno

    def user_stack(self) -> list[StackLine]:
        """Returns the stack of the user's code at the current instruction, outermost call first."""
        first, *others = self.full_stack()
        return [first, *(line for line in others if not is_library_file(line.filename))]

    def full_stack(self) -> list[StackLine]:
        """Returns the stack with the lines of libraries."""
        found = [] if self.parent is None else self.parent.full_stack()
        filename, lineno = self.code.co_filename, self.lineno
        text = linecache.getline(filename, lineno).strip()
        line = self.lines.item(filename, lineno)
        return [*found, StackLine(filename, lineno, self.code.co_name, text, line)]

    # ------------------------------------------------------------ exceptions

    def handle_exception(self, error: ObservedException, instruction: Instruction) -> None:
        """Jumps to the instruction's exception handler; raises `error` again if there is none in this code object."""
        exception = exception_value(error)
        exception.install_guards(self)
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

    def call_and_push(self, function: Value, args: list[Value], kwargs: Kwargs) -> Value:
        """Calls a function whose result the current instruction pushes unchanged: it can resume after a break in it."""
        while (inner := function.forwarded_call(self, args, kwargs)) is not None:
            function, args, kwargs = inner
        if isinstance(function, FunctionValue):
            function.install_guards(self)
            return self.call_function_value(function, args, kwargs, is_resumable=True)
        return function.call(self, args, kwargs)

    def call_function_value(
        self, function: FunctionValue, args: list[Value], kwargs: Kwargs, is_resumable: bool = False
    ) -> Value:
        """Calls a Python function: by a rule, as one node of the graph, or by inlining it."""
        fn = function.fn
        if fn is not None:
            marked = marked_call(self, fn, args, kwargs)
            if marked is not None:
                return marked
            handler = HANDLERS.get(fn) or BY_NAME.get(name_of(fn))
            if handler is not None:
                return handler(self, *args, **kwargs)
            if (implementation := dispatched(self, function, args)) is not None:
                return implementation
            if fn in PYTHON_METHODS and isinstance(args[0], TensorValue) and not is_overridden(self, args, kwargs):
                return args[0].call_method(self, PYTHON_METHODS[fn], args[1:], kwargs)
            if is_leaf_function(fn) and not is_overridden(self, args, kwargs):
                return self.graph.call_function(self, fn, args, kwargs)
        is_captured = fn is LRScheduler.get_last_lr or (self.graph.captures_backward and is_optimizer(function.code))
        if not is_captured and (reason := skip_reason(function.code, inlining=True)):
            name = function.name if fn is None else public_name(fn)
            raise Unsupported(_kind_of_skipped(function), f"{name}, {reason}")
        return self.inline(function, args, kwargs, is_resumable)

    def inline(self, function: FunctionValue, args: list[Value], kwargs: Kwargs, is_resumable: bool = False) -> Value:
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
        location = self.guards.location
        try:
            result = callee.run()
        except ObservedException:
            self.graph.current_tx, self.guards.location = self, location
            raise
        self.graph.current_tx, self.guards.location = self, location
        return result

    def set_caller(self, caller: Interpreter) -> None:
        """Makes `caller` the parent of a generator's body, which returns to whoever resumes it, not to its maker."""
        self.parent, self.depth = caller, caller.depth + 1
        _check_depth(self.depth)

    def run_to_yield(self, thrown: ObservedException | None) -> Value | None:
        """Runs the body to the next ``yield``, after raising `thrown` in it if that is given.

        Returns the yielded value, or None if the body returned.
        """
        if thrown is not None:
            self.handle_exception(thrown, self.instructions[self.pc - 1])
        while self.returned is None and self.yielded is None:
            self.step()
        value, self.yielded = self.yielded, None
        return value

    def is_delegating(self) -> bool:
        """Whether the body is suspended in ``yield from``."""
        following = [x.opname for x in self.instructions[self.pc : self.pc + 2]]
        return following == ["RESUME", "JUMP_BACKWARD_NO_INTERRUPT"]

    def finish_delegation(self, result: Value) -> None:
        """Continues after ``yield from`` whose iterator returned `result` when an exception was thrown into it."""
        send = self.instructions[self.pc + 1].target
        assert send is not None
        if sys.version_info < (3, 12):
            self.pop()
        self.push(result)
        self.jump(send.target)

    def is_in_try_block(self) -> bool:
        """Whether the body is suspended in a try or with block, which Python leaves when the generator is dropped."""
        handler = self.instructions[self.pc - 1].handler
        while handler is not None and handler.target.opname != "PUSH_EXC_INFO":
            handler = handler.target.handler
        return handler is not None

    # ------------------------------------------------------------ comparisons

    def is_same(self, a: Value, b: Value) -> bool:
        """``a is b``, guarded where the answer depends on objects from outside the frame."""
        a.install_guards(self)
        b.install_guards(self)
        same = a.same_object(b)
        both_outside = a.source is not None and b.source is not None
        if both_outside and not same and not a.is_constant() and not b.is_constant():
            self.guards.add("NOT_SAME_OBJECT", a.source, b.source)
        if same and isinstance(a, FunctionValue) and a.source is not None and b.source not in (None, a.source):
            self.guards.add("SAME_OBJECT", a.source, b.source)
        if isinstance(a, ConstantValue) and isinstance(b, ConstantValue) and not is_symbolic([a, b]):
            if may_be_distinct_objects(a.value, b.value):
                self._guard_identity(a, b, same)
        return same

    def is_none(self, value: Value) -> bool:
        """``value is None``"""
        return self.is_same(value, NONE)

    def _guard_identity(self, a: ConstantValue, b: ConstantValue, same: bool) -> None:
        """Guards whether two equal constants are one object."""
        if a.source is not None and b.source is not None:
            if a.source != b.source:
                self.guards.add("SAME_OBJECT" if same else "NOT_SAME_OBJECT", a.source, b.source)
            return
        outside = a.source or b.source
        if outside is None:
            return
        if not same:  # in another call, the object from outside may be the literal
            raise Unsupported("unsupported operation", f"{a} is {b}, which are equal")
        self.guards.add("ID_MATCH", outside, a.value)

    def is_same_or_equal(self, a: Value, b: Value) -> bool:
        """``a is b or a == b``, which is how containers search for an item."""
        if is_symbolic([a, b]):
            return equal(self, a, b)
        if isinstance(a, ConstantValue) and isinstance(b, ConstantValue) and a.constant(self) == b.constant(self):
            return True
        return self.is_same(a, b) or equal(self, a, b)

    # ------------------------------------------------------------ what values reach here, as it is built on them

    # the first argument of these functions is the interpreter
    fold = static.fold
    format_text = static.format_text
    product = symbols.product
    format_operand = text.format_operand
    sorted_values = iteration.sorted_values
    call_static = calls.call_static
    override = overrides.override
    overridden_attribute = overrides.overridden_attribute
    register_hook = autograd_functions.register_hook
    numpy_of = arrays.numpy_of
    index_of_arrays = arrays.index_of_arrays
    item_of = reads.item_of
    list_of_items = reads.list_of_items
    index_of_numbers = reads.index_of_numbers
    truth_of_flag = reads.truth_of_flag
    backward = gradients.method
    class_attribute = object_attributes.class_attribute
    enum_attribute = member_attribute
    as_subclass = overrides.as_subclass
    # and of these it is not
    new_list = staticmethod(ListValue)
    new_iterator = staticmethod(IteratorValue)
    from_python = staticmethod(static.from_python)

    def list_of(self, value: Value) -> list[Value]:
        """``list(value)``"""
        return list(iterate_over(self, value))

    def builtin_operation(self, op: Any, left: Value, right: Value) -> Value | None:
        """``op(left, right)`` as builtin containers define it, or None if they do not."""
        return builtin_operation(op, self, contents_of(left), contents_of(right))


_DISTRIBUTED_TENSOR_FILES = os.path.join(os.path.dirname(torch.__file__), "distributed", "tensor") + os.sep


_READERS = (Optimizer.state_dict, LRScheduler.state_dict, torch.amp.GradScaler.state_dict)
"""Methods of what trains that change nothing."""
_MAKERS = (Optimizer.__init__, LRScheduler.__init__, torch.amp.GradScaler.__init__)


def _kind_of_skipped(function: FunctionValue) -> BreakReason:
    """Returns the kind of the graph break at a function of a library that is not captured."""
    if function.code.co_filename.startswith(_DISTRIBUTED_TENSOR_FILES):
        return "distributed tensor"
    if packs_sequences(function.code):
        return "packed sequence"
    if function.fn is torch.amp.GradScaler.get_scale:
        return "tensor value read"
    if function.fn in _READERS:
        return "skipped function"
    if function.code.co_name == "__init__":  # of a subclass of the program, or of a module, as an average of weights is
        return "new optimizer" if function.fn in _MAKERS else "skipped function"
    return kind_of_skipped(str(getattr(function.fn, "__module__", "")))


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise Unsupported("unroll limit", f"calls {MAX_DEPTH} deep")
