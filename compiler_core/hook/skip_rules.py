"""Decides which code is never captured, as a frame or inlined in a caller, and gives the reason."""

from __future__ import annotations

import dis
import functools
import gc
import inspect
import os
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Sequence

import torch

from compiler_core.guards.lifetimes import weak_cache
from compiler_core.records.capture import package_of
from compiler_core.torch_private import TorchPatcher, script_if_tracing

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MAGICS = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "kernel_magics") + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
# parts of PyTorch that are ordinary Python code over tensors, and are captured
_CAPTURED_TORCH_PARTS = (
    *("nn/modules/", "nn/functional.py", "nn/utils/", "nn/init.py", "distributions/", "backends/"),
    *("masked/_ops.py", "signal/windows/"),
)
_CAPTURED_TORCH_FILES = tuple(_TORCH + p.replace("/", os.sep) for p in _CAPTURED_TORCH_PARTS)
_TORCH_NN = _TORCH + "nn" + os.sep
_MADE_WITH_FILES = (_TORCH_NN + "init.py", _TORCH_NN + os.path.join("modules", "utils.py"))
_CONTAINERS = _TORCH_NN + os.path.join("modules", "container.py")
_MAKES_MODULE = frozenset({"reset_parameters", "_reset_parameters", "reset_running_stats"})
_CHECKS_OF_DISTRIBUTIONS = tuple(
    _TORCH + os.path.join("distributions", name) for name in ("constraints.py", "utils.py")
)
_PACKING_FILE = _TORCH_NN + os.path.join("utils", "rnn.py")
_RNN_FILE = _TORCH_NN + os.path.join("modules", "rnn.py")
_MODULES = _TORCH_NN + "modules" + os.sep
_CONVOLUTION_FILE = _MODULES + "conv.py"
_FUNCTIONAL_FILE = _TORCH_NN + "functional.py"
_CELLS = frozenset({"RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"})
_PADDING = frozenset({"pad_sequence", "unpad_sequence"})
_OPTIMIZERS = (_TORCH + "optim" + os.sep, _TORCH + os.sep.join(("amp", "grad_scaler.py")))
_MODULE_FILE = _TORCH + os.path.join("nn", "modules", "module.py")
_STOCK_WRAPPERS_FILE = _TORCH + os.path.join("_dynamo", "eval_frame.py")
_FUNCTIONAL_COLLECTIVES_FILE = _TORCH + os.path.join("distributed", "_functional_collectives.py")
_DATA_PARALLEL_FILE = _TORCH + os.path.join("nn", "parallel", "distributed.py")
# modules of the standard library that are ordinary Python code over Python objects, and are inlined
_INLINED_STDLIB_FILES = frozenset(
    name
    for module in (
        *("_collections_abc", "abc", "collections", "contextlib", "copy", "copyreg", "dataclasses", "functools"),
        *("genericpath", "inspect", "operator", "os", "posixpath", "textwrap", "types", "typing"),
    )
    for name in (f"<frozen {module}>", f"{_STDLIB}{module}.py", f"{_STDLIB}{module}{os.sep}__init__.py")
)
# also inlined: methods such as Module.modules() (module calls have their own rule), and torch.no_grad() as a decorator
_INLINED_FILES = (
    "utils/_contextlib.py", "amp/autocast_mode.py", "autograd/function.py", "autograd/grad_mode.py", "_tensor.py",
    "_jit_internal.py", "jit/__init__.py", "_library/custom_ops.py", "_dynamo/mutation_guard.py",
    "functional.py", "nn/_reduction.py", "utils/_foreach_utils.py", "_functorch/functional_call.py", "utils/_pytree.py",
    "utils/checkpoint.py", "nn/attention/_utils.py", "nn/attention/flex_attention.py",
    "_higher_order_ops/associative_scan.py", "_higher_order_ops/utils.py", "_higher_order_ops/flex_attention.py",
    "_higher_order_ops/invoke_subgraph.py", "_dynamo/_trace_wrapped_higher_order_op.py", "_prims_common/__init__.py",
    "return_types.py", "_lowrank.py", "_linalg_utils.py",
)  # fmt: skip
# torch.func, whose frames cannot be resumed after a graph break: PyTorch's state belongs to them
_TRANSFORM_FILES = frozenset(
    _TORCH + os.path.join(*path.split("/"))
    for path in (
        *("_functorch/apis.py", "_functorch/vmap.py", "_functorch/eager_transforms.py", "_functorch/utils.py"),
        *("_functorch/predispatch.py", "autograd/forward_ad.py", "autograd/graph.py"),
    )
)
_INLINED_ONLY_FILES = _INLINED_STDLIB_FILES | {
    _MODULE_FILE,
    *(_TORCH + os.path.join(*path.split("/")) for path in _INLINED_FILES),
    *_TRANSFORM_FILES,
    _FUNCTIONAL_COLLECTIVES_FILE,
    _HERE + os.path.join("capture", "values", "numpy_functions.py"),
}
_SCRIPTED_IF_TRACING = script_if_tracing(len).__code__
_SKIPPED_PACKAGES = frozenset({
    # called by print() and display() in a notebook
    "IPython", "ipykernel", "ipywidgets", "anywidget", "traitlets", "comm", "jupyter_client", "zmq", "tornado",
    "dateutil", "debugpy", "tqdm",
    # not ordinary Python code over tensors
    "numpy", "scipy", "matplotlib", "pandas", "sklearn", "triton", "typing_extensions",
})  # fmt: skip


