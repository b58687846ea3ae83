"""Kinds of guards on state that no value leads to: PyTorch's global state, dispatch modes, the current GPU, globals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.kinds import MISSING, GuardKind, GuardSpec, guard_kind
from compiler_core.guards.sources import Scope, Source
from compiler_core.records.recompiles import Mismatch
from compiler_core.support.interrupts import guard_function
from compiler_core.support.torch_state import default_devices, function_modes, is_dispatched_or_traced
from compiler_core.torch_private import C_guards as cpp
from compiler_core.torch_private import EnableTorchFunction, cuda_getDevice

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree


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

    def difference(self) -> Mismatch | None:
        """Compares with the present state; returns the first setting that differs, or None."""
        return next(self.differences(), None)

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


@guard_kind("GLOBAL_STATE")
class GlobalStateMatch(GuardKind):
    """PyTorch's global state is the same."""

    def code(self, source: str, value: GlobalState) -> str:
        return "check_global_state()  # grad mode, autocast, default dtype, threads, determinism, modes"

    def expected(self, value: GlobalState) -> str:
        return ", ".join(f"{name} {setting}" for name, setting in value.settings.items())

    def difference(self, obj: Any, value: GlobalState) -> Mismatch | None:
        return value.difference()

    def differences(self, guard: GuardSpec, obj: Any, scope: Scope) -> list[Mismatch]:
        return list(guard.value.differences())

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        state = guard.value
        tree.root.add_global_state_guard(state.flags, code_parts, None)
        tree.root.add_torch_function_mode_stack_guard(state.modes, code_parts, None)  # compares their types
        if state.devices:
            same_devices = guard_function(lambda _: default_devices() == state.devices)
            tree.root.add_lambda_guard(same_devices, code_parts, None)


@guard_kind("NO_DISPATCH_MODE")
class NoDispatchMode(GuardKind):
    """No torch dispatch mode and no torch.jit.trace is active."""

    def code(self, source: str, value: None) -> str:
        return "no_dispatch_mode()  # the guards of tensors see it too"

    def expected(self, value: None) -> str:
        return "no torch dispatch mode"

    def difference(self, obj: Any, value: None) -> Mismatch | None:
        if not is_dispatched_or_traced():
            return None
        return Mismatch("setting", "none", "a torch dispatch mode or torch.jit.trace", item="torch dispatch mode")

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        tree.root.add_lambda_guard(guard_function(lambda _: not is_dispatched_or_traced()), code_parts, None)


@guard_kind("CURRENT_GPU")
class CurrentGpu(GuardKind):
    """The current CUDA device has this number."""

    def code(self, source: str, value: int) -> str:
        return f"torch.cuda.current_device() == {value}  # tensors are made there"

    def expected(self, value: int) -> str:
        return f"GPU {value}"

    def difference(self, obj: Any, value: int) -> Mismatch | None:
        current = torch.cuda.current_device()
        return None if current == value else Mismatch("setting", str(value), str(current), item="current GPU")

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        number, current = guard.value, cuda_getDevice
        tree.root.add_lambda_guard(guard_function(lambda _: current() == number), code_parts, None)


@guard_kind("GLOBAL_ABSENT")
class GlobalAbsent(GuardKind):
    """The frame's globals have no such name, so that a builtin is found instead."""

    def code(self, source: str, value: str) -> str:
        return f"{value!r} not in G"

    def expected(self, value: str) -> str:
        return f"no global {value!r}"

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> Mismatch | None:
        return None if obj is MISSING else Mismatch("value", f"the builtin {guard.value}", f"a global {guard.value}")

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
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
