"""What a cell may change, twice: it runs on the real objects and once more on copies of them as they were before."""

from __future__ import annotations

import copy
import os
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

_IPYTHONS = frozenset({"get_ipython", "In", "Out"})
_FUNCTION_STATE = ("__defaults__", "__kwdefaults__", "__dict__")
_BY_REFERENCE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
_DESCRIPTORS = (classmethod, staticmethod, property, types.MemberDescriptorType, types.GetSetDescriptorType)


class Twin:
    """All that a cell reaches, before it ran: names, and what the functions and classes among them keep."""

    def __init__(self, namespace: dict[str, Any], codes: list[types.CodeType]) -> None:
        self._namespace = namespace
        found, holders = reached(namespace, codes)
        self.names = found - _IPYTHONS
        self._places = [_Names(namespace), *map(_place, holders)]
        self._before = [place.read() for place in self._places]
        self.shared: list[str] = []
        """What cannot be copied, so that both runs use the same."""
        memo: dict[int, Any] = {}  # one for all, so that what is one object stays one
        own = {name: value for name, value in self._before[0].items() if name in self.names}
        self._copies = [dict(self._copied(values, memo)) for values in (own, *self._before[1:])]
        self._restore_surroundings = _surroundings()

    def _copied(self, values: Mapping[str, Any], memo: dict[int, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in sorted(values.items()):
            if isinstance(value, _BY_REFERENCE):
                continue
            try:
                yield name, copy.deepcopy(value, memo)
            except Exception as error:
                self.shared.append(f"{name} ({type(value).__name__}: {error})".replace("\n", " ")[:200])

    @contextmanager
    def as_before(self) -> Iterator[Callable[[], dict[str, Any]]]:
        """Everything as it was, with copies; what comes back tells what the names are by now.  Afterwards everything
        is what the first run left."""
        after, restore = [place.read() for place in self._places], _surroundings()
        for place, before, copies in zip(self._places, self._before, self._copies, strict=True):
            place.write({**before, **copies})
        self._restore_surroundings()
        try:
            yield lambda: dict(self._namespace)
        finally:
            for place, values in zip(self._places, after, strict=True):
                place.write(values)
            restore()


class _Names:
    """The namespace itself."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    def read(self) -> dict[str, Any]:
        return dict(self._namespace)

    def write(self, wanted: dict[str, Any]) -> None:
        for name in [name for name in self._namespace if name not in wanted and not name.startswith("__")]:
            del self._namespace[name]  # but for a compiler's own, which it takes out itself
        self._namespace.update(wanted)


class _Class:
    """What a class keeps beside its methods."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def read(self) -> dict[str, Any]:
        kept = {n: v for n, v in vars(self._cls).items() if not n.startswith(("__", "_abc_"))}
        return {n: v for n, v in kept.items() if not isinstance(v, (*_BY_REFERENCE, *_DESCRIPTORS))}

    def write(self, wanted: dict[str, Any]) -> None:
        for name in self.read().keys() - wanted.keys():
            delattr(self._cls, name)
        for name, value in wanted.items():
            with suppress(AttributeError):  # a member of an enumeration
                setattr(self._cls, name, value)


class _Function:
    """What a function closes over, its defaults and its attributes."""

    def __init__(self, function: types.FunctionType) -> None:
        self._function = function
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def read(self) -> dict[str, Any]:
        cells = {name: cell.cell_contents for name, cell in self._cells.items() if _is_full(cell)}
        return cells | {name: getattr(self._function, name) for name in _FUNCTION_STATE}

    def write(self, wanted: dict[str, Any]) -> None:
        for name, value in wanted.items():
            if name in self._cells:
                self._cells[name].cell_contents = value
            else:
                setattr(self._function, name, value)


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _place(holder: types.FunctionType | type) -> _Function | _Class:
    return _Class(holder) if isinstance(holder, type) else _Function(holder)


def reached(namespace: dict[str, Any], codes: list[types.CodeType]) -> tuple[set[str], list[types.FunctionType | type]]:
    """The names of the namespace that these codes use, and that functions and classes of the namespace use there; and
    those functions and classes."""
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
                    work += _codes(holder, namespace)
    return found, list(holders.values())


def _holders(value: Any, namespace: dict[str, Any]) -> Iterator[types.FunctionType | type]:
    """The functions and classes of this namespace that a value is, is an instance of, or closes over."""
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
                work += [cell.cell_contents for cell in each.__closure__ or () if _is_full(cell)]
        else:
            for cls in (each if isinstance(each, type) else type(each)).__mro__:
                if cls.__module__ == namespace.get("__name__"):
                    yield cls


def _codes(holder: types.FunctionType | type, namespace: dict[str, Any]) -> list[types.CodeType]:
    """The code of a function, or of the methods of a class, where it reads this namespace."""
    held = [holder] if isinstance(holder, types.FunctionType) else vars(holder).values()
    plain = [getattr(each, "__func__", getattr(each, "fget", None) or each) for each in held]
    return [f.__code__ for f in plain if isinstance(f, types.FunctionType) and f.__globals__ is namespace]


def _surroundings() -> Callable[[], None]:
    """What puts back to where they are now: random numbers (Python's, NumPy's, PyTorch's), PyTorch's settings that a
    program changes as it runs, and the environment variables."""
    import random

    import numpy
    import torch

    states: list[tuple[Callable[[Any], Any], Any]] = [
        (random.setstate, random.getstate()),
        (numpy.random.set_state, numpy.random.get_state()),
        (torch.set_rng_state, torch.get_rng_state()),
        (torch.set_grad_enabled, torch.is_grad_enabled()),
        (torch.set_default_dtype, torch.get_default_dtype()),
        (_set_environment, dict(os.environ)),
    ]
    if torch.cuda.is_available():
        states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))

    def restore() -> None:
        for put_back, state in states:
            put_back(state)

    return restore


def _set_environment(wanted: dict[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)