_disabled: weakref.WeakSet[types.CodeType] = weakref.WeakSet()


def disable_capture(code: types.CodeType) -> None:
    """Never captures frames of this code object from now on; functions that it calls are not affected."""
    _disabled.add(code)


_CACHED_FILES = 4096
"""How many file names' answers are cached: each cell, and each compiled graph, has a new file name."""


@functools.lru_cache(_CACHED_FILES)
def _file_skip_reason(filename: str) -> str:
    """Returns why code of this file is not captured; an empty string if it is."""
    if filename.startswith((_HERE, _MAGICS)):
        return "part of Cutaway"
    if filename.startswith(_TORCH):
        is_open = filename.startswith(_CAPTURED_TORCH_FILES) and filename != _MODULE_FILE
        return "" if is_open else "part of PyTorch's runtime"
    if package := package_of(filename):  # the folder of packages may lie within that of the standard library
        return f"part of {package}" if package in _SKIPPED_PACKAGES else ""
    if filename.startswith((_STDLIB, "<frozen")):
        return "part of the standard library"
    return ""


_user_graphs: set[str] = set()
"""The names of the files of graphs that the user compiled; each graph has its own."""


def add_user_graph(forward: types.FunctionType) -> None:
    """Notes that this is the function of a graph module of the user, which is captured as other code is."""
    filename = forward.__code__.co_filename
    _user_graphs.add(filename)
    weakref.finalize(forward, _user_graphs.discard, filename).atexit = False


def is_runtime(code: types.CodeType) -> bool:
    """Whether this code runs compiled graphs: neither it nor anything that it calls is captured."""
    is_generated = code.co_filename.startswith((_HERE, "<eval_with_key>", "<cutaway"))
    return is_generated and code.co_filename not in _user_graphs


def innermost_frame(is_passed: Callable[[types.CodeType], bool]) -> types.FrameType | None:
    """Returns the innermost frame on this thread's stack but for those whose code is passed."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and is_passed(frame.f_code):
        frame = frame.f_back
    return frame


def runs_once(code: types.CodeType) -> bool:
    """Whether this code of PyTorch runs once: it makes the parameters of a lazy module, or changes PyTorch where stock
    torch.compile is used first, as the first ``torch.cond`` does."""
    return any(code is each for each in _RUN_ONCE)


def is_override(code: types.CodeType) -> bool:
    """Whether PyTorch calls this code for each operation: neither it nor what it calls is compiled by itself."""
    return code.co_name in ("__torch_function__", "__torch_dispatch__")


def imports_modules(code: types.CodeType) -> bool:
    """Whether this code is Python's import system: neither it nor what it runs, the bodies of modules, is compiled.
    They run once, so that compiling them would take longer than running them."""
    return code.co_filename in _IMPORT_SYSTEM


_IMPORT_SYSTEM = frozenset(
    {"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>", "<frozen runpy>"}
)
_RUN_ONCE = (
    vars(torch.nn.modules.lazy.LazyModuleMixin)["_infer_parameters"].__code__,
    inspect.unwrap(TorchPatcher.patch).__code__,
)
_HELPER_FILES = ("<cutaway direct call>", "<cutaway conditions>")
"""The names of generated code that runs no graph."""


def is_graph_code(code: types.CodeType) -> bool:
    """Whether this code was generated to run a graph."""
    return code.co_filename.startswith(("<eval_with_key>", "<cutaway")) and code.co_filename not in _HELPER_FILES


@functools.lru_cache(_CACHED_FILES)
def is_library_file(filename: str) -> bool:
    """Whether a file belongs to PyTorch, the standard library, another skipped package or this compiler."""
    return filename.startswith((_HERE, _TORCH)) or bool(_file_skip_reason(filename))


_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})
_OF_OBJECTS = frozenset({"vars", "dir"})
"""Those of them that read an object if they get one."""


@weak_cache
def reader_of_own_frame(code: types.CodeType) -> tuple[str, int]:
    """Returns the first builtin that the code calls which can read the local variables of its frame, such as
    ``locals``, and the line; an empty string and 0 if there is none."""
    if _FRAME_READERS.isdisjoint(code.co_names):
        return "", 0
    instructions = list(dis.get_instructions(code))
    for at, each in enumerate(instructions):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval in _FRAME_READERS:
            if each.argval not in _OF_OBJECTS or not _is_called_with_arguments(instructions[at + 1 :]):
                return each.argval, (each.positions and each.positions.lineno) or code.co_firstlineno
    return "", 0


def _is_called_with_arguments(following: Sequence[dis.Instruction]) -> bool:
    """Whether a function that was just pushed is called with arguments, which no branch decides."""
    depth = 0
    for at, each in enumerate(following):
        if each.opname in ("PRECALL", "CALL") and depth == each.arg:  # PRECALL, of CPython 3.11, comes before CALL
            return depth > 0
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs or depth < 0:
            return False
        if not (at == 0 and each.opname == "PUSH_NULL"):
            depth += dis.stack_effect(each.opcode, each.arg if each.opcode >= dis.HAVE_ARGUMENT else None)
    return False


def runs_as_a_whole(code: types.CodeType) -> bool:
    """Whether a graph break within this code leaves the whole call to Python: PyTorch's state belongs to its frame, or
    it looks at whether it is compiled."""
    name = code.co_filename
    return name in _TRANSFORM_FILES or name == _FUNCTIONAL_COLLECTIVES_FILE or is_optimizer(code)


def is_optimizer(code: types.CodeType) -> bool:
    """Whether this code is a part of PyTorch's optimizers, or of its scaler of gradients."""
    return code.co_filename.startswith(_OPTIMIZERS)


