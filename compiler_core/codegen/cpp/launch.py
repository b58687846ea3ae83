"""Compiles C++ source and makes launchers: functions that Python calls with tensors.

A call through `ctypes` with the addresses of seven tensors takes 0.7 us, longer than many kernels.  Here Python calls
a C function that takes the tensor objects, in 0.1 us.  It gets a tensor's address and device type from PyTorch's stable
C interface (`aoti_torch_get_data_ptr`, `aoti_torch_get_device_type`), and rejects tensors that are not on the CPU.
These functions take a tensor handle, whose offset in the Python object is not documented.  The offset is therefore
searched in a tensor; if it is not found, kernels are called through `ctypes`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.source import Launcher
from compiler_core.torch_private import C

LAUNCH_SOURCE = """
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
  if (!is_tensor) return fail("a kernel was called with an argument that is not a tensor");
  char* const handle = (char*)given + python.handle_at;
  int device;
  if (python.device_type(handle, &device)) return fail("a kernel was called with a tensor without a device");
  if (device != CPU) return fail("a C++ kernel was called with a tensor that is not on the CPU");
  return !python.address(handle, address) || fail("a kernel was called with a tensor without memory");
}
static bool take(char kind, Object* given, Slot& slot) {
  if (kind == 't') return address_of(given, &slot.address);
  if (kind == 'w') return (slot.whole = python.whole(given)) != -1 || !python.occurred();
  return (slot.real = python.real(given)) != -1 || !python.occurred();
}
static Object* launch(Object* of, Object* const* given, i64 count) {
  const Kernel& kernel = *(const Kernel*)python.whole(of);
  if (count != kernel.count) return fail("a kernel was called with the wrong number of arguments"), nullptr;
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
"""The C method that launches every kernel; its `self` is an integer, the address of the kernel's descriptor."""

DESCRIPTOR_TYPES = """
union Slot { void* address; i64 whole; f64 real; };
struct Kernel { i64 (*run)(const Slot*); const char* kinds; i64 count; };
struct Address { void* of; template <class T> operator T*() const { return (T*)of; } };
"""
"""Appended to the source of kernels; the descriptors of the kernels follow."""

CPU_DEVICE_TYPE = 0
"""The number of the CPU in PyTorch's C interface."""
PARAMETER_KINDS = {
    "c_void_p": ("t", "Address{{a[{}].address}}"),
    "c_int64": ("w", "a[{}].whole"),
    "c_double": ("r", "a[{}].real"),
}


class _CApi(ctypes.Structure):
    """The structure `Python` of `LAUNCH_SOURCE`: types, the handle's offset in bytes, and functions of Python and
    PyTorch."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("tensor", "type_error")),
        ("handle_at", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("address", "device_type", "is_subtype", "whole", "real", "occurred")),
        *((name, ctypes.c_void_p) for name in ("raise", "release", "acquire", "truth")),
    )


def launchers(source: str) -> dict[str, Launcher]:
    """Compiles `source` and returns the launchers of its kernels, by name; raises BuildError if it cannot be built."""
    signatures = build.signatures(source)
    if not signatures:
        return {}
    make = _launcher_factory()
    if make is None:
        return {name: _ctypes_launcher(function) for name, function in build.functions(source).items()}
    library = build.load(library_source(source), is_of_graph=True)
    return {s.name: make(ctypes.addressof(ctypes.c_char.in_dll(library, f"of_{s.name}"))) for s in signatures}


def library_source(source: str) -> str:
    """Returns the source of kernels with their descriptors, from which their library is built."""
    return source + DESCRIPTOR_TYPES + "".join(map(_descriptor, build.signatures(source)))


def _ctypes_launcher(function: Callable[..., Any]) -> Launcher:
    def launch(*args: Any) -> Any:
        return function(*(_cpu_address(a) if isinstance(a, torch.Tensor) else a for a in args))

    return launch


def _cpu_address(tensor: torch.Tensor) -> int:
    if not tensor.is_cpu:
        raise TypeError("a C++ kernel was called with a tensor that is not on the CPU")
    return tensor.data_ptr()


def _descriptor(kernel: build.Signature) -> str:
    name, kinds = kernel.name, "".join(PARAMETER_KINDS[p][0] for p in kernel.parameters)
    call = f"{name}({', '.join(PARAMETER_KINDS[p][1].format(n) for n, p in enumerate(kernel.parameters))})"
    body = f"return {call};" if kernel.returns else f"{call}; return 0;"
    return (
        f"static i64 run_{name}(const Slot* a) {{ {body} }}\n"
        f'extern "C" const Kernel of_{name} = {{run_{name}, "{kinds}", {len(kinds)}}};\n'
    )


@functools.cache
def _launcher_factory() -> Callable[[int], Launcher] | None:
    """Returns a function that makes the launcher of the kernel whose descriptor is at the given address.

    Returns None if Python tensors do not have the expected layout.
    """
    python = _c_api()
    if python is None:
        return None
    library = build.load(LAUNCH_SOURCE)
    library.bind(ctypes.byref(python))
    method = ctypes.addressof(ctypes.c_char.in_dll(library, "method"))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return lambda address: make(method, address, None)


def _c_api() -> _CApi | None:
    tensor = torch.empty(3, device="cpu")
    handle_at = _handle_offset(tensor)
    library = ctypes.CDLL(C.__file__)
    address, device_type = (getattr(library, f"aoti_torch_get_{name}", None) for name in ("data_ptr", "device_type"))
    if handle_at is None or address is None or device_type is None:
        return None
    handle, found, device = ctypes.c_void_p(id(tensor) + handle_at), ctypes.c_void_p(), ctypes.c_int(-1)
    if address(handle, ctypes.byref(found)) or found.value != tensor.data_ptr():
        return None
    if device_type(handle, ctypes.byref(device)) or device.value != CPU_DEVICE_TYPE:
        return None
    api = ctypes.pythonapi
    functions = (
        *(address, device_type, api.PyType_IsSubtype, api.PyLong_AsLongLong, api.PyFloat_AsDouble, api.PyErr_Occurred),
        *(api.PyErr_SetString, api.PyEval_SaveThread, api.PyEval_RestoreThread, api.PyBool_FromLong),
    )
    addresses = (ctypes.cast(function, ctypes.c_void_p) for function in functions)
    return _CApi(id(torch.Tensor), id(TypeError), handle_at, *addresses)


def _handle_offset(tensor: torch.Tensor) -> int | None:
    """Returns the byte offset of the pointer to the C++ tensor in a Python tensor; None if it is not found, or if the
    type pointer is not where `Object` has it."""
    words = list((ctypes.c_size_t * 4).from_address(id(tensor)))
    if words[1] != id(type(tensor)) or tensor._cdata not in words[2:]:
        return None
    return words.index(tensor._cdata) * ctypes.sizeof(ctypes.c_size_t)
