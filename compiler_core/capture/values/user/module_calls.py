"""Calls of nn.Modules: forward hooks and ``forward``, as in ``nn.Module._call_impl``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.nn.modules import module as nn_module
from torch.nn.modules.rnn import RNNBase
from torch.nn.utils.rnn import PackedSequence

from compiler_core.capture.values.base import ObservedException, Value
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import GetItemSource

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.values.user.modules import ModuleValue

FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
Hook = tuple[Any, Value]
"""The key under which a hook is registered, and the hook."""


def has_hooks(tx: Interpreter, module: ModuleValue) -> bool:
    """Whether a call of the module runs any hook."""
    return any(_hooks(tx, module, kind) for kind in (*FORWARD_HOOKS, *BACKWARD_HOOKS))


def takes_packed_sequence(module: ModuleValue, args: Sequence[Value]) -> bool:
    """Whether an RNN is called with a packed sequence, whose sizes its ``forward`` reads."""
    return issubclass(module.cls, RNNBase) and any(arg.python_type() is PackedSequence for arg in args)


def call_with_hooks(tx: Interpreter, module: ModuleValue, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``nn.Module.__call__``."""
    if module.is_compiled:
        raise Unsupported("stock-compiled function", module.cls.__name__)
    if any(_hooks(tx, module, kind) for kind in BACKWARD_HOOKS):
        raise Unsupported("unsupported call", f"{module.cls.__name__} has backward hooks")
    pre_hooks, hooks = (_hooks(tx, module, kind) for kind in FORWARD_HOOKS)
    for key, hook in pre_hooks:
        args, kwargs = _call_pre_hook(tx, module, key, hook, args, kwargs)
    result = _call_forward(tx, module, args, kwargs, hooks)
    for key, hook in hooks:
        result = _call_forward_hook(tx, module, key, hook, args, kwargs, result)
    return result


def _call_forward(
    tx: Interpreter, module: ModuleValue, args: Sequence[Value], kwargs: dict[str, Value], hooks: list[Hook]
) -> Value:
    if takes_packed_sequence(module, args):
        raise Unsupported("packed sequence", f"{module.cls.__name__} of a packed sequence")
    try:
        return module.get_attr(tx, "forward").call(tx, args, kwargs)
    except ObservedException as error:
        if hooks:  # hooks registered with always_call run after an exception, too
            raise Unsupported("exception", str(error.exception)) from None
        raise


def _hooks(tx: Interpreter, module: ModuleValue, kind: str) -> list[Hook]:
    """Returns the hooks of all modules, then those of this one, in the order in which they are called."""
    namespace = tx.capture.guards.held(nn_module.__dict__, "torch.nn.modules.module")
    name = f"_global{kind}"
    global_hooks = tx.capture.outside.wrap(vars(nn_module)[name], GetItemSource(namespace, name))
    return [*_entries(tx, global_hooks), *_entries(tx, module.table(tx, kind))]


def _entries(tx: Interpreter, table: Value) -> list[Hook]:
    """Returns the hooks in a table; an empty one gets a single guard on its length."""
    assert isinstance(table, DictValue)
    if not table.is_loaded and not table.real:
        tx.capture.guards.add("DICT_LENGTH", table.source, 0)  # type: ignore[arg-type]
        return []
    return list(table.mapping(tx).items())


def _is_marked(tx: Interpreter, module: ModuleValue, key: Any, table: str) -> bool:
    """Whether a hook was registered with the option for which `table` has the keys of hooks."""
    marked_hooks = module.table(tx, table)
    marked = marked_hooks.mapping(tx) if marked_hooks.is_loaded else marked_hooks.real
    return key in marked or key in vars(nn_module).get(f"_global{table}", {})


def _call_pre_hook(
    tx: Interpreter, module: ModuleValue, key: Any, hook: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> tuple[Sequence[Value], dict[str, Value]]:
    """Calls a forward pre-hook; returns the arguments, which it may replace."""
    if _is_marked(tx, module, key, "_forward_pre_hooks_with_kwargs"):
        result = hook.call(tx, [module, TupleValue(list(args)), DictValue(dict(kwargs))], {})
        if tx.is_none(result):
            return args, kwargs
        if not isinstance(result, TupleValue) or result.length(tx) != 2:
            raise Unsupported("exception", "a forward pre-hook returned neither None nor two values")
        new_args, new_kwargs = result.unpack(tx)
        if not isinstance(new_kwargs, DictValue):
            raise Unsupported("exception", "a forward pre-hook returned keyword arguments that are not a dict")
        return list(tx.list_of(new_args)), dict(new_kwargs.mapping(tx))
    result = hook.call(tx, [module, TupleValue(list(args))], {})
    if tx.is_none(result):
        return args, kwargs
    return (result.unpack(tx) if isinstance(result, TupleValue) else [result]), kwargs


def _call_forward_hook(
    tx: Interpreter,
    module: ModuleValue,
    key: Any,
    hook: Value,
    args: Sequence[Value],
    kwargs: dict[str, Value],
    result: Value,
) -> Value:
    """Calls a forward hook; returns the result of the module, which it may replace."""
    hook_args: list[Value] = [module, TupleValue(list(args))]
    if _is_marked(tx, module, key, "_forward_hooks_with_kwargs"):
        hook_args.append(DictValue(dict(kwargs)))
    new_result = hook.call(tx, [*hook_args, result], {})
    return result if tx.is_none(new_result) else new_result