def is_generator(code: types.CodeType) -> bool:
    """Whether a call only makes an object that runs the body later: a generator or coroutine."""
    return bool(code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))


def is_stock_compiled(code: types.CodeType) -> bool:
    """Whether a function is what stock `torch.compile` returned: its code is a wrapper of PyTorch's."""
    return code.co_filename == _STOCK_WRAPPERS_FILE


def frame_reason(code: types.CodeType) -> str:
    """Returns why a function that the user compiles is not captured; an empty string if it is."""
    if code.co_filename == _DATA_PARALLEL_FILE and code.co_qualname == "DistributedDataParallel.forward":
        return "it calls the module that it wraps, which is compiled, between hooks of its reducer"
    reader, _ = reader_of_own_frame(code)
    if reader:
        return f"it calls {reader}(), which can read its local variables"
    if not set(code.co_cellvars).isdisjoint(code.co_freevars):
        # in a comprehension that Python 3.12 inlined; the symbolic interpreter finds cells by name
        return "a comprehension and the function around it share variables of one name with inner functions"
    return ""


def _makes_module(code: types.CodeType) -> bool:
    """Whether a function of `torch.nn` runs once for each new module, with other sizes each time."""
    is_own = code.co_filename.startswith(_TORCH_NN) and code.co_name in _MAKES_MODULE
    return (
        is_own
        or code.co_filename in _MADE_WITH_FILES
        or (code.co_filename == _CONTAINERS and code.co_name != "forward")
    )


@weak_cache
def _calls_one_kernel(code: types.CodeType) -> bool:
    """Whether a function of `torch.nn` does one operation, such as `nn.Linear` and `torch.nn.functional.relu`: where
    Python calls it, nothing can be fused with it."""
    if code.co_filename == _RNN_FILE:
        return code.co_qualname.partition(".")[0] not in _CELLS
    if code.co_filename in (_FUNCTIONAL_FILE, _CONVOLUTION_FILE):
        return True
    if not code.co_filename.startswith(_MODULES):
        return False
    instructions = list(dis.get_instructions(code))
    calls = [each for each in instructions if each.opname.startswith("CALL")]
    return len(calls) <= 1 and not any(each.opcode in (*dis.hasjrel, *dis.hasjabs) for each in instructions)


def packs_sequences(code: types.CodeType) -> bool:
    """Whether a function of PyTorch makes or reads packed sequences, whose sizes are values of tensors."""
    return code.co_filename == _PACKING_FILE and code.co_name not in _PADDING


def skip_reason(code: types.CodeType, inlining: bool = False) -> str:
    """Returns why a function is not captured, as a frame or, if `inlining`, in its caller; an empty string if it is."""
    if inlining and (code.co_filename in _INLINED_ONLY_FILES or code is _SCRIPTED_IF_TRACING):
        return ""
    if code in _disabled:
        return "disabled by the program"
    if reason := _file_skip_reason(code.co_filename):
        return reason
    if not inlining and is_generator(code):
        return "a generator or coroutine"
    if not inlining and is_override(code):
        return "PyTorch calls it for each operation"
    if not inlining and code.co_name == "__init__":
        return "a constructor"
    if packs_sequences(code):
        return "the sizes of a packed sequence are values of tensors"
    if not inlining and _makes_module(code):
        return "part of making a module"
    if not inlining and code.co_filename in _CHECKS_OF_DISTRIBUTIONS:
        return "part of checking the arguments of a distribution"
    if not inlining and _calls_one_kernel(code):
        return "it only calls PyTorch's own kernel"
    if not inlining and any(getattr(callback, "__code__", None) is code for callback in gc.callbacks):
        return "a callback of the garbage collector, which may run at any time"
    if not inlining and code.co_filename == "<string>":
        return "generated from a string by a library (a namedtuple, a dataclass)"
    # the parts of a notebook cell are compiled as functions, whatever their name
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return "the body of a module or class"
    if reason := frame_reason(code):
        return reason
    if not inlining and code.co_name in ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"):
        return "a comprehension body"
    return ""
