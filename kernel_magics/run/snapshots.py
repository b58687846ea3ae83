"""Saves the state that a cell can reach, so that it can run a second time on copies of the state before the first."""

from __future__ import annotations

import copy
import dis
import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any

TOLERANCE = 1e-4
"""Differences of values up to this are not reported."""
RANDOM_NOTE = (
    "the cell draws random numbers, and stock torch.compile draws others than PyTorch "
    "unless torch._inductor.config.fallback_random is set"
)
_IPYTHON_NAMES = frozenset({"get_ipython", "In", "Out"})
GLOBAL_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
ATTRIBUTE_LOADS = ("LOAD_ATTR", "LOAD_METHOD")
_FUNCTION_STATE = ("__defaults__", "__kwdefaults__", "__dict__")
_BY_REFERENCE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
_DESCRIPTORS = (classmethod, staticmethod, property, types.MemberDescriptorType, types.GetSetDescriptorType)


class Snapshot:
    """The state that a cell can reach, before it runs: global names, and the state of functions and classes."""

    def __init__(self, namespace: dict[str, Any], codes: list[types.CodeType]) -> None:
        self._namespace = namespace
        found, holders = reachable(namespace, codes)
        self.names = found - _IPYTHON_NAMES
        self._places = [_NamespaceState(namespace), *map(_state_of, holders)]
        self._before = [place.read() for place in self._places]
        self.not_copied: list[str] = []
        """Objects that cannot be copied, so that both runs share them; later also outside effects."""
        memo: dict[int, Any] = {}  # one memo for all copies, so that aliases stay aliases
        own = {name: value for name, value in self._before[0].items() if name in self.names}
        self._copies = [dict(self._copied(own, memo, _names_written_first(codes)))]
        self._copies += [dict(self._copied(values, memo)) for values in self._before[1:]]
        from compiler_core.tools.timing.process_state import save_process_state  # imports PyTorch

        self._save_process_state = save_process_state
        self._restore_surroundings = save_process_state()

    def _copied(
        self, values: Mapping[str, Any], memo: dict[int, Any], overwritten: Set[str] = frozenset()
    ) -> Iterator[tuple[str, Any]]:
        for name, value in sorted(values.items()):
            if isinstance(value, _BY_REFERENCE):
                continue
            try:
                yield name, copy.deepcopy(value, memo)
            except Exception as error:
                if name not in overwritten:  # such as the loss of an earlier cell, which has an autograd graph
                    self.not_copied.append(f"{name} ({type(value).__name__}: {error})".replace("\n", " ")[:200])

    @contextmanager
    def restored(self) -> Iterator[Callable[[], dict[str, Any]]]:
        """Restores the saved state, as copies, inside the block, and the state after the first run at its end.

        Yields a function that returns the current values of the names.
        """
        after, restore = [place.read() for place in self._places], self._save_process_state()
        for place, before, copies in zip(self._places, self._before, self._copies, strict=True):
            place.write({**before, **copies})
        self._restore_surroundings()
        try:
            yield lambda: dict(self._namespace)
        finally:
            for place, values in zip(self._places, after, strict=True):
                place.write(values)
            restore()


class _NamespaceState:
    """The state of a namespace: its names."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    def read(self) -> dict[str, Any]:
        return dict(self._namespace)

    def write(self, wanted: dict[str, Any]) -> None:
        for name in [name for name in self._namespace if name not in wanted and not name.startswith("__")]:
            del self._namespace[name]  # except a compiler's names (``__...``), which it removes itself
        self._namespace.update(wanted)


class _ClassState:
    """The state of a class: its attributes that are neither methods nor descriptors."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def read(self) -> dict[str, Any]:
        kept = {n: v for n, v in vars(self._cls).items() if not n.startswith(("__", "_abc_"))}
        return {n: v for n, v in kept.items() if not isinstance(v, (*_BY_REFERENCE, *_DESCRIPTORS))}

    def write(self, wanted: dict[str, Any]) -> None:
        for name in self.read().keys() - wanted.keys():
            delattr(self._cls, name)
        for name, value in wanted.items():
            with suppress(AttributeError):  # members of an enumeration cannot be set
                setattr(self._cls, name, value)


class _FunctionState:
    """The state of a function: its closure cells, defaults and attributes."""

    def __init__(self, function: types.FunctionType) -> None:
        self._function = function
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def read(self) -> dict[str, Any]:
        from compiler_core.tools.timing.state_parts import has_value

        cells = {name: cell.cell_contents for name, cell in self._cells.items() if has_value(cell)}
        return cells | {name: getattr(self._function, name) for name in _FUNCTION_STATE}

    def write(self, wanted: dict[str, Any]) -> None:
        for name, value in wanted.items():
            if name in self._cells:
                self._cells[name].cell_contents = value
            else:
                setattr(self._function, name, value)


def _state_of(holder: types.FunctionType | type) -> _FunctionState | _ClassState:
    return _ClassState(holder) if isinstance(holder, type) else _FunctionState(holder)


def reachable(
    namespace: dict[str, Any], codes: list[types.CodeType]
) -> tuple[set[str], list[types.FunctionType | type]]:
    """Returns the global names that `codes` use, directly or through functions and classes of the namespace, and those
    functions and classes."""
    found: set[str] = set()
    holders: dict[int, types.FunctionType | type] = {}
    work = list(codes)
    while work:
        code = work.pop()
        work += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for name in set(code.co_names) - found:
            found.add(name)
            for holder in _holders(namespace.get(name), namespace):
                if id(holder) not in holders:
                    holders[id(holder)] = holder
                    work += codes_of(holder, namespace)
    return found, list(holders.values())


