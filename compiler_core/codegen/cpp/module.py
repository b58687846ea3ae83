"""From C++ source to functions that Python calls with tensors.

A call through `ctypes` with the addresses of seven tensors takes 0.7 us, which is more than many a kernel.  Here Python
calls a function of C that takes the tensors themselves, in 0.1 us.  Where a tensor has its memory PyTorch says, by a
function of its stable C interface (`aoti_torch_get_data_ptr`), and by another on which device: no kernel is handed the
address of what lies elsewhere.  What nobody promises is where in a Python tensor the handle lies that these functions
take.  So that is looked up, in a tensor, and where it is not found kernels are called through `ctypes`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.source import Launcher

SOURCE = """
using i64 = __INT64_TYPE__;
struct Object { i64 references; void* type; };
union Slot { void* address; i64 whole; double real; };
struct Kernel { i64 (*run)(const Slot*); const char* kinds; i64 count; };
struct Python {
  void *tensor, *type_error;
  i64 handle_at;
  int (*address)(void*, void**);
  int (*device_type)(void*, int*);
  int (*is_subtype)(void*, void*);
  i64 (*whole)(Object*);
  double (*real)(Object*);
  Object* (*occurred)();
  void (*raise)(void*, const char*);
  void* (*release)();
  void (*acquire)(void*);
  Object* (*truth)(long);
};
static Python python;
static const int CPU = 0;
static bool fail(const char* why) { python.raise(python.type_error, why); return false; }
static bool address_of(Object* given, void** address) {
  const bool is_tensor = given->type == python.tensor || python.is_subtype(given->type, python.tensor);
  if (!is_tensor) return fail("a kernel takes tensors");
  char* const handle = (char*)given + python.handle_at;
  int device;
  if (python.device_type(handle, &device)) return fail("a kernel takes tensors that have a device");
  if (device != CPU) return fail("a kernel in C++ takes tensors on the CPU, and was given one on another device");
  return !python.address(handle, address) || fail("a kernel takes tensors that have memory");
}
static bool take(char kind, Object* given, Slot& slot) {
  if (kind == 't') return address_of(given, &slot.address);
  if (kind == 'w') return (slot.whole = python.whole(given)) != -1 || !python.occurred();
  return (slot.real = python.real(given)) != -1 || !python.occurred();
}
static Object* launch(Object* of, Object* const* given, i64 count) {
  const Kernel& kernel = *(const Kernel*)python.whole(of);
  if (count != kernel.count) return fail("a kernel was called with too few or too many arguments"), nullptr;
  Slot* slots = (Slot*)__builtin_alloca(count * sizeof(Slot));
  for (i64 n = 0; n < count; ++n)
    if (!take(kernel.kinds[n], given[n], slots[n])) return nullptr;
  void* thread = python.release();
  const i64 fault = kernel.run(slots);
  python.acquire(thread);
  return python.truth(fault != 0);
}
struct Method { const char* name; Object* (*function)(Object*, Object* const*, i64); int flags; const char* doc; };
static const int METH_FASTCALL = 0x80;
extern "C" const Method method = {"launch", launch, METH_FASTCALL, nullptr};
extern "C" void bind(const Python* given) { python = *given; }
"""
"""What launches all kernels: a method of a number, the address of what is known of one."""

DESCRIBED = """
union Slot { void* address; i64 whole; f64 real; };
struct Kernel { i64 (*run)(const Slot*); const char* kinds; i64 count; };
struct Address { void* of; template <class T> operator T*() const { return (T*)of; } };
"""
"""Stands behind the source of kernels, and after it for each one what `launch` is to know."""

CPU = 0
"""How that interface numbers the CPU among types of devices."""
KINDS = {
    "c_void_p": ("t", "Address{{a[{}].address}}"),
    "c_int64": ("w", "a[{}].whole"),
    "c_double": ("r", "a[{}].real"),
}


class _Python(ctypes.Structure):
    """What `launch` knows of Python and PyTorch: types, a distance in bytes, functions."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("tensor", "type_error")),
        ("handle_at", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("address", "device_type", "is_subtype", "whole", "real", "occurred")),
        *((name, ctypes.c_void_p) for name in ("raise", "release", "acquire", "truth")),
    )


