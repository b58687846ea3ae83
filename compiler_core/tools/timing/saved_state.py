"""Saves the state that functions can reach, to restore it in place after they ran.

Reached are tensors, containers, attributes, closure cells, and the global names of functions.  Objects keep their
identity, so that compiled code and its guards stay valid.  State that cannot be saved (generators, open files) is
listed.
"""

from __future__ import annotations

import collections
import collections.abc
import io
import logging
import random
import threading
import types
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from compiler_core.support import interrupts
from compiler_core.tools.timing.process_state import save_process_state
from compiler_core.tools.timing.state_parts import (
    Part,
    StorageState,
    TensorState,
    array_state,
    cell_content,
    class_attributes,
    elements_state,
    generator_state,
    global_names,
    grad_of,
    items_state,
    slots_of,
    storage_of,
)
from compiler_core.torch_private import unsafe_preserve_version_counter

MAX_OBJECTS = 1_000_000
"""How many objects are visited at most."""
_PLAIN = (
    int, float, complex, str, bytes, bool, type(None), range, slice, torch.dtype, torch.device, torch.Size,
    types.ModuleType, types.BuiltinFunctionType, types.CodeType, logging.Logger, threading.Thread,
    type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip
"""Types without state that a program changes, or with state that is not the program's."""
_ITERATORS = (collections.abc.Iterator, collections.abc.Coroutine, collections.abc.AsyncGenerator)


class SavedState:
    """The state that `roots` can reach: functions, modules, arguments; without that of the objects `skipped`.

    `obstacles` describes state that a call may change and that cannot be restored.
    """

    def __init__(self, roots: Sequence[Any], skipped: Sequence[Any] = ()) -> None:
        self.tensors: list[torch.Tensor] = []
        self.obstacles: list[str] = []
        found = [f.__globals__ for f in map(_function, roots) if f is not None]
        self._namespaces = [n for n in found if not str(n.get("__name__")).startswith("torch.")]
        self._parts: list[Part] = []
        self._changing: list[Part] | None = None
        self._seen: dict[int, Any] = {id(each): each for each in skipped}
        self._storages: set[int] = set()
        self._visit_all(roots)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Context manager that restores everything at its end, random states and versions of tensors included."""
        restore_process = save_process_state()
        with ExitStack() as versions:
            for tensor in self.tensors:
                versions.enter_context(_kept_version(tensor))
            try:
                yield
            finally:
                with interrupts.deferred_signals():
                    restore_process()
                    for part in self._parts:
                        part.restore()

    def restore(self) -> None:
        """Restores all but random states and versions."""
        changed = [part for part in self._parts if part.restore()]
        known = self._changing or []
        self._changing = known + [part for part in changed if not any(part is each for each in known)]

    def restore_quickly(self) -> None:
        """Restores the state that had changed in an earlier `restore`: the same calls change it again."""
        for part in self._changing or ():
            part.restore()

    # ---- the walk

    def _visit_all(self, roots: Sequence[Any]) -> None:
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            if isinstance(value, _PLAIN) or id(value) in self._seen:
                continue
            if len(self._seen) >= MAX_OBJECTS:
                self.obstacles.append(f"more than {MAX_OBJECTS:,} objects")
                return
            self._seen[id(value)] = value
            waiting += self._visit(value)

    def _visit(self, value: Any) -> list[Any]:
        """Saves the state of one object; returns what it holds."""
        if isinstance(value, torch.Tensor):
            return self._visit_tensor(value)
        if isinstance(value, types.FunctionType):
            return self._visit_function(value)
        if isinstance(value, type):
            return self._visit_class(value)
        if isinstance(value, types.MethodType):
            return [value.__func__, value.__self__]
        if isinstance(value, (tuple, frozenset)):
            return list(value)
        if self._save_special(value):
            return []
        return [*self._visit_container(value), *self._visit_attributes(value)]

    def _visit_tensor(self, tensor: torch.Tensor) -> list[Any]:
        self.tensors.append(tensor)
        self._parts.append(TensorState(tensor))
        storage = storage_of(tensor)
        if storage is not None and storage.data_ptr() not in self._storages:
            self._storages.add(storage.data_ptr())
            self._parts.append(StorageState(storage))
        return [grad_of(tensor)]

    def _visit_function(self, function: types.FunctionType) -> list[Any]:
        if not any(function.__globals__ is each for each in self._namespaces):
            return [getattr(function, "__wrapped__", None)]  # a decorator of a library
        named = [cell_content(cell) for cell in function.__closure__ or ()]
        named.append(global_names(function.__globals__, _names_used(function.__code__)))
        self._parts += named
        held = [value for each in named for value in each.saved.values()]
        return [*held, function.__defaults__, function.__kwdefaults__, vars(function)]

    def _visit_class(self, cls: type) -> list[Any]:
        if not any(cls.__module__ == each.get("__name__") for each in self._namespaces):
            return []
        state = class_attributes(cls)
        self._parts.append(state)
        return [*state.saved.values(), *(getattr(v, "__func__", getattr(v, "fget", v)) for v in vars(cls).values())]

    def _visit_container(self, value: Any) -> list[Any]:
        if isinstance(value, dict):
            self._parts.append(items_state(value))
            return [*dict.keys(value), *dict.values(value)]
        if isinstance(value, (list, collections.deque, bytearray, set)):
            self._parts.append(elements_state(value))
            return [] if isinstance(value, bytearray) else list(value)
        return []

    def _visit_attributes(self, value: Any) -> list[Any]:
        held = [type(value)]
        has_attributes = isinstance(getattr(value, "__dict__", None), dict)
        names = [n for cls in type(value).__mro__ for n in _slots(cls)]
        if names:
            slots = slots_of(value, names)
            self._parts.append(slots)
            held += slots.saved.values()
        if has_attributes:
            held.append(vars(value))
        elif not names and isinstance(value, _ITERATORS):
            self.obstacles.append(f"an iterator ({type(value).__name__})")
        return held

    def _save_special(self, value: Any) -> bool:
        """Saves the state of random generators and arrays, which are not plain Python objects."""
        if isinstance(value, io.IOBase):
            if not value.closed and value.writable():
                self.obstacles.append(f"an open file ({getattr(value, 'name', type(value).__name__)})")
            return True
        if isinstance(value, torch.Generator):
            self._parts.append(generator_state(value.get_state, value.set_state))
        elif isinstance(value, random.Random):
            self._parts.append(generator_state(value.getstate, value.setstate))
        elif type(value).__module__.partition(".")[0] == "numpy":
            self._save_numpy(value)
        else:
            return False
        return True

    def _save_numpy(self, value: Any) -> None:
        import numpy

        if isinstance(value, numpy.ndarray):
            self._parts.append(array_state(value))
        elif isinstance(value, numpy.random.Generator):
            bits = value.bit_generator
            self._parts.append(generator_state(lambda: bits.state, lambda state: setattr(bits, "state", state)))
        elif isinstance(value, numpy.random.RandomState):
            self._parts.append(generator_state(value.get_state, value.set_state))


def _function(value: Any) -> types.FunctionType | None:
    """Returns the function of a callable that is written in Python."""
    value = getattr(value, "forward", value) if isinstance(value, torch.nn.Module) else value
    value = getattr(value, "__func__", value)
    return value if isinstance(value, types.FunctionType) else None


def _names_used(code: types.CodeType) -> set[str]:
    return set(code.co_names).union(*(_names_used(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def _slots(cls: type) -> list[str]:
    """Returns the names of the slots of a class that is written in Python."""
    slots = vars(cls).get("__slots__", ())
    known = {slots} if isinstance(slots, str) else set(slots)
    return [name for name in vars(cls) if name in known and isinstance(vars(cls)[name], types.MemberDescriptorType)]


@contextmanager
def _kept_version(tensor: torch.Tensor) -> Iterator[None]:
    """Context manager that restores the version of a tensor: graphs of earlier calls may have saved it."""
    if tensor.is_inference():
        yield
        return
    with unsafe_preserve_version_counter(tensor):
        yield
