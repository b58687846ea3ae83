"""Kinds of guards on state that no value leads to: PyTorch's global state, dispatch modes, the current GPU, globals.

Also names of libraries, which are functions of modules and methods of classes, and which programs may replace.
Libraries rarely change, so the guard on their names compares the version of the dict in which a name was found: one
comparison for each dict at each call.  The names themselves are compared only after their dict has changed.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.kinds import IMMUTABLE_EXAMPLE, KINDS, MISSING, Found, GuardKind, GuardSpec
from compiler_core.guards.lifetimes import is_library, is_python_class, module_of, weak_cache
from compiler_core.guards.sources import Box, ConstantSource, Scope, Source
from compiler_core.records.recompiles import Mismatch
from compiler_core.support.interrupts import guard_function
from compiler_core.support.torch_state import default_devices, function_modes, is_dispatched_or_traced
from compiler_core.torch_private import C_guards as cpp
from compiler_core.torch_private import EnableTorchFunction, cuda_getDevice

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree
    from compiler_core.records import ItemId


@dataclass(frozen=True)
class GlobalStateSource(Source):
    """PyTorch's global state, as the source of a guard."""

    @property
    def text(self) -> str:
        return "torch's global state"

    def fetch(self, scope: Scope) -> Any:
        return None


def _settings() -> dict[str, str]:
    """Returns the settings that guards on the global state compare and that can be read, by name."""
    return {
        "grad mode": _on(torch.is_grad_enabled()),
        "inference mode": _on(torch.is_inference_mode_enabled()),
        "default dtype": str(torch.get_default_dtype()),
        **{f"autocast on {device}": _autocast(device) for device in ("cpu", "cuda")},
        "number of threads": str(torch.get_num_threads()),
        "use of deterministic algorithms": _on(torch.are_deterministic_algorithms_enabled()),
    }


def _autocast(device: str) -> str:
    return str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else "off"


def _on(value: bool) -> str:
    return "on" if value else "off"


@dataclass(frozen=True)
class GlobalState:
    """PyTorch's global state, the torch function modes, and the default devices that modes set."""

    flags: Any
    modes: list[Any]
    devices: tuple[torch.device | None, ...]
    settings: dict[str, str]

    @classmethod
    def now(cls) -> GlobalState:
        with EnableTorchFunction():  # as where the frame was entered; it is off during capture
            return cls(cpp.GlobalStateGuard(), function_modes(), default_devices(), _settings())

    def differences(self) -> Iterator[Mismatch]:
        """Yields each setting that differs."""
        if default_devices() != self.devices:
            expected, got = (str(devices[-1]) if devices else "none" for devices in (self.devices, default_devices()))
            yield Mismatch("setting", expected, got, item="default device")
        with EnableTorchFunction():
            if self.flags.check():
                return
            now = _settings()
            name = str(self.flags.reason()).partition(" ")[0].replace("_", " ")
        found = [key for key, value in now.items() if value != self.settings[key]]
        if "inference mode" in found and "grad mode" in found:
            found.remove("grad mode")  # which is off in it
        yield from (Mismatch("setting", self.settings[key], now[key], item=key) for key in found)
        if not found:
            yield Mismatch("setting", "as at capture", "another", item=name)


