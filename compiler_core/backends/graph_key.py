"""What decides how a captured graph is compiled, as one digest: graphs of one digest are compiled alike.

It is made of everything that the stages after capture look at: the graph itself, its inputs as far as fake tensors
show them, the options, PyTorch's global state, and what the stages are made of (our sources, PyTorch, Python).  What
cannot be written down exactly is refused: a graph that is compiled anew costs time, a wrong one is a wrong result.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import platform
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from compiler_core.config import Options
from compiler_core.errors import NotKeyed
from compiler_core.guards.sources import Constant
from compiler_core.loops.schedule import size_rules
from compiler_core.support.fx_graphs import memory_of, tensors_in
from compiler_core.support.fx_symbols import expression, is_symbolic
from compiler_core.support.shape_assumptions import environment, exact, known
from compiler_core.support.torch_state import autocast_of, default_devices

USED = ("torch", "triton", "networkx", "sympy", "numpy")
"""Packages on whose versions what is made depends."""
STATE: tuple[str, ...] = (
    *("_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only"),
    "_get_deterministic_fill_uninitialized_memory",
    *("_get_float32_matmul_precision", "_get_cublas_allow_tf32", "_get_cudnn_allow_tf32"),
    *("_get_cublas_allow_fp16_reduced_precision_reduction", "_get_cublas_allow_bf16_reduced_precision_reduction"),
    *("_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic", "_get_mkldnn_enabled"),
    *("_get_nnpack_enabled", "_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled"),
    *("_get_cudnn_sdp_enabled", "_get_overrideable_sdp_enabled", "_get_sdp_priority_order"),
    *("_get_mkldnn_deterministic", "_get_onednn_allow_tf32"),
)
"""Functions of ``torch._C`` that tell global settings which a trace may look at."""


def key_of(gm: fx.GraphModule, examples: Sequence[Any], options: Options, languages: Mapping[str, str]) -> str:
    """The digest; NotKeyed where there is none."""
    env = environment(examples)
    parts = [_made_by(), repr(sorted(languages.items())), _wishes(options), _ambient(), *(known(env) if env else ())]
    parts += [*_inputs(examples), *map(_node, gm.graph.nodes), *_devices(gm)]
    parts.append(repr([n.name for n in gm.graph.nodes if "said" in n.meta]))
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


# ---- what makes it -------------------------------------------------------------------------


@functools.cache
def _made_by() -> str:
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    ours = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    versions = [f"{name} {_version(name)}" for name in USED]
    machine = *platform.libc_ver(), platform.machine()
    return " ".join([ours, sys.version, str(torch.version.git_version), *versions, *machine])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _wishes(options: Options) -> str:
    """All options; a filter of guards is the caller's, and comes after."""
    return repr(dataclasses.replace(options, guard_filter=None))


def _ambient() -> str:
    """PyTorch's global state."""
    if None in default_devices():
        raise NotKeyed("a torch function mode sees each operation")
    casts = [autocast_of(device) for device in ("cpu", "cuda")]
    if torch._C._is_any_autocast_enabled() and not any(enabled for _, enabled, *_ in casts):
        raise NotKeyed("autocast is on for a device that is neither a CPU nor a GPU of CUDA")
    settings = [(name, _setting(name)) for name in STATE if hasattr(torch._C, name)]
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()
    _check_operators()
    defaults = torch.get_default_dtype(), default_devices(), torch.get_num_threads()
    return repr([modes, casts, defaults, settings, _config(), size_rules.current()])


def _setting(name: str) -> Any:
    try:
        return getattr(torch._C, name)()
    except (
        RuntimeError
    ) as error:  # TF32 of convolutions and of recurrent networks may differ, and then there is no one answer
        raise NotKeyed(f"{name} has no one answer") from error


def _config() -> Any:
    """What is set in the configuration of PyTorch's tracing, where that is loaded."""
    loaded: Any = [sys.modules.get(name) for name in ("torch._functorch.config", "torch.fx.experimental._config")]
    return [config and sorted((k, repr(v)) for k, v in config.get_config_copy().items()) for config in loaded]


def _check_operators() -> None:
    """Operators are PyTorch's own, nobody registered others in their place."""
    known = torch.library._impls
    for space, operator, dispatch in (key.split("/") for key in known if key.startswith("aten/")):
        if (
            dispatch not in ("Meta", "MPS", "FuncTorchBatched")
            and f"_native/{operator}_native_0/{dispatch}" not in known
        ):
            raise NotKeyed(f"{space}.{operator} was registered anew for {dispatch}")


# ---- the inputs ----------------------------------------------------------------------------


def _inputs(examples: Sequence[Any]) -> Iterator[str]:
    memories: dict[int, int] = {}
    for example in examples:
        if not isinstance(example, torch.Tensor):
            yield _exact(example)
            continue
        yield _tensor(example, memories)


