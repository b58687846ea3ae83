"""Which code the compiler does not look into, and why."""

from __future__ import annotations

import dis
import functools
import inspect
import os
import sysconfig
import types
import weakref

import torch

from compiler_core.guards.lifetimes import weak_cache

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MAGICS = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "kernel_magics") + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_SITE = tuple(sysconfig.get_path(k) + os.sep for k in ("purelib", "platlib"))
# parts of PyTorch that are ordinary Python over tensors
_OPEN = (
    *("nn/modules/", "nn/functional.py", "nn/utils/", "nn/init.py", "distributions/", "backends/"),
    *("masked/_ops.py", "signal/windows/"),
)
_TORCH_OPEN = tuple(_TORCH + p.replace("/", os.sep) for p in _OPEN)
_TORCH_CLOSED = _TORCH + os.path.join("nn", "modules", "module.py")
# modules of the standard library that are ordinary Python over Python's own objects
_STDLIB_OPEN = frozenset(
    name
    for module in (
        *("_collections_abc", "abc", "collections", "contextlib", "copy", "dataclasses", "functools"),
        *("operator", "os", "types", "typing"),
    )
    for name in (f"<frozen {module}>", f"{_STDLIB}{module}.py", f"{_STDLIB}{module}{os.sep}__init__.py")
)
# and Module.modules() and the like (calls of modules have a rule of their own), torch.no_grad() as a decorator
_INLINED_FILES = (
    "utils/_contextlib.py", "amp/autocast_mode.py", "autograd/function.py", "autograd/grad_mode.py", "_tensor.py",
    "_jit_internal.py", "jit/__init__.py", "_library/custom_ops.py", "_dynamo/mutation_guard.py",
    "utils/_foreach_utils.py",
)  # fmt: skip
_INLINED_ONLY = _STDLIB_OPEN | {
    _TORCH_CLOSED,
    *(_TORCH + os.path.join(*path.split("/")) for path in _INLINED_FILES),
}
_PACKAGES_CLOSED = frozenset({
    # what a notebook's print() and display() go through
    "IPython", "ipykernel", "ipywidgets", "anywidget", "traitlets", "comm", "jupyter_client", "zmq", "tornado",
    "dateutil", "debugpy", "tqdm",
    # no ordinary Python over tensors
    "numpy", "scipy", "matplotlib", "pandas", "sklearn", "triton",
})  # fmt: skip


_left_alone: weakref.WeakSet[types.CodeType] = weakref.WeakSet()


def leave_alone(code: types.CodeType) -> None:
    """Never capture frames of this code object; what it calls is looked at as before."""
    _left_alone.add(code)


@functools.cache
def _closed_file(filename: str) -> str:
    """Why code of this file is left alone; empty where it is not."""
    if filename.startswith((_HERE, _MAGICS)):
        return "part of Cutaway"
    if filename.startswith(_TORCH):
        is_open = filename.startswith(_TORCH_OPEN) and filename != _TORCH_CLOSED
        return "" if is_open else "part of PyTorch's runtime"
    if filename.startswith(_SITE):
        package = filename.removeprefix(next(s for s in _SITE if filename.startswith(s))).split(os.sep)[0]
        return f"part of {package}" if package.removesuffix(".py") in _PACKAGES_CLOSED else ""
    if filename.startswith((_STDLIB, "<frozen")):
        return "part of the standard library"
    return ""


def is_runtime(code: types.CodeType) -> bool:
    """Whether this is code that runs compiled graphs: neither it nor anything that it calls is captured."""
    return code.co_filename.startswith((_HERE, "<eval_with_key>", "<cutaway"))


@functools.cache
def is_library_file(filename: str) -> bool:
    """Whether lines of this file are not the user's: PyTorch's, the standard library's or ours."""
    return filename.startswith((_HERE, _TORCH)) or bool(_closed_file(filename))


_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})


@weak_cache
def reads_its_frame(code: types.CodeType) -> bool:
    """Whether a builtin called here would see the locals of generated code."""
    if _FRAME_READERS.isdisjoint(code.co_names):
        return False
    loads = (x for x in dis.get_instructions(code) if x.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return any(x.argval in _FRAME_READERS for x in loads)


def is_generator(code: types.CodeType) -> bool:
    """Whether calling it only makes an object, which runs the body later (also coroutines)."""
    return bool(code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))


def has_two_cells_of_one_name(code: types.CodeType) -> bool:
    """Whether a name is a free variable and, in a comprehension that Python inlined (3.12), a cell: the symbolic
    interpreter knows cells by their name."""
    return not set(code.co_cellvars).isdisjoint(code.co_freevars)


def skip_reason(code: types.CodeType, inlining: bool = False) -> str:
    """Why a function is not captured, as a frame of its own or (`inlining`) in its caller's."""
    if inlining and code.co_filename in _INLINED_ONLY:
        return ""
    if code in _left_alone:
        return "disabled by the program"
    if reason := _closed_file(code.co_filename):
        return reason
    if not inlining and is_generator(code):
        return "a generator or coroutine"
    if not inlining and code.co_name == "__init__":
        return "a constructor"
    if not inlining and code.co_filename == "<string>":
        return "made from a string by a library (a namedtuple, a dataclass)"
    # a notebook cell's units are functions, whatever their name
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return "the body of a module or class"
    if reads_its_frame(code):
        return "it looks at its own local variables"
    if has_two_cells_of_one_name(code):
        return "a comprehension and the function around it share variables of one name with inner functions"
    if not inlining and code.co_name in ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"):
        return "a comprehension body"
    return ""
