"""The cache key of a captured graph: a digest of everything that the stages after capture depend on.

These are the graph, its inputs as far as fake tensors describe them, the options, PyTorch's global state, and the
versions of our sources, PyTorch and Python.  A graph with something that has no exact text has no key (`NotCacheable`):
compiling it again costs time, but a wrong hit would be a wrong result.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import platform
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.trace.shape_assumptions import expr_text, shape_env_facts, shape_env_of
from compiler_core.config import Options
from compiler_core.errors import NotCacheable
from compiler_core.guards.sources import Box
from compiler_core.loops.schedule.block_sizes import current_rules
from compiler_core.records.kernels import KeyField
from compiler_core.support.fx_graphs import graph_tensors
from compiler_core.support.fx_symbols import expression, is_symbolic
from compiler_core.support.tensors import storage_id
from compiler_core.support.torch_state import autocast_state, default_devices
from compiler_core.torch_private import (
    C,
    FakeTensor,
    OpOverload,
    OpOverloadPacket,
    dispatch_dump,
    is_any_autocast_enabled,
    library_impls,
)

PACKAGES = ("torch", "triton", "networkx", "sympy", "numpy")
"""The packages whose versions are part of the key."""
GLOBAL_SETTINGS: tuple[str, ...] = (
    *("_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only"),
    "_get_deterministic_fill_uninitialized_memory",
    *("_get_float32_matmul_precision", "_get_cublas_allow_tf32", "_get_cudnn_allow_tf32"),
    *("_get_cublas_allow_fp16_reduced_precision_reduction", "_get_cublas_allow_bf16_reduced_precision_reduction"),
    *("_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic", "_get_mkldnn_enabled"),
    *("_get_nnpack_enabled", "_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled"),
    *("_get_cudnn_sdp_enabled", "_get_overrideable_sdp_enabled", "_get_sdp_priority_order"),
    *("_get_mkldnn_deterministic", "_get_onednn_allow_tf32"),
)
"""The functions of ``torch._C`` that return the global settings on which a trace may depend."""
_OWN_FOLDERS = tuple(f"{Path(torch.__file__).parent / folder}/" for folder in ("_native", "_subclasses"))
"""Folders of PyTorch that register operators again as they are imported."""


def graph_key(
    gm: fx.GraphModule, examples: Sequence[Any], options: Options, languages: Mapping[str, str]
) -> list[KeyField]:
    """Returns the fields of the key.

    Raises:
        NotCacheable: the graph has no key; the message is the reason.
    """
    env = shape_env_of(examples)
    facts = shape_env_facts(env) if env else []
    warned = [node.name for node in gm.graph.nodes if "warnings" in node.meta]
    found = {
        **_versions(),
        **_named("languages", sorted(languages.items())),
        **_option_texts(options),
        **_torch_state(),
        "symbolic sizes": "\n".join(facts),
        **_named("inputs", enumerate(_input_texts(examples)), str),
        "graph": "\n".join(map(_node_text, gm.graph.nodes)),
        **_named("devices", enumerate(_device_texts(gm)), str),
        "nodes with warnings": repr(warned),
    }
    return [KeyField(name, text) for name, text in found.items()]


def graph_digest(fields: Sequence[KeyField]) -> str:
    """Returns the SHA-256 digest of a key, in hexadecimal."""
    text = "\0".join(f"{each.name}\0{each.text}" for each in fields)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _named(name: str, values: Iterable[tuple[Any, Any]], text: Callable[[Any], str] = repr) -> dict[str, str]:
    """Returns the fields ``name[key]`` for pairs of a key and a value."""
    return {f"{name}[{key}]": text(value) for key, value in values}


# ---- versions, options and state -------------------------------------------------------------------------


@functools.cache
def _versions() -> dict[str, str]:
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    ours = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    versions = {name: _version(name) for name in PACKAGES}
    torch_ = {"torch (git)": str(torch.version.git_version)}
    machine = " ".join([*platform.libc_ver(), platform.machine()])
    return {"compiler_core (digest)": ours, "Python": sys.version, **versions, **torch_, "machine": machine}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _option_texts(options: Options) -> dict[str, str]:
    """Returns the texts of all options but the guard filter, which affects only stages that are not cached."""
    names = [each.name for each in dataclasses.fields(options) if each.name != "guard_filter"]
    return _named("options", ((name, getattr(options, name)) for name in names))


def _torch_state() -> dict[str, str]:
    """Returns the texts of PyTorch's global state."""
    if None in default_devices():
        raise NotCacheable("a torch function mode is active, which intercepts each operation")
    casts = {device: autocast_state(device) for device in ("cpu", "cuda")}
    if is_any_autocast_enabled() and not any(enabled for _, enabled, *_ in casts.values()):
        raise NotCacheable("autocast is enabled for a device other than CPU and CUDA")
    _check_operators()
    return {
        "grad mode": repr(torch.is_grad_enabled()),
        "inference mode": repr(torch.is_inference_mode_enabled()),
        "anomaly mode": repr(torch.is_anomaly_enabled()),
        **_named("autocast", casts.items()),
        "default dtype": repr(torch.get_default_dtype()),
        "default devices": repr(default_devices()),
        "threads": repr(torch.get_num_threads()),
        **_named("torch", ((n.removeprefix("_get_"), _setting(n)) for n in GLOBAL_SETTINGS if hasattr(C, n))),
        **_tracing_config(),
        "size rules": repr(current_rules()),
    }