def _install_global_state(tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
    state = guard.value
    tree.root.add_global_state_guard(state.flags, code_parts, None)
    tree.root.add_torch_function_mode_stack_guard(state.modes, code_parts, None)  # compares their types
    if state.devices:
        same_devices = guard_function(lambda _: default_devices() == state.devices)
        tree.root.add_lambda_guard(same_devices, code_parts, None)


def _dispatch_mode(obj: Any, value: None) -> Found:
    if not is_dispatched_or_traced():
        return None
    return Mismatch("setting", "none", "a torch dispatch mode or torch.jit.trace", item="torch dispatch mode")


def _install_no_mode(tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
    tree.root.add_lambda_guard(guard_function(lambda _: not is_dispatched_or_traced()), code_parts, None)


def _other_gpu(obj: Any, value: int) -> Found:
    current = torch.cuda.current_device()
    return None if current == value else Mismatch("setting", str(value), str(current), item="current GPU")


def _install_gpu(tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
    number, current = guard.value, cuda_getDevice
    tree.root.add_lambda_guard(guard_function(lambda _: current() == number), code_parts, None)


def _hiding_global(guard: GuardSpec, obj: Any, scope: Scope) -> Iterator[Mismatch]:
    if obj is not MISSING:
        yield Mismatch("value", f"the builtin {guard.value}", f"a global {guard.value}")


def _install_absent(tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
    tree.globals_manager().add_dict_contains_guard(False, guard.value, code_parts, None)


def state_guard() -> GuardSpec:
    """Returns a guard on the present global state."""
    return GuardSpec("GLOBAL_STATE", GlobalStateSource(), GlobalState.now())


def current_gpu_guard(number: int) -> GuardSpec:
    """Returns the guard of compiled code that makes tensors on the current GPU, which is number `number`."""
    return GuardSpec("CURRENT_GPU", GlobalStateSource(), number)


def no_dispatch_mode_guard() -> GuardSpec:
    """Returns the guard of compiled code without tensor inputs; the dispatch keys of an input would show a mode."""
    return GuardSpec("NO_DISPATCH_MODE", GlobalStateSource(), None)


# ---------------------------------------------------------------- names of libraries


@dataclass
class DictLookups:
    """The names that were looked up in one dict, each with its value, or MISSING if the dict does not have the name."""

    names: dict[str, Any]
    home: str
    """The module or class whose dict `names` is, as text."""
    line: ItemId | None
    found: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str) -> None:
        if name not in self.found:
            self.found[name] = self.names.get(name, MISSING)

    def guard(self) -> GuardSpec:
        return GuardSpec("LIBRARY", ConstantSource(Box(self.names), self.home), self.found, self.line)


class LibraryLookups:
    """The names that one capture has looked up in libraries."""

    def __init__(self, on_new_guard: Callable[[str], None] = lambda text: None) -> None:
        """`on_new_guard` is called with the beginning of a guard's text when the first name of its dict is added."""
        self._by_dict: dict[int, DictLookups] = {}
        self._on_new_guard = on_new_guard

    def add(self, names: dict[str, Any], home: str | type, name: str, line: ItemId | None) -> None:
        """Adds a lookup of `name` in the dict `names` of `home`, which is a class or the name of a module."""
        if id(names) not in self._by_dict:
            text = home if isinstance(home, str) else f"{home.__module__}.{home.__qualname__}"
            self._by_dict[id(names)] = DictLookups(names, text, line)
            self._on_new_guard(_code_prefix(text))
        self._by_dict[id(names)].add(name)

    def add_class_attribute(self, cls: type, name: str, line: ItemId | None) -> None:
        """Adds the lookups of ``getattr(cls, name)``: in the class and its bases, up to the first with the name."""
        for each in cls.__mro__:
            if is_python_class(each):
                self.add(class_dict(each), each, name, line)
            if name in each.__dict__:
                return

    def add_lookups_of(self, fn: types.FunctionType, line: ItemId | None) -> None:
        """Adds the names that `fn` looks up when it runs.  `fn` is called by the graph and not captured."""
        for names, home, name in _names_read(fn):
            self.add(names, home, name, line)

    def guards(self) -> list[GuardSpec]:
        return [lookups.guard() for lookups in self._by_dict.values()]


def class_dict(cls: Any) -> dict[str, Any]:
    """Returns the dict behind the proxy ``cls.__dict__``; its version changes with the class."""
    is_permanent = is_library(module_of(cls)) and "<locals>" not in cls.__qualname__  # FX makes a class for each graph
    return _library_class_dict(cls) if is_permanent else _class_dict(cls)


def _class_dict(cls: Any) -> dict[str, Any]:
    found = next(d for d in gc.get_referents(cls.__dict__) if isinstance(d, dict))
    assert found.keys() == cls.__dict__.keys()
    return found


_library_class_dict = functools.cache(_class_dict)  # the dict keeps its class alive; a library's is never freed


@weak_cache
def _names_read(fn: types.FunctionType) -> tuple[tuple[dict[str, Any], str, str], ...]:
    lookups = _walk_names_read(fn, set())
    return tuple({(id(names), name): (names, home, name) for names, home, name in lookups}.values())


def _walk_names_read(fn: types.FunctionType, seen: set[Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yields the lookups that the code of `fn` may do, as (dict, module or class, name).

    They are names of globals, attributes of modules among the globals, methods of tensors, and the lookups of the
    functions of the same module that `fn` may call.
    """
    seen.add(fn)
    read, home = _co_names(fn.__code__), str(fn.__globals__.get("__name__"))
    namespaces = [(fn.__globals__, home)]  # grows while it is iterated over
    for namespace, module in namespaces:
        for name in read:
            if name not in namespace or name.startswith("__"):
                continue
            yield namespace, module, name
            found = namespace[name]
            if isinstance(found, types.ModuleType) and is_library(found.__name__):
                if all(vars(found) is not known for known, _ in namespaces):
                    namespaces.append((vars(found), found.__name__))
            elif isinstance(found, types.FunctionType) and found not in seen and found.__module__ == home:
                yield from _walk_names_read(found, seen)
    for name in read:
        if not name.startswith("__") and hasattr(torch.Tensor, name):
            yield class_dict(torch.Tensor), "torch.Tensor", name


def _co_names(code: types.CodeType) -> list[str]:
    inner = (name for const in code.co_consts if isinstance(const, types.CodeType) for name in _co_names(const))
    return [*code.co_names, *inner]


def _code_prefix(home: str) -> str:
    return f"unchanged({home!r}, "


def _replaced_name(obj: dict[str, Any], value: dict[str, Any]) -> Found:
    for name, found in value.items():
        if obj.get(name, MISSING) is not found:
            return Mismatch("function", "as it was", "replaced" if name in obj else "gone", item=name)
    return None


def _install_library(tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
    """Attaches the check to the first item of the dict, as an item that is skipped until the version changes."""
    names, found = tree.value(guard.source), guard.value
    holds = guard_function(lambda _: _replaced_name(names, found) is None)
    dict_manager = tree.library_dict_manager(names, guard.source.text)
    item = dict_manager.dict_getitem_manager(next(iter(names)), code_parts[0], IMMUTABLE_EXAMPLE, tree.manager_type)
    item.add_lambda_guard(holds, code_parts, None)


# ---------------------------------------------------------------- the kinds


def _settings_that_differ(guard: GuardSpec, obj: Any, scope: Scope) -> Iterable[Mismatch]:
    state: GlobalState = guard.value
    return state.differences()


KINDS |= {
    # PyTorch's global state is the same
    "GLOBAL_STATE": GuardKind(
        lambda source, state: "check_global_state()  # grad mode, autocast, default dtype, threads, determinism, modes",
        expected=lambda state: ", ".join(f"{name} {setting}" for name, setting in state.settings.items()),
        differences=_settings_that_differ,
        install=_install_global_state,
    ),
    # no torch dispatch mode and no torch.jit.trace is active
    "NO_DISPATCH_MODE": GuardKind(
        lambda source, value: "no_dispatch_mode()  # the guards of tensors see it too",
        _dispatch_mode,
        expected=lambda value: "no torch dispatch mode",
        install=_install_no_mode,
    ),
    # the current CUDA device has this number
    "CURRENT_GPU": GuardKind(
        lambda source, number: f"torch.cuda.current_device() == {number}  # tensors are made there",
        _other_gpu,
        expected=lambda number: f"GPU {number}",
        install=_install_gpu,
    ),
    # the frame's globals have no such name, so that a builtin is found instead
    "GLOBAL_ABSENT": GuardKind(
        lambda source, name: f"{name!r} not in G",
        expected=lambda name: f"no global {name!r}",
        differences=_hiding_global,
        install=_install_absent,
    ),
    # a dict of a library still has these values for these names
    "LIBRARY": GuardKind(
        lambda source, names: f"{_code_prefix(source)}{', '.join(names)})",
        _replaced_name,
        expected=lambda names: f"{', '.join(names)} as they were",
        install=_install_library,
    ),
}
