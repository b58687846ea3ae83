"""Rules for PyTorch's state: queries of it and of the machine, and the context managers that change it."""

from __future__ import annotations

import functools
import operator
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.attention
from torch.fx.experimental.symbolic_shapes import guard_size_oblivious

from compiler_core.capture.rules.python.operators import binary
from compiler_core.capture.rules.table import handles, handles_each, name_of
from compiler_core.capture.rules.torch.overrides import DeviceValue
from compiler_core.capture.values import reads
from compiler_core.capture.values.base import Value, constants
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, errors_of_program, exception_from_error
from compiler_core.capture.values.builtin.sequences import ListValue
from compiler_core.capture.values.builtin.static import StaticValue, from_python
from compiler_core.capture.values.builtin.symbols import ReadValue
from compiler_core.capture.values.contexts import (
    CONTEXTS,
    AttentionKernelsValue,
    AutocastValue,
    ContextManagerValue,
    GradModeValue,
    InferenceModeValue,
    RecordFunctionValue,
    changes_attention_kernels,
)
from compiler_core.capture.values.distributed import GroupValue, group_size, is_member, rank_in_group
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import is_wrapper_class
from compiler_core.errors import Unsupported
from compiler_core.support.torch_state import AttentionKernels, grad_mode_change
from compiler_core.torch_private import (
    all_true_or_runtime_assert,
    dynamo_is_compiling,
    external_is_compiling,
    get_cublas_allow_tf32,
    get_cudnn_enabled,
    get_cudnn_sdp_enabled,
    get_current_dispatch_mode_stack,
    get_deterministic_algorithms,
    get_flash_sdp_enabled,
    get_math_sdp_enabled,
    get_mem_efficient_sdp_enabled,
    get_mkldnn_enabled,
    get_nnpack_enabled,
    has_compatible_shallow_copy_type,
    is_all_true,
    is_any_autocast_enabled,
    is_checkpoint_valid,
    is_fx_symbolic_tracing,
    is_fx_tracing,
    is_traceable_wrapper_subclass,
    is_tracing,
    len_torch_dispatch_stack,
    privateuse1_backend_name,
    set_grad_enabled,
    torch_check,
    torch_check_index,
    torch_check_is_size,
    torch_check_not_implemented,
    torch_check_type,
    torch_check_value,
    utils_is_compiling,
)

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_OPTIMIZERS = os.path.dirname(torch.optim.__file__)


@handles(
    torch.compiler.is_compiling,
    torch.compiler.is_dynamo_compiling,
    *{utils_is_compiling, dynamo_is_compiling, external_is_compiling},
)
def _compiling(tx: Interpreter) -> Value:
    # as in stock torch.compile: library code then avoids reading the values of tensors
    capturable = tx.locals.get("capturable") if tx.code.co_filename.startswith(_OPTIMIZERS) else None
    # an optimizer would also leave out its check of where parameters with capturable=True are
    compiling = capturable is None or not capturable.truth(tx)
    tx.capture.asked_if_compiling |= compiling
    return ConstantValue(compiling)


@handles(
    torch.jit.is_scripting,  # type: ignore[attr-defined]
    torch.jit.is_tracing,  # type: ignore[attr-defined]
    is_tracing,
    torch.compiler.is_exporting,
    *{is_fx_tracing, is_fx_symbolic_tracing},
)
def _not_scripting(tx: Interpreter) -> Value:
    """Returns False: compiled functions run as plain Python in code that is scripted, traced or exported."""
    return ConstantValue(False)


@handles(torch.overrides.is_tensor_like)
def _is_tensor_like(tx: Interpreter, obj: Value) -> Value:
    obj.install_guards(tx)
    return ConstantValue(hasattr(obj.python_type(), "__torch_function__"))


@handles(is_traceable_wrapper_subclass)
def _is_traceable_wrapper_subclass(tx: Interpreter, obj: Value) -> Value:
    obj.install_guards(tx)
    cls = obj.python_type()
    return ConstantValue(issubclass(cls, torch.Tensor) and is_wrapper_class(cls))


