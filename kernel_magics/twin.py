"""What a cell may change, twice: it runs on the real objects and once more on copies of them as they were before."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_BY_REFERENCE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


class Twin:
    """The namespace of a cell before it ran."""

    def __init__(self, namespace: dict[str, Any], codes: list[types.CodeType]) -> None:
        self._namespace = namespace
        self._before = dict(namespace)
        self.names = reached(namespace, codes)
        self.shared: list[str] = []
        """What cannot be copied, so that both runs use the same."""
        self._copies = dict(self._copied())
        self._restore_random = _random_state()

    def _copied(self) -> Iterator[tuple[str, Any]]:
        memo: dict[int, Any] = {}  # one for all, so that what is one object stays one
        for name in sorted(self.names & self._before.keys()):
            value = self._before[name]
            if isinstance(value, _BY_REFERENCE):
                continue
            try:
                yield name, copy.deepcopy(value, memo)
            except Exception as error:
                self.shared.append(f"{name} ({type(value).__name__}: {error})".replace("\n", " ")[:200])

    @contextmanager
    def as_before(self) -> Iterator[Callable[[], dict[str, Any]]]:
        """The namespace as it was, with copies; what comes back tells what the names are by now.  Afterwards the
        namespace is what the first run left."""
        after, restore_random = dict(self._namespace), _random_state()
        self._become({**self._before, **self._copies})
        self._restore_random()
        try:
            yield lambda: dict(self._namespace)
        finally:
            self._become(after)
            restore_random()

    def _become(self, wanted: dict[str, Any]) -> None:
        for name in [name for name in self._namespace if name not in wanted]:
            del self._namespace[name]
        self._namespace.update(wanted)


def reached(namespace: dict[str, Any], codes: list[types.CodeType]) -> set[str]:
    """The names of the namespace that these codes use, and that functions and classes of the namespace use there."""
    found: set[str] = set()
    work = list(codes)
    while work:
        code = work.pop()
        work += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for name in set(code.co_names) - found:
            found.add(name)
            work += _codes(namespace.get(name), namespace)
    return found


def _codes(value: Any, namespace: dict[str, Any]) -> list[types.CodeType]:
    """The code of a function, or of the methods of a class or an object, where it reads this namespace."""
    if isinstance(value, types.FunctionType):
        return [value.__code__] if value.__globals__ is namespace else []
    classes = (value if isinstance(value, type) else type(value)).__mro__
    return [f.__code__ for c in classes for f in vars(c).values()
            if isinstance(f, types.FunctionType) and f.__globals__ is namespace]  # fmt: skip


def _random_state() -> Callable[[], None]:
    """What puts Python's, NumPy's and PyTorch's random numbers back to where they are now."""
    import random

    import numpy
    import torch

    states: list[tuple[Callable[[Any], Any], Any]] = [
        (random.setstate, random.getstate()),
        (numpy.random.set_state, numpy.random.get_state()),
        (torch.set_rng_state, torch.get_rng_state()),
    ]
    if torch.cuda.is_available():
        states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))

    def restore() -> None:
        for put_back, state in states:
            put_back(state)

    return restore