def _setting(name: str) -> Any:
    try:
        return getattr(C, name)()
    except RuntimeError as error:  # raised if TF32 is set differently for convolutions and for recurrent networks
        raise NotCacheable(f"{name} has no single value") from error


def _tracing_config() -> dict[str, str]:
    """Returns the configuration of PyTorch's tracing, as far as its modules are loaded."""
    found: dict[str, str] = {}
    for name in ("torch._functorch.config", "torch.fx.experimental._config"):
        if config := sys.modules.get(name):
            found |= _named(name, sorted(config.get_config_copy().items()))
    return found


def _check_operators() -> None:
    """Checks that no aten operator has been registered again, except by PyTorch as it is imported.

    Raises:
        NotCacheable: one has been.
    """
    for key in library_impls:
        space, operator, dispatch = key.split("/")
        if (
            space == "aten"
            and dispatch not in ("Meta", "MPS", "FuncTorchBatched")
            and not _registering_file(operator, dispatch).startswith(_OWN_FOLDERS)
        ):
            raise NotCacheable(f"{space}.{operator} has another implementation for {dispatch}")


def _registering_file(operator: str, dispatch: str) -> str:
    """Returns the file whose implementation of an aten operator for a dispatch key is in use."""
    found = re.search(rf"^{dispatch}: registered at (.+):\d+ ::", dispatch_dump(f"aten::{operator}"), re.M)
    return found[1] if found else ""


# ---- the inputs ----------------------------------------------------------------------------


def _input_texts(examples: Sequence[Any]) -> Iterator[str]:
    memories: dict[int, int] = {}
    for example in examples:
        if not isinstance(example, torch.Tensor):
            yield _exact_text(example)
            continue
        yield _tensor_text(example, memories)


def _tensor_text(example: torch.Tensor, memories: dict[int, int]) -> str:
    """Returns the text of all properties of a fake tensor; `memories` numbers the storages."""
    if not isinstance(example, FakeTensor) or example.layout is not torch.strided:
        raise NotCacheable(f"an input is a {type(example).__name__} of layout {example.layout}")
    found = {
        "dtype": str(example.dtype),
        "shape": _exact_text(tuple(example.shape)).removeprefix("tuple"),
        "stride": _exact_text(example.stride()).removeprefix("tuple"),
        "storage_offset": _exact_text(example.storage_offset()),
        "storage_bytes": _exact_text(example.untyped_storage().nbytes()),
        "storage": repr(memories.setdefault(storage_id(example), len(memories))),
        "device": str(example.device),
        "is_parameter": repr(isinstance(example, torch.nn.Parameter)),
        "requires_grad": repr(example.requires_grad),
        "is_leaf": repr(example.is_leaf),
        "grad_fn": type(example.grad_fn).__name__,
        "is_inference": repr(example.is_inference()),
        "is_conj": repr(example.is_conj()),
        "is_neg": repr(example.is_neg()),
        "is_zero": repr(example._is_zerotensor()),
        "base": _tensor_text(example._base, memories) if example._is_view() and example._base is not None else "None",
    }
    return f"{type(example).__name__}({', '.join(f'{name}={text}' for name, text in found.items())})"


# ---- the graph -----------------------------------------------------------------------------


def _device_texts(gm: fx.GraphModule) -> list[str]:
    """Returns the devices of all tensors in the graph, in order, and the properties of each GPU among them."""
    devices = [tensor.device for tensor in graph_tensors(gm)]
    gpus = {device for device in devices if device.type == "cuda"}
    if gpus and not torch.cuda.is_available():
        raise NotCacheable("the GPU of the graph is not available")
    return [*map(str, devices), *(f"{gpu} {torch.cuda.get_device_properties(gpu)}" for gpu in sorted(gpus, key=str))]