@handles(has_compatible_shallow_copy_type)
def _takes_memory_of(tx: Interpreter, tensor: Value, other: Value) -> Value:
    """Whether ``tensor.data = other`` sets the memory of the tensor, which `Module.to` asks."""
    if type(tensor) is not TensorValue or type(other) is not TensorValue:
        raise Unsupported("unsupported call", f"_has_compatible_shallow_copy_type of {tensor} and {other}")
    return ConstantValue(has_compatible_shallow_copy_type(tensor.fake(tx), other.fake(tx)))


@handles(*filter(None, [all_true_or_runtime_assert]))
def _all_true(tx: Interpreter, valid: Value, message: Value) -> Value:
    """Returns the tensor of whose truth distributions make a branch, from PyTorch 2.15 on in this function."""
    return tx.graph.call_function(tx, is_all_true, [valid])


@handles_each(torch_check, torch_check_index, torch_check_not_implemented, torch_check_value, torch_check_type)
def _check(function: Any, tx: Interpreter, cond: Value, message: Value = NONE) -> Value:
    """Python raises the error of a condition that does not hold."""
    if isinstance(cond, ReadValue):
        reads.check(tx, cond)
        return NONE
    if not issubclass(cond.python_type(), bool) or not cond.truth(tx):
        raise Unsupported("exception", f"{name_of(function)} of a condition that does not hold")
    return NONE


@handles(torch_check_is_size)
def _check_is_size(tx: Interpreter, size: Value, message: Value = NONE, *, max: Value = NONE) -> Value:
    _warn_deprecated(tx, torch_check_is_size)
    _check(torch_check, tx, binary(operator.ge, tx, size, ConstantValue(0)), message)
    return NONE if tx.is_none(max) else _check(torch_check, tx, binary(operator.le, tx, size, max), message)


@handles(guard_size_oblivious)
def _guard_size_oblivious(tx: Interpreter, condition: Value) -> Value:
    _warn_deprecated(tx, guard_size_oblivious)
    return ConstantValue(condition.truth(tx))


def _warn_deprecated(tx: Interpreter, function: Any) -> None:
    """Gives the warning of a deprecated function when the graph has run."""
    if tx.graph.warnings.filters is not None:
        raise Unsupported("skipped function", f"{name_of(function)}, which warns, in warnings.catch_warnings()")
    filename, lineno, f_globals = tx.code.co_filename, tx.lineno, tx.f_globals

    def warn() -> None:
        registry = f_globals.setdefault("__warningregistry__", {})
        warnings.warn_explicit(function.__deprecated__, FutureWarning, filename, lineno, registry=registry)

    tx.effects.note_call(warn, [])


CONSTANT_QUERIES = (
    torch.is_autocast_enabled, torch.is_autocast_cpu_enabled, torch.is_autocast_cache_enabled,
    torch.get_autocast_dtype, is_any_autocast_enabled, torch.are_deterministic_algorithms_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled, torch.get_deterministic_debug_mode,
    torch.get_default_dtype,
    torch.cuda.is_available, torch.cuda.device_count, torch.xpu.is_available, torch.backends.mps.is_available,
    torch.cuda.get_arch_list, torch.accelerator.is_available, torch.accelerator.device_count,
    torch.accelerator.current_accelerator,
    torch.backends.cuda.is_built, torch.backends.cudnn.is_available, torch.distributed.is_available,
    get_cublas_allow_tf32, torch.onnx.is_in_onnx_export, is_checkpoint_valid,
)  # fmt: skip
"""Their results do not change while the process runs, or are covered by the guard on global state."""


@handles_each(*CONSTANT_QUERIES)
def _constant_query(query: Any, tx: Interpreter, *args: Value) -> Value:
    return from_python(query(*(a.constant(tx) for a in args)))


@handles(torch.get_default_device)
def _default_device(tx: Interpreter) -> Value:
    entered = [mode.device for mode in tx.capture.overrides.modes if isinstance(mode, DeviceValue)]
    if entered and entered[-1].index is None and entered[-1].type not in ("cpu", "meta"):
        raise Unsupported("unsupported call", f"torch.get_default_device() within {entered[-1]}, without its index")
    return ConstantValue(entered[-1] if entered else torch.get_default_device())