def _tensor(example: torch.Tensor, memories: dict[int, int]) -> str:
    """All that a fake tensor shows; `memories` numbers what they lie in."""
    if not isinstance(example, FakeTensor) or example.layout is not torch.strided:
        raise NotKeyed(f"an input is a {type(example).__name__} of layout {example.layout}")
    numbers = (*example.shape, *example.stride(), example.storage_offset(), example.untyped_storage().nbytes())
    memory = memories.setdefault(memory_of(example), len(memories))
    base = _tensor(example._base, memories) if example._is_view() and example._base is not None else None
    kind = type(example).__name__, isinstance(example, torch.nn.Parameter), example.dtype, example.device
    history = example.requires_grad, example.is_leaf, type(example.grad_fn).__name__, example.is_inference()
    bits = example.is_conj(), example.is_neg(), example._is_zerotensor()
    return repr([kind, len(example.shape), [*map(_exact, numbers)], memory, history, bits, base])


# ---- the graph -----------------------------------------------------------------------------


def _devices(gm: fx.GraphModule) -> list[str]:
    """The devices of all that the graph takes and makes, in order, with what each GPU among them is."""
    devices = [tensor.device for tensor in tensors_in(gm)]
    gpus = {device for device in devices if device.type == "cuda"}
    if gpus and not torch.cuda.is_available():
        raise NotKeyed("the GPU that the graph is for is not here")
    return [*map(str, devices), *(f"{gpu} {torch.cuda.get_device_properties(gpu)}" for gpu in sorted(gpus, key=str))]


def _node(node: fx.Node) -> str:
    if node.op in ("get_attr", "call_module"):
        raise NotKeyed("the graph holds tensors or modules of its own")
    target = _function(node.target) if callable(node.target) else _method(node)
    return " ".join([node.op, node.name, target, _exact(node.args), _exact(node.kwargs), repr(node.meta.get("module"))])


def _method(node: fx.Node) -> str:
    if node.op == "call_method":
        _function(getattr(torch.Tensor, str(node.target)))
    return str(node.target)


def _function(target: Callable[..., Any]) -> str:
    """The name of a function that is PyTorch's, or Python's own operators."""
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        if str(target).partition(".")[0] != "aten":
            raise NotKeyed(f"{target} is no operator of PyTorch's")
        return str(target)
    name = f"{getattr(target, '__module__', None)} {getattr(target, '__qualname__', None)} {target.__name__}"
    if not _is_pytorchs(target):
        raise NotKeyed(f"{name} is no function of PyTorch's")
    return f"{name} {type(target).__name__}"


_HOMES = tuple(str(Path(module.__file__ or "").parent) for module in (torch, sys.modules[__name__.partition(".")[0]]))
_PYTHON = str(Path(functools.__file__).parent)


def _is_pytorchs(target: Any) -> bool:
    if isinstance(target, types.FunctionType):
        return _is_untouched(target, set())
    home = getattr(target, "__objclass__", None) or getattr(target, "__self__", None)
    module = getattr(target, "__module__", None) or getattr(home, "__module__", None) or getattr(home, "__name__", "")
    return type(target) in _IN_C and str(module).partition(".")[0] in ("torch", "_operator", "builtins", "math")


_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def _is_untouched(function: types.FunctionType, seen: set[int]) -> bool:
    """Whether it and the Python functions that it names come from the files of PyTorch, Python or ourselves."""
    if id(function) in seen:
        return True
    seen.add(id(function))
    code = function.__code__
    file = code.co_filename
    if not file.startswith(_HOMES) and ("-packages" in file or not file.startswith(_PYTHON)):
        return False
    named = [function.__globals__.get(name) for name in code.co_names]
    held = [_unboxed(cell.cell_contents) for cell in function.__closure__ or () if cell != types.CellType()]
    if not all(map(_is_known, held)):
        return False  # such as a user's torch.autograd.Function, of which a graph names no more than the name
    return all(_is_untouched(f, seen) for f in [*named, *held] if isinstance(f, types.FunctionType))


def _unboxed(value: Any) -> Any:
    return value.value if isinstance(value, Constant) else value


def _is_known(value: Any) -> bool:
    """Whether what a function closes over is a function (looked at by `_is_untouched`), a class of PyTorch, Python or
    ourselves, or an object of one."""
    cls = value if isinstance(value, type) else type(value)
    return cls.__module__.partition(".")[0] in ("torch", "builtins", "functools", __name__.partition(".")[0])


_PLAIN = (type(None), bool, int, str, bytes)
_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format, EllipsisType)


def _exact(value: Any) -> str:
    """An argument as text that no other argument has."""
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) is float:
        return value.hex()
    if type(value) is complex:
        return f"complex({value.real.hex()}, {value.imag.hex()})"
    if is_symbolic(value):
        return f"{type(value).__name__}({exact(expression(value))})"
    if isinstance(value, _NAMED):
        return f"{type(value).__name__}({value})"
    if type(value) in (tuple, list, torch.Size) or isinstance(value, fx.immutable_collections.immutable_list):
        return f"{type(value).__name__}({', '.join(map(_exact, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_exact(k)}: {_exact(v)}' for k, v in value.items())}}}"
    if isinstance(value, slice):
        return f"slice({', '.join(map(_exact, (value.start, value.stop, value.step)))})"
    raise NotKeyed(f"a {type(value).__name__} is an argument in the graph")
