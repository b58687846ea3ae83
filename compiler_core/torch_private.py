"""The private names of PyTorch that Cutaway uses, a row a name.

PyTorch changes them between versions, so all other modules import them from here::

    from compiler_core.torch_private import FakeTensor, set_grad_enabled

A name is looked up when it is first imported, since some of its modules take long to import.  `missing` looks up all of
them.  What the observer of stock `torch.compile` reads is in `tools/stock/hooks/torch_internals.py`, where anything may
be missing.
"""

from __future__ import annotations

import importlib
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch._C import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
    from torch._C import DispatchKey as DispatchKey
    from torch._C import DispatchKeySet as DispatchKeySet
    from torch._C import TensorBase as TensorBase
    from torch._C._dynamo.guards import RootGuardManager as RootGuardManager
    from torch._C._functions import DelayedError as DelayedError
    from torch._decomp import get_decompositions as get_decompositions
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis as TensorifyScalarRestartAnalysis
    from torch._dynamo.guards import DeletedGuardManagerWrapper as DeletedGuardManagerWrapper
    from torch._dynamo.guards import GuardManagerType as GuardManagerType
    from torch._dynamo.source import ConstantSource as ConstantSource
    from torch._dynamo.types import ConvertFrameReturn as ConvertFrameReturn
    from torch._dynamo.types import GuardedCode as GuardedCode
    from torch._guards import CompileContext as CompileContext
    from torch._guards import CompileId as CompileId
    from torch._guards import SLoc as SLoc
    from torch._guards import TracingContext as TracingContext
    from torch._guards import detect_fake_mode as detect_fake_mode
    from torch._inductor.choices import InductorChoices as InductorChoices
    from torch._inductor.custom_graph_pass import CustomGraphPass as CustomGraphPass
    from torch._inductor.graph import GraphLowering as GraphLowering
    from torch._inductor.ops_handler import OpsHandler as OpsHandler
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as ELEMENTWISE_TYPE_PROMOTION_KIND
    from torch._prims_common import suggest_memory_format as suggest_memory_format
    from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
    from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch._subclasses.fake_tensor import UnsupportedOperatorException as UnsupportedOperatorException
    from torch._subclasses.fake_tensor import unset_fake_temporarily as unset_fake_temporarily
    from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor
    from torch._subclasses.functional_tensor import FunctionalTensorMode as FunctionalTensorMode
    from torch.utils._device import DeviceContext as DeviceContext
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from torch.utils._pytree import tree_flatten as tree_flatten
    from torch.utils._pytree import tree_leaves as tree_leaves
    from torch.utils._pytree import tree_map as tree_map
    from torch.utils._pytree import tree_map_only as tree_map_only
    from torch.utils._sympy.functions import CleanDiv as CleanDiv
    from torch.utils._sympy.functions import FloorDiv as FloorDiv
    from torch.utils._sympy.printers import PythonPrinter as PythonPrinter
    from torch.utils._sympy.reference import OptimizedPythonReferenceAnalysis as OptimizedPythonReferenceAnalysis
    from torch.utils._sympy.symbol import SymT as SymT
    from torch.utils._sympy.symbol import symbol_is_type as symbol_is_type
    from torch.utils._sympy.value_ranges import ValueRanges as ValueRanges