def _names_written_first(codes: Sequence[types.CodeType]) -> set[str]:
    """Returns the global names that a cell writes in any case before it reads them."""
    found, read = set[str](), set[str]()
    for code in codes:
        has_branched = False
        for instruction in dis.get_instructions(code):
            has_branched |= instruction.opcode in (*dis.hasjrel, *dis.hasjabs)
            if instruction.opname in GLOBAL_LOADS:
                read.add(instruction.argval)
            elif instruction.opname in ("STORE_GLOBAL", "STORE_NAME") and not has_branched:
                found.update({instruction.argval} - read)
    return found


def _holders(value: Any, namespace: dict[str, Any]) -> Iterator[types.FunctionType | type]:
    """Yields the functions and classes of this namespace that a value is, is an instance of, wraps, closes over, or has
    as modules."""
    import torch

    from compiler_core.tools.timing.state_parts import has_value

    work, seen = [value], set[int]()
    while work:
        each = work.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, types.MethodType):
            work += [each.__func__, each.__self__]
        elif isinstance(each, types.FunctionType):
            if each.__globals__ is namespace:
                yield each
                work += [cell.cell_contents for cell in each.__closure__ or () if has_value(cell)]
            else:
                work.append(getattr(each, "__wrapped__", None))
        else:
            for cls in (each if isinstance(each, type) else type(each)).__mro__:
                if cls.__module__ == namespace.get("__name__"):
                    yield cls
            if isinstance(each, torch.nn.Module):
                work += each._modules.values()


def codes_of(holder: types.FunctionType | type, namespace: dict[str, Any]) -> list[types.CodeType]:
    """Returns the code of a function, or of a class's methods, whose globals are this namespace."""
    held = [holder] if isinstance(holder, types.FunctionType) else vars(holder).values()
    plain = [getattr(each, "__func__", getattr(each, "fget", None) or each) for each in held]
    return [f.__code__ for f in plain if isinstance(f, types.FunctionType) and f.__globals__ is namespace]


def held_codes(namespace: dict[str, Any], codes: list[types.CodeType]) -> list[types.CodeType]:
    """Returns the code of the functions and classes of the namespace that `codes` use."""
    _, holders = reachable(namespace, codes)
    return [code for holder in holders for code in codes_of(holder, namespace)]


def names_read(code: types.CodeType, loads: tuple[str, ...] = GLOBAL_LOADS) -> set[str]:
    """Returns the names of the globals, or of what else `loads` are the instructions for, that code reads, that of
    nested functions included."""
    own = {i.argval for i in dis.get_instructions(code) if i.opname in loads}
    return own.union(*(names_read(each, loads) for each in code.co_consts if isinstance(each, types.CodeType)))


def plain_values(namespace: Mapping[str, Any], codes: Sequence[types.CodeType], value: object) -> dict[str, object]:
    """Returns copies of the values of a cell (`values_by_name`) that are tensors, numbers, texts, or contain any."""
    found = values_by_name(namespace, codes, value)
    return {name: plain_copy(each) for name, each in found.items() if _is_plain(each)}


def values_by_name(namespace: Mapping[str, Any], codes: Sequence[types.CodeType], value: object) -> dict[str, object]:
    """Returns the value of a cell, and those of the global names in its code, with modules' state and gradients."""
    import torch

    names = sorted({name for code in codes for name in code.co_names})
    found = {"the value of the cell": value} | {name: namespace.get(name) for name in names}
    for name, module in list(found.items()):
        if isinstance(module, torch.nn.Module):
            tensors = dict(module.named_parameters()) | dict(module.named_buffers())
            found |= {f"{name}.{key}": tensor for key, tensor in tensors.items()}
    return found | {f"{name}.grad": _grad(each) for name, each in found.items()}


def _grad(value: object) -> object:
    import torch

    return value.grad if isinstance(value, torch.Tensor) and value.is_leaf else None


def _is_plain(value: object) -> bool:
    from compiler_core.torch_private import tree_leaves

    return any(isinstance(leaf, _plain_types()) for leaf in tree_leaves(value))


def plain_copy(value: object) -> object:
    """Returns a copy of what a value has of tensors, numbers and texts; in place of other objects, their class."""
    import torch

    from compiler_core.torch_private import tree_map

    def copied(leaf: object) -> object:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        return leaf if isinstance(leaf, _plain_types()) else type(leaf).__qualname__

    return tree_map(copied, value)


def _plain_types() -> tuple[type, ...]:
    import numpy as np
    import torch

    return int, float, complex, str, bytes, torch.Tensor, np.generic


def value_difference(one: object, other: object) -> str | None:
    """Returns how two values differ by more than `TOLERANCE`; None if they do not."""
    from compiler_core.tools.testing import difference

    if one is other:
        return None
    try:
        if all(callable(getattr(each, "state_dict", None)) and not isinstance(each, type) for each in (one, other)):
            one, other = one.state_dict(), other.state_dict()  # type: ignore[attr-defined]
        how = difference(one, other, TOLERANCE)
        return how.removeprefix(": ") if how else None
    except Exception as error:
        return f"cannot be compared: {type(error).__name__}: {error}"
