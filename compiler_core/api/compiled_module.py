"""Compiled modules: `CompiledModule` is what `compile` returns for an ``nn.Module``."""

from __future__ import annotations

import inspect
import linecache
import operator
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules import module

from compiler_core.api.compiled_function import caller_of, compile_function, region_of, with_code
from compiler_core.capture.values.user.modules import is_graph_call
from compiler_core.config import Options
from compiler_core.hook.skip_rules import add_user_graph
from compiler_core.support.generated_code import keep_source

GENERATED = "<eval_with_key>"
"""How the names of the files of generated graph code begin."""

_WRAPPERS_OWN = ("training", "__class__", "__dict__")
"""Attributes that are set on the compiled module itself: FSDP2's `fully_shard` gives the module that it shards another
class."""
_CALL = torch.nn.Module.__call__
_HOOKS_OF_ALL: tuple[Any, ...] = (
    module._global_forward_hooks,
    module._global_forward_pre_hooks,
    module._global_backward_hooks,
    module._global_backward_pre_hooks,
)


class CompiledModule(torch.nn.Module):
    """A module that calls the original module with its forward compiled.

    Attributes are those of the original, which is the only submodule, ``_orig_mod``, as with stock `torch.compile`.
    """

    _orig_mod: Any
    _compiled_method: Any
    """The function that was compiled; None for a scripted module."""

    def __init__(self, original: torch.nn.Module, options: Options) -> None:
        super().__init__()
        # object.__setattr__, since our own __setattr__ sets attributes of the original
        object.__setattr__(self, "_options", options)
        self._modules["_orig_mod"] = original
        self._compile_forward()

    def _compile_forward(self) -> None:
        original = self._orig_mod
        compiled = compile_function(_forward_function(original), self._options)
        object.__setattr__(self, "_compiled_forward", compiled)
        object.__setattr__(self, "_compiled_call", region_of(compiled).hook.wrap(operator.call))
        is_scripted = isinstance(original, torch.jit.ScriptModule)
        object.__setattr__(self, "_compiled_method", None if is_scripted else type(original).forward)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        original: Any = self._modules["_orig_mod"]
        if isinstance(original, torch.fx.GraphModule) and type(original).forward is not self._compiled_method:
            self._compile_forward()  # the graph was changed
        if self._runs_only_forward(original):
            return self._compiled_forward(original, *args, **kwargs)
        # The original's __call__ runs as Python and calls the hooks; the frames below it are compiled one by one.
        return self._compiled_call(original, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # hooks for all modules run for the original, not for both
        return super().__call__(*args, **kwargs) if _has_hooks(self) else self.forward(*args, **kwargs)

    def _runs_only_forward(self, original: Any) -> bool:
        """Whether a call of the original runs the function that was compiled, and no hooks."""
        kind, method = type(original), self._compiled_method
        return (
            (method is None or kind.forward is method)
            and (kind.__call__ is _CALL or is_graph_call(kind.__call__))
            and "forward" not in original.__dict__
            and not (_has_hooks(original) or any(_HOOKS_OF_ALL))
        )

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
        if name in _WRAPPERS_OWN or name in self.__dict__ or not self._is_ready():
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


def _has_hooks(m: Any) -> bool:
    return bool(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks)


def _forward_function(original: torch.nn.Module) -> types.FunctionType:
    """Returns the function that a call of the module runs between its hooks; a scripted module needs a new one."""
    forward = inspect.getattr_static(type(original), "forward")
    if isinstance(original, torch.fx.GraphModule) and forward.__code__.co_filename.startswith(GENERATED):
        return _with_own_file(forward)
    return forward if isinstance(forward, types.FunctionType) else caller_of(_call_forward)


def _with_own_file(forward: types.FunctionType) -> types.FunctionType:
    """Returns the function of a user's graph with a file name that graphs of the compiler do not have."""
    filename = forward.__code__.co_filename
    add_user_graph(forward)  # runs where hooks are called around it
    name = f"<graph module {filename.removeprefix(GENERATED)}>"
    own = with_code(forward, forward.__code__.replace(co_filename=name))
    keep_source(own, name, "".join(linecache.getlines(filename, forward.__globals__)))
    return own


def _call_forward(original: Any, *args: Any, **kwargs: Any) -> Any:
    return original.forward(*args, **kwargs)
