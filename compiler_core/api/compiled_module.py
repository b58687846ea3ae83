"""Compiled modules: `CompiledModule` is what `compile` returns for an ``nn.Module``."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

import torch

from compiler_core.api.compiled_function import compile_function, region_of, torchscript_caller
from compiler_core.config import Options


class CompiledModule(torch.nn.Module):
    """A module that calls the original module with its forward compiled.

    Attributes are those of the original, which is the only submodule, ``_orig_mod``, as with stock `torch.compile`.
    """

    _orig_mod: Any

    def __init__(self, original: torch.nn.Module, options: Options) -> None:
        super().__init__()
        compiled = compile_function(_forward_function(original), options)
        # object.__setattr__, since our own __setattr__ sets attributes of the original
        object.__setattr__(self, "_options", options)
        object.__setattr__(self, "_compiled_forward", compiled)
        object.__setattr__(self, "_compiled_call", region_of(compiled).hook.wrap(original.__call__))
        self._modules["_orig_mod"] = original

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        original = self._orig_mod
        if original._forward_hooks or original._forward_pre_hooks or "forward" in original.__dict__:
            # The original's __call__ runs as Python and calls the hooks; the frames below it are compiled one by one.
            return self._compiled_call(*args, **kwargs)
        return self._compiled_forward(original, *args, **kwargs)

    @property
    def training(self) -> bool:
        return bool(self._orig_mod.training)

    @training.setter
    def training(self, mode: bool) -> None:
        if self._is_ready():
            self._orig_mod.training = mode

    def _is_ready(self) -> bool:
        return bool(self.__dict__.get("_modules"))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not self._is_ready():
                raise
            return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "training" or name in self.__dict__ or not self._is_ready():
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self._orig_mod)})

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]

    def __contains__(self, item: Any) -> bool:
        return item in self._orig_mod

    def __prepare_scriptable__(self) -> torch.nn.Module:
        """Returns the module that ``torch.jit.script`` scripts instead."""
        original: torch.nn.Module = self._orig_mod
        return original

    def __reduce__(self) -> Any:
        # compiled code is not copied or pickled: a copy compiles again
        return CompiledModule, (self._orig_mod, self._options)


def _forward_function(module: torch.nn.Module) -> types.FunctionType:
    """Returns the function that a call of the module runs between its hooks; a scripted module needs a new one."""
    forward = inspect.getattr_static(type(module), "forward")
    return forward if isinstance(forward, types.FunctionType) else torchscript_caller(_call_forward)


def _call_forward(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module.forward(*args, **kwargs)