def _node_text(node: fx.Node) -> str:
    if node.op in ("get_attr", "call_module"):
        raise NotCacheable("the graph has tensors or modules as attributes")
    target = _function_name(node.target) if callable(node.target) else _method_name(node)
    module, checkpoint = node.meta.get("module"), node.meta.get("checkpoint")
    arguments = f"{_exact_text(node.args)} {_exact_text(node.kwargs)}"
    return f"{node.name} = {node.op} {target} {arguments} {module!r} {checkpoint!r}"


def _method_name(node: fx.Node) -> str:
    if node.op == "call_method":
        _function_name(getattr(torch.Tensor, str(node.target)))
    return str(node.target)


def _function_name(target: Callable[..., Any]) -> str:
    """Returns the name of a function of PyTorch or of Python's operators.

    Raises:
        NotCacheable: it is another function.
    """
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        if str(target).partition(".")[0] != "aten":
            raise NotCacheable(f"{target} is not an operator of PyTorch")
        return str(target)
    name = f"{getattr(target, '__module__', None)} {getattr(target, '__qualname__', None)} {target.__name__}"
    if not _is_from_torch(target):
        raise NotCacheable(f"{name} is not a function of PyTorch")
    return f"{name} {type(target).__name__}"


_TORCH_FOLDERS = tuple(
    str(Path(module.__file__ or "").parent) for module in (torch, sys.modules[__name__.partition(".")[0]])
)
_CUTAWAY_FOLDER = _TORCH_FOLDERS[-1]
_PYTHON_FOLDER = str(Path(functools.__file__).parent)


def _is_from_torch(target: Any) -> bool:
    if isinstance(target, types.FunctionType):
        return _is_untouched(target, set())
    home = getattr(target, "__objclass__", None) or getattr(target, "__self__", None)
    module = getattr(target, "__module__", None) or getattr(home, "__module__", None) or getattr(home, "__name__", "")
    return type(target) in _C_FUNCTION_TYPES and str(module).partition(".")[0] in (
        "torch",
        "_operator",
        "builtins",
        "math",
    )


_C_FUNCTION_TYPES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def _is_untouched(function: types.FunctionType, seen: set[int]) -> bool:
    """Whether a function, and all Python functions that it refers to, are from files of PyTorch, Python or Cutaway."""
    if id(function) in seen:
        return True
    seen.add(id(function))
    code = function.__code__
    file = code.co_filename
    if not file.startswith(_TORCH_FOLDERS) and ("-packages" in file or not file.startswith(_PYTHON_FOLDER)):
        return False
    named = [function.__globals__.get(name) for name in code.co_names]
    held = [_unwrap_box(cell.cell_contents) for cell in function.__closure__ or () if cell != types.CellType()]
    if not all(map(_is_trusted, held)):
        return False  # for example a user's torch.autograd.Function, which the graph refers to by name only
    if file.startswith(_CUTAWAY_FOLDER) and any(map(_is_data, held)):
        return False  # functions that capture makes have the same name, whatever they hold
    return all(_is_untouched(f, seen) for f in [*named, *held] if isinstance(f, types.FunctionType))


def _unwrap_box(value: Any) -> Any:
    return value.value if isinstance(value, Box) else value


def _is_trusted(value: Any) -> bool:
    """Whether a value in a closure is a function, or a class of PyTorch, Python or Cutaway, or an instance of one.

    Functions are checked by `_is_untouched`.
    """
    cls = value if isinstance(value, type) else type(value)
    return cls.__module__.partition(".")[0] in ("torch", "builtins", "functools", __name__.partition(".")[0])


def _is_data(value: Any) -> bool:
    """Whether it is an object of Python's other than a function or class, such as a number, a list or a partial."""
    is_function = isinstance(value, (type, types.FunctionType, *_C_FUNCTION_TYPES))
    return not is_function and type(value).__module__ in ("builtins", "functools")


_PLAIN_TYPES = (type(None), bool, int, str, bytes)
_NAMED_TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format, EllipsisType)


def _exact_text(value: Any) -> str:
    """Returns a text of an argument that differs from that of any other argument.

    Raises:
        NotCacheable: there is none for its type.
    """
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if type(value) in _PLAIN_TYPES:
        return repr(value)
    if type(value) is float:
        return repr(value)
    if type(value) is complex:
        return f"complex({value.real!r}, {value.imag!r})"
    if is_symbolic(value):
        return f"{type(value).__name__}({expr_text(expression(value))})"
    if isinstance(value, _NAMED_TYPES):
        return f"{type(value).__name__}({value})"
    if type(value) in (tuple, list, torch.Size) or isinstance(value, fx.immutable_collections.immutable_list):
        return f"{type(value).__name__}({', '.join(map(_exact_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_exact_text(k)}: {_exact_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, slice):
        return f"slice({', '.join(map(_exact_text, (value.start, value.stop, value.step)))})"
    raise NotCacheable(f"a {type(value).__name__} is an argument in the graph")