GUARDED_QUERIES = (
    torch.cuda.is_current_stream_capturing, torch.xpu.is_current_stream_capturing, torch.distributed.is_initialized,
    torch.cuda.current_device, torch.cuda.is_initialized, torch.xpu.current_device, torch.xpu.is_initialized,
    torch.accelerator.current_device_index,
    torch.get_num_threads, torch.get_float32_matmul_precision, privateuse1_backend_name,
    torch.__future__.get_overwrite_module_params_on_conversion, torch.__future__.get_swap_module_params_on_conversion,
    torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled, torch.is_warn_always_enabled,
    get_flash_sdp_enabled, get_mem_efficient_sdp_enabled, get_math_sdp_enabled,
    get_cudnn_sdp_enabled, get_cudnn_enabled, get_mkldnn_enabled,
    get_nnpack_enabled, get_deterministic_algorithms, len_torch_dispatch_stack,
)  # fmt: skip
"""Their results may change between calls, so a guard repeats the query."""
_ATTENTION_QUERIES = (
    get_flash_sdp_enabled, get_mem_efficient_sdp_enabled, get_math_sdp_enabled, get_cudnn_sdp_enabled,
)  # fmt: skip


@handles_each(*GUARDED_QUERIES)
def _guarded_query(query: Any, tx: Interpreter) -> Value:
    try:
        result = query()
    except (RuntimeError, AssertionError) as error:  # a build without the device raises it in every call
        raise exception_from_error(error) from None
    if query not in _ATTENTION_QUERIES or not changes_attention_kernels(tx):  # else the frame's own change decides it
        tx.guards.add("RETURNS", tx.guards.held(query, name_of(query)), result)
    return from_python(result)


DEVICE_QUERIES = {
    getattr(home, name): home
    for home, names in {
        torch.cuda: "get_device_properties get_device_capability get_device_name is_bf16_supported is_tf32_supported",
        torch.xpu: "get_device_properties get_device_capability get_device_name",
    }.items()
    for name in names.split()
}
"""They describe the device that is their argument, or the current one, which the module that is their value has.  A
device does not change while the process runs."""


