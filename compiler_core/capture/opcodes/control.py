"""Opcodes for jumps, loops, ``with``, calls, generators and exceptions."""

from __future__ import annotations

import builtins
import operator
import sys
from typing import TYPE_CHECKING, Any, cast

import torch

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.table import opcode, opcodes
from compiler_core.capture.opcodes.variables import BEFORE_3_13, load_constant
from compiler_core.capture.rules.calls import call_static
from compiler_core.capture.rules.torch.overrides import DeviceValue
from compiler_core.capture.values.base import (
    NULL,
    UNBOUND,
    Kwargs,
    ObservedException,
    Value,
    observed_exception,
    type_errors_left_to_python,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue, dict_items
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.contexts import EnterValue, ExitValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.exceptions import OUTER, ExceptionValue, TracebackValue, as_exception
from compiler_core.capture.values.user.functions import CellValue, FunctionValue
from compiler_core.capture.values.user.generators import GeneratorValue, runtime_error_from_stop
from compiler_core.capture.values.user.objects import ObjectValue, SuperValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

DEFAULTS, KWDEFAULTS, ANNOTATIONS, CLOSURE, ANNOTATE = 1, 2, 4, 8, 16


@opcode("JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def JUMP_FORWARD(tx: Interpreter, instruction: Instruction) -> None:
    tx.jump(instruction.target)


@opcode(
    "POP_JUMP_FORWARD_IF_TRUE",
    "POP_JUMP_BACKWARD_IF_TRUE",
    "POP_JUMP_IF_FALSE",
    "POP_JUMP_FORWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_FALSE",
)
def POP_JUMP_IF_TRUE(tx: Interpreter, instruction: Instruction) -> None:
    condition, jumps_if = tx.pop(), instruction.opname.endswith("IF_TRUE")
    truth = _assumed_truth(tx, condition, instruction, jumps_if)
    if (condition.truth(tx) if truth is None else truth) == jumps_if:
        tx.jump(instruction.target)


def _assumed_truth(tx: Interpreter, condition: Value, jump: Instruction, jumps_if: bool) -> bool | None:
    """Returns the truth of a tensor with which a program does not raise an exception, if the other one always raises::

        assert x.sum() > 0, "empty"        if x.isnan().any(): raise ValueError("not a number")

    The graph takes it for granted: if it does not hold in a call, the graph fails, and the frame runs as plain Python
    (`resume/eager_fallback.py`).  So does a constraint of a distribution, for which the caller raises.  None where both
    ways go on, or where the frame might catch the exception, since such calls could be frequent.
    """
    if not isinstance(condition, TensorValue) or jump.target is None:
        return None
    raises = [_always_raises(tx, at) for at in (tx.index[jump.target], tx.pc)]
    is_constraint = tx.code.co_filename == torch.distributions.constraints.__file__  # it returns what does not hold
    if (raises[0] == raises[1] and not is_constraint) or _may_be_caught(tx):
        return None
    truth = is_constraint or jumps_if != raises[0]
    return truth if tx.graph.assume(tx, condition, truth) else None


def _always_raises(tx: Interpreter, at: int) -> bool:
    """Returns whether the code from an instruction on raises an exception without a branch before it."""
    while at < len(tx.instructions) and tx.instructions[at].target is None:
        opname = tx.instructions[at].opname
        if opname == "RAISE_VARARGS":
            return True
        if opname in _LEAVES:
            return False
        at += 1
    return False


_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "YIELD_VALUE")


def _may_be_caught(tx: Interpreter | None) -> bool:
    """Returns whether the frame, or a call that is inlined in it, is inside a ``try``."""
    while tx is not None:
        handler = tx.instructions[tx.pc - 1].handler
        while handler is not None:
            after = tx.index[handler.target] + 1
            if handler.target.opname == "PUSH_EXC_INFO" and tx.instructions[after].opname != "WITH_EXCEPT_START":
                return True
            handler = handler.target.handler
        tx = tx.parent
    return False


@opcode(
    "POP_JUMP_FORWARD_IF_NONE",
    "POP_JUMP_BACKWARD_IF_NONE",
    "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_FORWARD_IF_NOT_NONE",
    "POP_JUMP_BACKWARD_IF_NOT_NONE",
)
def POP_JUMP_IF_NONE(tx: Interpreter, instruction: Instruction) -> None:
    if tx.is_none(tx.pop()) == instruction.opname.endswith("IF_NONE"):
        tx.jump(instruction.target)


@opcode("JUMP_IF_FALSE_OR_POP")
def JUMP_IF_TRUE_OR_POP(tx: Interpreter, instruction: Instruction) -> None:
    if tx.stack[-1].truth(tx) == (instruction.opname == "JUMP_IF_TRUE_OR_POP"):
        tx.jump(instruction.target)
    else:
        tx.pop()


# --- loops


@opcode()
def FOR_ITER(tx: Interpreter, instruction: Instruction) -> None:
    value = tx.stack[-1].next_value(tx)
    if value is not None:
        tx.push(value)
        return
    tx.jump(instruction.target)
    if sys.version_info < (3, 14):  # where a POP_ITER follows
        tx.pop()
    if sys.version_info >= (3, 12):  # an exhausted loop skips the END_FOR that it jumps to
        tx.pc += 2 if sys.version_info[:2] == (3, 13) else 1


@opcode()
def END_FOR(tx: Interpreter, instruction: Instruction) -> None:
    raise Unsupported("unsupported instruction", "END_FOR outside a loop")


# --- with


@opcode()
def BEFORE_WITH(tx: Interpreter, instruction: Instruction) -> None:
    manager = _manager(tx)
    if isinstance(manager, ObjectValue):
        tx.push(manager.get_attr(tx, "__exit__"))
        tx.push(tx.call_and_push(manager.get_attr(tx, "__enter__"), [], {}))
    else:
        leave = ExitValue(manager, is_entered=False)
        entered = EnterValue(manager, leave).call(tx, [], {})
        tx.push(leave)
        tx.push(entered)


def _manager(tx: Interpreter) -> Value:
    """Pops what a with statement enters."""
    manager = tx.pop()
    if isinstance(manager, ConstantValue) and type(manager.value) is torch.device:
        return DeviceValue(torch.device, {"device": manager.constant(tx)})
    return manager


@opcode()
def LOAD_SPECIAL(tx: Interpreter, instruction: Instruction) -> None:
    """Pushes ``__enter__`` or ``__exit__`` of what a with statement enters, since 3.14; the latter is first."""
    name = cast(str, instruction.argval)
    if name not in ("__enter__", "__exit__"):
        raise Unsupported("unsupported instruction", f"{instruction.opname} {name}")
    manager = _manager(tx)
    if isinstance(manager, ObjectValue):
        tx.push(manager.get_attr(tx, name))
    elif name == "__exit__":
        tx.push(ExitValue(manager, is_entered=False))
    else:
        tx.push(EnterValue(manager, cast(ExitValue, tx.stack[-2])))
    tx.push(NULL)


# --- leaving


def _return(tx: Interpreter, instruction: Instruction, value: Value) -> None:
    if tx.parent is None and tx.capture.open_generators:
        generator = next(iter(tx.capture.open_generators))
        raise Unsupported("generator", f"{generator} is left inside a try or with block")
    if tx.parent is None and tx.capture.pending_works:
        raise Unsupported("collective", "the function returns before it has waited for the collective")
    tx.returned = value


# --- generators


@opcode()
def SEND(tx: Interpreter, instruction: Instruction) -> None:
    sent, iterator = tx.pop(), tx.stack[-1]
    if tx.is_none(sent):
        value = iterator.next_value(tx)
    elif isinstance(iterator, GeneratorValue):
        value = iterator.send(tx, sent)
    else:
        raise Unsupported("generator", f"a value sent into {iterator}")
    if value is not None:
        tx.push(value)
        return
    if sys.version_info < (3, 12):
        tx.pop()
    tx.push(iterator.return_value() or NONE)
    tx.jump(instruction.target)


@opcode()
def YIELD_VALUE(tx: Interpreter, instruction: Instruction) -> None:
    tx.yielded = tx.pop()


@opcode()
def KW_NAMES(tx: Interpreter, instruction: Instruction) -> None:
    tx.kw_names = cast("tuple[str, ...]", instruction.argval)


@opcode()
def CALL(tx: Interpreter, instruction: Instruction) -> None:
    names, tx.kw_names = tx.kw_names, ()
    _call(tx, instruction.arg or 0, names)


@opcode()
def CALL_KW(tx: Interpreter, instruction: Instruction) -> None:
    names = tx.pop().constant(tx)
    _call(tx, instruction.arg or 0, names)


def _call(tx: Interpreter, n: int, names: tuple[str, ...]) -> None:
    args = tx.pop_many(n)
    first, second = tx.pop_many(2)
    # 3.11, 3.12: NULL or method, then callable or self; 3.13: callable, then NULL or self
    if BEFORE_3_13:
        function, args = (second, args) if first is NULL else (first, [second, *args])
    else:
        function, args = (first, args) if second is NULL else (first, [second, *args])
    positional = len(args) - len(names)
    kwargs = dict(zip(names, args[positional:], strict=True))
    tx.push(_call_value(tx, function, args[:positional], kwargs))


def _call_value(tx: Interpreter, function: Value, args: list[Value], kwargs: Kwargs) -> Value:
    if isinstance(function, StaticValue) and function.obj is super and not args:
        return _zero_argument_super(tx)
    return tx.call_and_push(function, args, kwargs)


def _zero_argument_super(tx: Interpreter) -> Value:
    if not tx.code.co_argcount or "__class__" not in tx.cells:
        raise Unsupported("exception", "super() outside a method")
    cls = tx.cells["__class__"].get(tx).constant(tx)
    owner_name = tx.code.co_varnames[0]
    owner = tx.cells[owner_name].get(tx) if owner_name in tx.cells else tx.locals.get(owner_name)
    if owner is None or owner is UNBOUND:
        raise Unsupported("exception", "super() after its first argument was deleted")
    return SuperValue.create(tx, cls, owner)


@opcode()
def CALL_FUNCTION_EX(tx: Interpreter, instruction: Instruction) -> None:
    with type_errors_left_to_python("what follows * or ** in a call"):
        last = tx.pop() if (instruction.arg or 0) & 1 or sys.version_info >= (3, 14) else NULL
        kwargs = {} if last is NULL else dict_items(tx, last)
        args = tx.list_of(tx.pop())
    if BEFORE_3_13:
        function = tx.pop()
        tx.pop()
    else:
        tx.pop()
        function = tx.pop()
    tx.push(_call_value(tx, function, args, kwargs))


@opcode()
def CALL_INTRINSIC_1(tx: Interpreter, instruction: Instruction) -> None:
    if instruction.arg == 6:  # INTRINSIC_LIST_TO_TUPLE
        tx.push(TupleValue(list(tx.pop().unpack(tx))))
    elif instruction.arg == 3:  # INTRINSIC_STOPITERATION_ERROR
        _stop_iteration_error(tx)
    elif instruction.arg == 5:  # INTRINSIC_UNARY_POSITIVE
        tx.push(call_static(tx, operator.pos, [tx.pop()], {}))
    else:
        raise Unsupported("unsupported instruction", f"CALL_INTRINSIC_1 {instruction.arg}")


# --- making functions and classes


@opcode()
def MAKE_FUNCTION(tx: Interpreter, instruction: Instruction) -> None:
    flags = instruction.arg or 0
    code = tx.pop().constant(tx)
    function = FunctionValue(code, tx.f_globals, code.co_qualname)
    if BEFORE_3_13:
        for flag in (CLOSURE, ANNOTATIONS, KWDEFAULTS, DEFAULTS):
            if flags & flag:
                _set_function_attribute(tx, function, flag, tx.pop())
    tx.push(function)


def _set_function_attribute(tx: Interpreter, function: Value, flag: int, value: Value) -> Value:
    assert isinstance(function, FunctionValue)
    if flag == CLOSURE:
        function.closure = [cast(CellValue, c) for c in value.unpack(tx)]
        for name, cell in zip(function.code.co_freevars, function.closure, strict=True):
            cell.users.append((function.code, name))
    elif flag == DEFAULTS:
        function.defaults = list(value.unpack(tx))
    elif flag == KWDEFAULTS:
        function.kwdefaults = dict(cast(DictValue, value).mapping(tx))
    elif flag == ANNOTATE:
        function.special_attributes["__annotate__"] = value
    elif flag == ANNOTATIONS:
        flat = value.unpack(tx)  # names and annotations alternate
        found = {name.constant(tx): each for name, each in zip(flat[::2], flat[1::2], strict=True)}
        function.special_attributes["__annotations__"] = DictValue(found)
    return function


opcodes(
    **dict.fromkeys(("GET_ITER", "GET_YIELD_FROM_ITER"), (1, lambda tx, at, value: value.iterate(tx))),
    RETURN_VALUE=(1, _return),
    RETURN_CONST=(0, lambda tx, at: _return(tx, at, load_constant(tx, at.argval))),
    RETURN_GENERATOR=(0, lambda tx, at: NONE),  # the value that the first ``next`` sends; a POP_TOP follows
    END_SEND=(2, lambda tx, at, iterator, value: value),
    LOAD_BUILD_CLASS=(0, lambda tx, at: StaticValue(builtins.__build_class__)),  # its call breaks the graph
    LOAD_ASSERTION_ERROR=(0, lambda tx, at: StaticValue(AssertionError)),
    LOAD_COMMON_CONSTANT=(0, lambda tx, at: StaticValue(at.argval)),
    POP_ITER=(1, lambda tx, at, iterator: None),
    SET_FUNCTION_ATTRIBUTE=(2, lambda tx, at, value, made: _set_function_attribute(tx, made, at.arg or 0, value)),
)


@opcode()
def RAISE_VARARGS(tx: Interpreter, instruction: Instruction) -> None:
    if not instruction.arg:
        raise ObservedException(_handled(tx), has_context=True)
    what, *causes = tx.pop_many(instruction.arg)
    exception = as_exception(tx, what)
    for cause in causes:
        exception.set_cause(cause if tx.is_none(cause) else as_exception(tx, cause))
    raise ObservedException(exception)


def _handled(tx: Interpreter) -> ExceptionValue:
    found = tx.handled_exception()
    if found is None:
        raise Unsupported("exception", "raise of an exception that the caller handles")
    return found


@opcode()
def RERAISE(tx: Interpreter, instruction: Instruction) -> None:
    raise ObservedException(tx.pop(), has_context=True)


# --- handlers


@opcode()
def PUSH_EXC_INFO(tx: Interpreter, instruction: Instruction) -> None:
    exception = tx.pop()
    assert isinstance(exception, ExceptionValue)
    tx.push(OUTER)
    tx.push(exception)
    tx.handled_exceptions.append(exception)


@opcode()
def POP_EXCEPT(tx: Interpreter, instruction: Instruction) -> None:
    tx.pop()
    tx.handled_exceptions.pop()


@opcode()
def CHECK_EXC_MATCH(tx: Interpreter, instruction: Instruction) -> None:
    wanted = tx.pop()
    tx.stack[-1].install_guards(tx)
    cls = tx.stack[-1].python_type()
    tx.push(ConstantValue(any(c in cls.__mro__ for c in _exception_classes(tx, wanted))))


def _exception_classes(tx: Interpreter, wanted: Value) -> list[Any]:
    classes = wanted.constant(tx)
    found = list(classes) if isinstance(classes, tuple) else [classes]
    if not all(isinstance(c, type) and issubclass(c, BaseException) for c in found):
        text = "catching classes that do not inherit from BaseException is not allowed"
        raise observed_exception(TypeError, text)
    return found


@opcode()
def WITH_EXCEPT_START(tx: Interpreter, instruction: Instruction) -> None:
    leave, exception = tx.stack[-4 if sys.version_info < (3, 14) else -5], tx.stack[-1]
    exception.install_guards(tx)
    args: list[Value] = [StaticValue(exception.python_type()), exception, TracebackValue()]
    tx.push(tx.call_and_push(leave, args, {}))


@opcode()
def CLEANUP_THROW(tx: Interpreter, instruction: Instruction) -> None:
    """Ends ``yield from`` if the exception thrown into it is the StopIteration of the inner iterator."""
    exception = tx.stack[-1]
    assert isinstance(exception, ExceptionValue)
    if not issubclass(exception.cls, StopIteration):
        raise ObservedException(exception, has_context=True)
    del tx.stack[-3:]
    tx.stack += [NONE, exception.get_attr(tx, "value")]


def _stop_iteration_error(tx: Interpreter) -> None:
    """Replaces a StopIteration that leaves a generator's body by a RuntimeError (PEP 479)."""
    exception = tx.stack[-1]
    assert isinstance(exception, ExceptionValue)
    if issubclass(exception.cls, StopIteration):
        tx.stack[-1] = runtime_error_from_stop(exception)