NAMES: dict[str, str | tuple[str | None, ...]] = {
    # operators and dispatch
    "DispatchKey": "torch._C.DispatchKey",
    "DispatchKeySet": "torch._C.DispatchKeySet",
    "AutoDispatchBelowADInplaceOrView": "torch._C._AutoDispatchBelowADInplaceOrView",
    "AutoDispatchBelowAutograd": "torch._C._AutoDispatchBelowAutograd",
    "DisablePythonDispatcher": "torch._C._DisablePythonDispatcher",
    "ForceDispatchKeyGuard": "torch._C._ForceDispatchKeyGuard",
    "dispatch_dump": "torch._C._dispatch_dump",
    "dispatch_get_all_op_names": "torch._C._dispatch_get_all_op_names",
    "dispatch_keys": "torch._C._dispatch_keys",
    "dispatch_keyset_full_after": "torch._C._dispatch_keyset_full_after",
    "dispatch_tls_local_exclude_set": "torch._C._dispatch_tls_local_exclude_set",
    "dispatch_tls_local_include_set": "torch._C._dispatch_tls_local_include_set",
    "group_tensors_by_device_and_dtype": "torch._C._group_tensors_by_device_and_dtype",
    "jit_resolve_packet": "torch._C._jit_resolve_packet",
    "C_nn": "torch._C._nn",
    "VF": "torch._VF",
    "upsample_compute_output_size": "torch._decomp.decompositions.upsample_compute_output_size",
    "get_decompositions": "torch._decomp.get_decompositions",
    "enable_python_dispatcher": "torch._dispatch.python.enable_python_dispatcher",
    "associative_scan": "torch._higher_order_ops.associative_scan",
    "flex_attention_hop": "torch._higher_order_ops.flex_attention",
    "higher_order_map": "torch._higher_order_ops.map",
    "higher_order_scan": "torch._higher_order_ops.scan",
    "higher_order_while_loop": "torch._higher_order_ops.while_loop",
    "simple_registry": "torch._library.simple_registry",
    "mkldnn_layout": "torch._mkldnn",
    "HigherOrderOperator": "torch._ops.HigherOrderOperator",
    "OpOverload": "torch._ops.OpOverload",
    "OpOverloadPacket": "torch._ops.OpOverloadPacket",
    "ELEMENTWISE_TYPE_PROMOTION_KIND": "torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND",
    "output_permutation": "torch._prims_common.compute_elementwise_output_logical_to_physical_perm",
    "elementwise_dtypes": "torch._prims_common.elementwise_dtypes",
    "is_non_overlapping_and_dense_or_false": "torch._prims_common.is_non_overlapping_and_dense_or_false",
    "suggest_memory_format": "torch._prims_common.suggest_memory_format",
    "istft_decomposition": "torch._refs.istft",
    "torch_utils": "torch._utils",
    "utils_is_compiling": "torch._utils.is_compiling",
    "functional_collectives": "torch.distributed._functional_collectives",
    "library_impls": "torch.library._impls",
    "fused_adagrad": "torch._fused_adagrad_",
    "fused_adam": "torch._fused_adam_",
    "fused_adamw": "torch._fused_adamw_",
    "fused_sgd": "torch._fused_sgd_",
    "optimizer_get_value": "torch.optim.optimizer._get_value",
    "optimizer_stack_if_compiling": "torch.optim.optimizer._stack_if_compiling",
    "masked_ops": "torch.masked._ops",
    "combine_input_and_mask": "torch.masked._ops._combine_input_and_mask",
    "op_db": "torch.testing._internal.common_methods_invocations.op_db",
    # tensors: fake, functional, subclasses
    "make_subclass": "torch.Tensor._make_subclass",
    "DisableTorchDispatch": "torch._C._DisableTorchDispatch",
    "DisableTorchFunction": "torch._C.DisableTorchFunction",
    "DisableTorchFunctionSubclass": "torch._C.DisableTorchFunctionSubclass",
    "TensorBase": "torch._C.TensorBase",
    "EnableTorchFunction": "torch._C._EnableTorchFunction",
    "construct_storage_from_data_pointer": "torch._C._construct_storage_from_data_pointer",
    "disabled_torch_function_impl": "torch._C._disabled_torch_function_impl",
    "has_storage": "torch._C._has_storage",
    "has_torch_function": "torch._C._has_torch_function",
    "has_torch_function_unary": "torch._C._has_torch_function_unary",
    "has_torch_function_variadic": "torch._C._has_torch_function_variadic",
    "is_torch_function_enabled": "torch._C._is_torch_function_enabled",
    "set_conj": "torch._C._set_conj",
    "set_grad_enabled": "torch._C._set_grad_enabled",
    "set_neg": "torch._C._set_neg",
    "storage_Use_Count": "torch._C._storage_Use_Count",
    "DataDependentOutputException": "torch._subclasses.fake_tensor.DataDependentOutputException",
    "DynamicOutputShapeException": "torch._subclasses.fake_tensor.DynamicOutputShapeException",
    "FakeTensor": "torch._subclasses.fake_tensor.FakeTensor",
    "FakeTensorMode": "torch._subclasses.fake_tensor.FakeTensorMode",
    "UnsupportedOperatorException": "torch._subclasses.fake_tensor.UnsupportedOperatorException",
    "unset_fake_temporarily": "torch._subclasses.fake_tensor.unset_fake_temporarily",
    "FunctionalTensor": "torch._subclasses.functional_tensor.FunctionalTensor",
    "FunctionalTensorMode": "torch._subclasses.functional_tensor.FunctionalTensorMode",
    "lazy_property_and_property": "torch.distributions.utils._lazy_property_and_property",
    "module_call_impl": "torch.nn.Module._call_impl",
    "infer_lazy_parameters": "torch.nn.modules.lazy.LazyModuleMixin._infer_parameters",
    "DeviceContext": "torch.utils._device.DeviceContext",
    "device_constructors": "torch.utils._device._device_constructors",
    "TorchDispatchMode": "torch.utils._python_dispatch.TorchDispatchMode",
    "disable_current_modes": "torch.utils._python_dispatch._disable_current_modes",
    "NestedIntNode": "torch.nested._internal.nested_int.NestedIntNode",
    "is_traceable_wrapper_subclass": "torch.utils._python_dispatch.is_traceable_wrapper_subclass",
    "get_current_dispatch_mode_stack": "torch.utils._python_dispatch._get_current_dispatch_mode_stack",
    "pytree": "torch.utils._pytree",
    "tree_flatten": "torch.utils._pytree.tree_flatten",
    "tree_leaves": "torch.utils._pytree.tree_leaves",
    "tree_map": "torch.utils._pytree.tree_map",
    "tree_map_only": "torch.utils._pytree.tree_map_only",
    # symbolic sizes
    "sympy_functions": "torch.utils._sympy.functions",
    "BitwiseFn_bitwise_and": "torch.utils._sympy.functions.BitwiseFn_bitwise_and",
    "BitwiseFn_bitwise_or": "torch.utils._sympy.functions.BitwiseFn_bitwise_or",
    "BitwiseFn_bitwise_xor": "torch.utils._sympy.functions.BitwiseFn_bitwise_xor",
    "CleanDiv": "torch.utils._sympy.functions.CleanDiv",
    "FloorDiv": "torch.utils._sympy.functions.FloorDiv",
    "LShift": "torch.utils._sympy.functions.LShift",
    "SympyMax": "torch.utils._sympy.functions.Max",
    "SympyMin": "torch.utils._sympy.functions.Min",
    "SympyMod": "torch.utils._sympy.functions.Mod",
    "PowByNatural": "torch.utils._sympy.functions.PowByNatural",
    "PythonMod": "torch.utils._sympy.functions.PythonMod",
    "RShift": "torch.utils._sympy.functions.RShift",
    "sympy_interp": "torch.utils._sympy.interp.sympy_interp",
    "int_oo": "torch.utils._sympy.numbers.int_oo",
    "PythonPrinter": "torch.utils._sympy.printers.PythonPrinter",
    "SymT": "torch.utils._sympy.symbol.SymT",
    "symbol_is_type": "torch.utils._sympy.symbol.symbol_is_type",
    "OptimizedPythonReferenceAnalysis": "torch.utils._sympy.reference.OptimizedPythonReferenceAnalysis",
    "ValueRanges": "torch.utils._sympy.value_ranges.ValueRanges",
    # autograd and transforms
    "DisableAutocast": "torch._C._DisableAutocast",
    "are_functorch_transforms_active": "torch._C._are_functorch_transforms_active",
    "get_current_graph_task_keep_graph": "torch._C._autograd._get_current_graph_task_keep_graph",
    "saved_tensors_hooks_disable": "torch._C._autograd._saved_tensors_hooks_disable",
    "saved_tensors_hooks_enable": "torch._C._autograd._saved_tensors_hooks_enable",
    "saved_tensors_hooks_disabled_message": "torch._C._autograd._saved_tensors_hooks_get_disabled_error_message",
    "saved_tensors_hooks_set_tracing": "torch._C._autograd._saved_tensors_hooks_set_tracing",
    "top_saved_tensors_default_hooks": "torch._C._autograd._top_saved_tensors_default_hooks",
    "unsafe_set_version_counter": "torch._C._autograd._unsafe_set_version_counter",
    "C_enter_dual_level": "torch._C._enter_dual_level",
    "C_exit_dual_level": "torch._C._exit_dual_level",
    "DelayedError": "torch._C._functions.DelayedError",
    "C_functorch": "torch._C._functorch",
    "is_functorch_wrapped_tensor": "torch._C._functorch.is_functorch_wrapped_tensor",
    "is_any_autocast_enabled": "torch._C._is_any_autocast_enabled",
    "is_fwd_grad_enabled": "torch._C._is_fwd_grad_enabled",
    "set_fwd_grad_enabled": "torch._C._set_fwd_grad_enabled",
    "functorch_config": "torch._functorch.config",
    "eager_transforms": "torch._functorch.eager_transforms",
    "minifier": "torch._functorch.fx_minifier.minifier",
    "predispatch": ("torch._functorch.predispatch", None),
    "pyfunctorch": "torch._functorch.pyfunctorch",
    "vmap": "torch._functorch.vmap",
    "execution_engine": "torch.autograd.Variable._execution_engine",
    "forward_ad": "torch.autograd.forward_ad",
    "unsafe_preserve_version_counter": "torch.autograd.grad_mode._unsafe_preserve_version_counter",
    "has_compatible_shallow_copy_type": "torch._has_compatible_shallow_copy_type",
    "is_checkpoint_valid": "torch.autograd._is_checkpoint_valid",
    "torch_check": "torch._check",
    "torch_check_is_size": "torch._check_is_size",
    "torch_check_index": "torch._check_index",
    "torch_check_not_implemented": "torch._check_not_implemented",
    "torch_check_type": "torch._check_type",
    "torch_check_value": "torch._check_value",
    "script_if_tracing": "torch.jit._script_if_tracing",
    "attention_kernels": "torch.nn.attention._cur_sdpa_kernel_backends",
    "use_attention_kernels": "torch.nn.attention._sdpa_kernel",
    # graphs
    "FxPatcher": "torch.fx._symbolic_trace._Patcher",
    "is_fx_symbolic_tracing": (
        "torch.fx._symbolic_trace.is_fx_symbolic_tracing",
        "torch.fx._symbolic_trace.is_fx_tracing",
    ),
    "is_fx_tracing": "torch.fx._symbolic_trace.is_fx_tracing",
    "PyTreeCodeGen": "torch.fx.graph._PyTreeCodeGen",
    "PyTreeInfo": "torch.fx.graph._PyTreeInfo",
    "graph_module_loader": "torch.fx.graph_module._loader",
    # the hook on frames, guards, and stock's compile
    "C_eval_frame": "torch._C._dynamo.eval_frame",
    "FrameAction": "torch._C._dynamo.eval_frame._FrameAction",
    "FrameExecStrategy": "torch._C._dynamo.eval_frame._FrameExecStrategy",
    "C_guards": "torch._C._dynamo.guards",
    "RootGuardManager": "torch._C._dynamo.guards.RootGuardManager",
    "empty_strided_cpu": ("torch._C._dynamo.guards._empty_strided_cpu", None),
    "empty_strided_cuda": ("torch._C._dynamo.guards._empty_strided_cuda", None),
    "reinterpret_tensor": ("torch._C._dynamo.guards._reinterpret_tensor", None),
    "list_backends": "torch._dynamo.backends.registry.list_backends",
    "dynamo_config": "torch._dynamo.config",
    "convert_frame": "torch._dynamo.convert_frame",
    "dynamo_eval_frame": "torch._dynamo.eval_frame",
    "OptimizedModule": "torch._dynamo.eval_frame.OptimizedModule",
    "TorchPatcher": "torch._dynamo.eval_frame.TorchPatcher",
    "innermost_fn": "torch._dynamo.eval_frame.innermost_fn",
    "skip_code": "torch._dynamo.eval_frame.skip_code",
    "TensorifyScalarRestartAnalysis": "torch._dynamo.exc.TensorifyScalarRestartAnalysis",
    "StockUnsupported": "torch._dynamo.exc.Unsupported",
    "StockUserError": "torch._dynamo.exc.UserError",
    "external_is_compiling": "torch._dynamo.external_utils.is_compiling",
    "stock_graph_break": "torch._dynamo.graph_break",
    "CheckFunctionManager": "torch._dynamo.guards.CheckFunctionManager",
    "DeletedGuardManagerWrapper": "torch._dynamo.guards.DeletedGuardManagerWrapper",
    "GuardManagerType": "torch._dynamo.guards.GuardManagerType",
    "dynamo_is_compiling": "torch._dynamo.is_compiling",
    "stock_mark_dynamic": "torch._dynamo.mark_dynamic",
    "stock_mark_static": "torch._dynamo.mark_static",
    "GenerationTracker": "torch._dynamo.mutation_guard.GenerationTracker",
    "stock_reset": "torch._dynamo.reset",
    "ConstantSource": "torch._dynamo.source.ConstantSource",
    "TensorifyState": "torch._dynamo.symbolic_convert.TensorifyState",
    "trace_rules": "torch._dynamo.trace_rules",
    "ConvertFrameReturn": "torch._dynamo.types.ConvertFrameReturn",
    "GuardedCode": "torch._dynamo.types.GuardedCode",
    "ExactWeakKeyDictionary": "torch._dynamo.utils.ExactWeakKeyDictionary",
    "counters": "torch._dynamo.utils.counters",
    "dynamo_timed": "torch._dynamo.utils.dynamo_timed",
    "CompileContext": "torch._guards.CompileContext",
    "CompileId": "torch._guards.CompileId",
    "SLoc": "torch._guards.SLoc",
    "TracingContext": "torch._guards.TracingContext",
    "compile_context": "torch._guards.compile_context",
    "detect_fake_mode": "torch._guards.detect_fake_mode",
    "tracing": "torch._guards.tracing",
    "InductorChoices": "torch._inductor.choices.InductorChoices",
    "inductor_compile_fx": "torch._inductor.compile_fx.compile_fx",
    "inductor_config": "torch._inductor.config",
    "CustomGraphPass": "torch._inductor.custom_graph_pass.CustomGraphPass",
    "GraphLowering": "torch._inductor.graph.GraphLowering",
    "inductor_ir": "torch._inductor.ir",
    "inductor_lowering": "torch._inductor.lowering",
    "OpsHandler": "torch._inductor.ops_handler.OpsHandler",
    "inductor_V": "torch._inductor.virtualized.V",
    "inductor_ops": "torch._inductor.virtualized.ops",
    # devices
    "clear_cublas_workspaces": ("torch._C._cuda_clearCublasWorkspaces", None),
    "StaticCudaLauncher": ("torch._C._StaticCudaLauncher", None),
    "cuda_getCurrentRawStream": ("torch._C._cuda_getCurrentRawStream", None),
    "cuda_getDevice": ("torch._C._cuda_getDevice", "torch.cuda.current_device"),
    "ensureCUDADeviceGuardSet": "torch._C._ensureCUDADeviceGuardSet",
    "cuda_sleep": "torch.cuda._sleep",
    # distributions
    "all_true_or_runtime_assert": ("torch.distributions.distribution._all_true_or_runtime_assert", None),
    "is_all_true": "torch._is_all_true",
    # settings and state
    "C": "torch._C",
    "get_cublas_allow_tf32": "torch._C._get_cublas_allow_tf32",
    "get_cudnn_enabled": "torch._C._get_cudnn_enabled",
    "get_cudnn_sdp_enabled": "torch._C._get_cudnn_sdp_enabled",
    "get_deterministic_algorithms": "torch._C._get_deterministic_algorithms",
    "get_flash_sdp_enabled": "torch._C._get_flash_sdp_enabled",
    "get_function_stack_at": "torch._C._get_function_stack_at",
    "get_math_sdp_enabled": "torch._C._get_math_sdp_enabled",
    "get_mem_efficient_sdp_enabled": "torch._C._get_mem_efficient_sdp_enabled",
    "get_mkldnn_enabled": "torch._C._get_mkldnn_enabled",
    "get_nnpack_enabled": "torch._C._get_nnpack_enabled",
    "privateuse1_backend_name": "torch._C._get_privateuse1_backend_name",
    "get_tracing_state": "torch._C._get_tracing_state",
    "is_tracing": "torch._C._is_tracing",
    "len_torch_dispatch_stack": "torch._C._len_torch_dispatch_stack",
    "len_torch_function_stack": "torch._C._len_torch_function_stack",
    "log_api_usage_once": "torch._C._log_api_usage_once",
    "ExperimentalConfig": "torch._C._profiler._ExperimentalConfig",
}
"""Our name of each, and where PyTorch has it.  Of several places the first that exists is taken; the value is None
where that is one of them, and we do without."""