@handles_each(*DEVICE_QUERIES)
def _device_query(query: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    home = DEVICE_QUERIES[query]
    raw, named = constants(tx, args, kwargs)
    with errors_of_program(RuntimeError, AssertionError, ValueError):
        result = query(*raw, **named)
    if home.is_available() and not any(map(_has_number, (*raw, *named.values()))):
        _guarded_query(home.current_device, tx)
    return from_python(result) if isinstance(result, (bool, str, tuple)) else StaticValue(result)


def _has_number(device: Any) -> bool:
    """Whether an argument is a device with a number, which need not be the current one: ``cuda:1``, not ``cuda``."""
    named = isinstance(device, (str, torch.device)) and torch.device(device).index is not None
    return named or type(device) is int


RANK_QUERIES = tuple(
    getattr(torch.distributed, name) for name in ("get_rank", "get_world_size") if hasattr(torch.distributed, name)
)
"""They raise an error if there is no default process group, so the guard asks for that first."""


@handles_each(*RANK_QUERIES)
def _rank_query(query: Any, tx: Interpreter, group: Value = NONE) -> Value:
    """Returns a number of a group, or of the default group."""
    if isinstance(group, GroupValue) and group.ask(tx, is_member):
        return ConstantValue(group.ask(tx, rank_in_group if query is torch.distributed.get_rank else group_size))
    if not isinstance(group, ConstantValue) or group.constant(tx) is not None:
        raise Unsupported("skipped function", f"{name_of(query)} of a group")
    in_group = _in_default_group(query)
    tx.guards.add("RETURNS", tx.guards.held(in_group, name_of(query)), in_group())
    with errors_of_program(ValueError):
        return from_python(query())


@functools.cache
def _in_default_group(query: Any) -> Callable[[], int | None]:
    """Returns a function that makes the query, and returns None where there is no default group."""
    return lambda: query() if torch.distributed.is_initialized() else None


@handles(get_current_dispatch_mode_stack)
def _dispatch_modes(tx: Interpreter) -> Value:
    if _guarded_query(len_torch_dispatch_stack, tx).truth(tx):
        raise Unsupported("unsupported call", "a read of the active dispatch modes")
    return ListValue([])


@handles(torch.is_inference_mode_enabled)
def _is_inference_mode(tx: Interpreter) -> Value:
    return ConstantValue(tx.graph.is_inference_mode(tx.guards))


@handles_each(torch.no_grad, torch.enable_grad)
def _grad_mode(cls: Any, tx: Interpreter, *args: Value) -> Value:
    context = GradModeValue(cls, {"prev": False} if cls is torch.no_grad else {})
    return context.call(tx, args, {}) if args else context


def _checked_mode(tx: Interpreter, mode: Value) -> bool:
    """Returns a mode, which must be a bool."""
    enabled = mode.constant(tx)
    if not isinstance(enabled, bool):
        raise Unsupported("exception", f"set_grad_enabled({enabled!r}) raises TypeError")
    return enabled


@handles(torch.set_grad_enabled)
def _set_grad_enabled(tx: Interpreter, mode: Value) -> Value:
    enabled = _checked_mode(tx, mode)
    context = GradModeValue(torch.set_grad_enabled, {"prev": tx.graph.grad_enabled, "mode": enabled})
    tx.graph.change_state(grad_mode_change(enabled))
    return context


@handles(torch.inference_mode)
def _inference_mode(tx: Interpreter, mode: Value = ConstantValue(True)) -> Value:  # noqa: B008
    if mode.python_type() is bool:
        return InferenceModeValue(torch.inference_mode, {"mode": mode.constant(tx)})
    return InferenceModeValue(torch.inference_mode, {"mode": True}).call(tx, [mode], {})


@handles(set_grad_enabled)
def _set_grad_mode(tx: Interpreter, mode: Value) -> Value:
    tx.graph.change_state(grad_mode_change(_checked_mode(tx, mode)))
    return NONE


_CONTEXT_CLASSES: list[Any] = [*CONTEXTS]


@handles(*{cls.__enter__ for cls in _CONTEXT_CLASSES})
def _enter(tx: Interpreter, context: Value) -> Value:
    """``type(context).__enter__(context)``, as ``contextlib.ExitStack`` calls it."""
    if not isinstance(context, ContextManagerValue):
        raise Unsupported("unsupported call", f"__enter__ of {context}")
    return context.enter(tx)


@handles(*{cls.__exit__ for cls in _CONTEXT_CLASSES})
def _exit(tx: Interpreter, context: Value, *exception: Value) -> Value:
    if not isinstance(context, ContextManagerValue):
        raise Unsupported("unsupported call", f"__exit__ of {context}")
    context.leave(tx)
    return NONE


@handles(torch.nn.attention.sdpa_kernel)
def _attention_kernels(tx: Interpreter, backends: Value, set_priority: Value = ConstantValue(False)) -> Value:  # noqa: B008
    kernels = [each.constant(tx) for each in (backends.unpack(tx) if isinstance(backends, ListValue) else [backends])]
    if set_priority.constant(tx) or not all(isinstance(each, torch.nn.attention.SDPBackend) for each in kernels):
        raise Unsupported("unsupported call", "sdpa_kernel with these arguments")
    names = tuple(each.name for each in kernels)
    return AttentionKernelsValue(AttentionKernels, {"names": names, "before": ()})


@handles(torch.profiler.record_function)
def _record_function(tx: Interpreter, name: Value, args: Value = NONE) -> Value:
    return RecordFunctionValue.make(name.constant(tx), args.constant(tx))


@handles(torch.autocast)
def _autocast(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    raw, named = constants(tx, args, kwargs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            context = torch.autocast(*raw, **named)
        except Exception as error:
            raise Unsupported("exception", f"{type(error).__name__}: {error}") from None
    if caught:
        raise Unsupported("skipped function", f"torch.autocast, which warns: {caught[0].message}")
    return AutocastValue(torch.autocast, dict(vars(context)))