def launchers(source: str) -> dict[str, Launcher]:
    """The kernels in `source`, by name.

    BuildError: they could not be built.
    """
    signatures = build.signatures(source)
    if not signatures:
        return {}
    make = _launch()
    if make is None:
        return {name: _by_addresses(function) for name, function in build.functions(source).items()}
    library = build.load(source + DESCRIBED + "".join(map(_described, signatures)))
    return {s.name: make(ctypes.addressof(ctypes.c_char.in_dll(library, f"of_{s.name}"))) for s in signatures}


def _by_addresses(function: Callable[..., Any]) -> Launcher:
    def launch(*args: Any) -> Any:
        return function(*(_address_of(a) if isinstance(a, torch.Tensor) else a for a in args))

    return launch


def _address_of(tensor: torch.Tensor) -> int:
    if not tensor.is_cpu:
        raise TypeError("a kernel in C++ takes tensors on the CPU, and was given one on another device")
    return tensor.data_ptr()


def _described(kernel: build.Signature) -> str:
    name, kinds = kernel.name, "".join(KINDS[p][0] for p in kernel.parameters)
    call = f"{name}({', '.join(KINDS[p][1].format(n) for n, p in enumerate(kernel.parameters))})"
    body = f"return {call};" if kernel.returns else f"{call}; return 0;"
    return (
        f"static i64 run_{name}(const Slot* a) {{ {body} }}\n"
        f'extern "C" const Kernel of_{name} = {{run_{name}, "{kinds}", {len(kinds)}}};\n'
    )


@functools.cache
def _launch() -> Callable[[int], Launcher] | None:
    """A function that launches the kernel of which the given address tells; None where tensors are not as expected."""
    python = _python()
    if python is None:
        return None
    library = build.load(SOURCE)
    library.bind(ctypes.byref(python))
    method = ctypes.addressof(ctypes.c_char.in_dll(library, "method"))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return lambda address: make(method, address, None)


def _python() -> _Python | None:
    tensor = torch.empty(3, device="cpu")
    handle_at = _handle_at(tensor)
    library = ctypes.CDLL(torch._C.__file__)
    address, device_type = (getattr(library, f"aoti_torch_get_{name}", None) for name in ("data_ptr", "device_type"))
    if handle_at is None or address is None or device_type is None:
        return None
    handle, found, device = ctypes.c_void_p(id(tensor) + handle_at), ctypes.c_void_p(), ctypes.c_int(-1)
    if address(handle, ctypes.byref(found)) or found.value != tensor.data_ptr():
        return None
    if device_type(handle, ctypes.byref(device)) or device.value != CPU:
        return None
    api = ctypes.pythonapi
    functions = (
        *(address, device_type, api.PyType_IsSubtype, api.PyLong_AsLongLong, api.PyFloat_AsDouble, api.PyErr_Occurred),
        *(api.PyErr_SetString, api.PyEval_SaveThread, api.PyEval_RestoreThread, api.PyBool_FromLong),
    )
    addresses = (ctypes.cast(function, ctypes.c_void_p) for function in functions)
    return _Python(id(torch.Tensor), id(TypeError), handle_at, *addresses)


def _handle_at(tensor: torch.Tensor) -> int | None:
    """How many bytes into a Python tensor the pointer to PyTorch's own lies; a type must lie where `Object` has it."""
    words = list((ctypes.c_size_t * 4).from_address(id(tensor)))
    if words[1] != id(type(tensor)) or tensor._cdata not in words[2:]:
        return None
    return words.index(tensor._cdata) * ctypes.sizeof(ctypes.c_size_t)