MEMBERS = {
    "C_eval_frame": (
        "_debug_get_cache_entry_list code_framelocals_names get_eval_frame_callback reset_code "
        "set_code_exec_strategy set_eval_frame"
    ),
    "C_guards": (
        "DictGuardManager GlobalStateGuard RelationalGuard RootGuardManager install_no_tensor_aliasing_guard "
        "install_object_aliasing_guard"
    ),
    "C_nn": "_parse_to",
    "convert_frame": "compile_lock input_codes",
    "dynamo_config": "patch suppress_errors",
    "dynamo_eval_frame": "_stance",
    "forward_ad": "_current_level",
    "eager_transforms": "_autograd_grad _set_tensor_requires_grad",
    "functional_collectives": "REDUCE_OP_TO_STR",
    "functorch_config": "patch",
    "inductor_config": "patch",
    "inductor_ir": "BaseView Loops StorageBox TensorBox",
    "inductor_lowering": "fallback_handler lowerings make_pointwise register_lowering",
    "pyfunctorch": "temporarily_clear_interpreter_stack",
    "pytree": "TreeSpec tree_flatten tree_is_leaf tree_leaves",
    "trace_rules": "_allowed_callable_ids",
}
"""What is read of those that are modules."""


def __getattr__(name: str) -> Any:
    try:
        places = NAMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    for place in (places,) if isinstance(places, str) else places:
        try:
            found = find(place) if place else None
        except (AttributeError, ImportError):
            continue
        globals()[name] = found  # the next import finds it without this function
        return found
    raise ImportError(f"{_version()} has no {places}, which Cutaway needs as {name!r} in {__file__}", name=name)


def missing() -> list[str]:
    """Returns the private names that this PyTorch lacks: none of the versions that we support lacks one."""
    found = []
    for name, places in NAMES.items():
        try:
            home = __getattr__(name)
        except ImportError:
            found.append(places if isinstance(places, str) else " or ".join(map(str, places)))
        else:
            found += [f"{places}.{each}" for each in MEMBERS.get(name, "").split() if not hasattr(home, each)]
    return found


def definitions(code: str) -> str:
    """Returns lines that define the names which `code` has of this module, for a program without Cutaway."""
    used = [name for name in NAMES if re.search(rf"\b{name}\b", code)]
    places = {name: NAMES[name] for name in used}
    return "\n".join(f"{name} = {at if isinstance(at, str) else at[0]}" for name, at in places.items())


def find(place: str) -> Any:
    """Returns what a dotted name stands for, whose modules are imported where an attribute is not there yet.

    Raises:
        AttributeError, ImportError: it stands for nothing.
    """
    root, *parts = place.split(".")
    found: Any = import_module(root)
    module = root
    for part in parts:
        module += "." + part
        try:
            found = getattr(found, part)
        except AttributeError:
            found = import_module(module)
    return found


def _version() -> str:
    import torch

    return f"PyTorch {torch.__version__}"


def import_module(name: str) -> ModuleType:
    """Imports a module that imports PyTorch's.  The handlers of signals that arrive meanwhile run at the end.

    After an import that a handler's exception has ended, ``torch._dynamo`` may lack an attribute for a module that is
    there, such as ``utils``.  No later import sets it, and what reads it fails until the process ends.
    """
    with nullcontext() if name in sys.modules else _handlers_deferred():
        return importlib.import_module(name)  # waits if another thread is importing it


@contextmanager
def _handlers_deferred() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # where no handler runs
        yield
        return
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    handlers = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    users = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in users:
            signal.signal(number, note)
        yield
    finally:
        for number, handler in users.items():
            if signal.getsignal(number) is note:
                signal.signal(number, handler)
        with ExitStack() as last:  # all run, even if one raises
            for number in reversed(arrived):
                last.callback(users[number], number, sys._getframe())
