"""What `compile` returns: compiled functions and modules, with the region of each; and the records that are open."""

from __future__ import annotations

import atexit
import datetime
import functools
import inspect
import linecache
import operator
import platform
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.modules import module

from compiler_core import config
from compiler_core.capture.values.user.modules import is_graph_call
from compiler_core.config import Options
from compiler_core.errors import UsageError
from compiler_core.hook import failures, frame_hook
from compiler_core.hook.skip_rules import add_user_graph, is_generator
from compiler_core.instruments import tool
from compiler_core.pipeline.code_state import CodeKey
from compiler_core.pipeline.compiled_region import Region
from compiler_core.records import Record
from compiler_core.support.interrupts import weak_callback
from compiler_core.support.texts import keep_source

# ---------------------------------------------------------------- the open record


open_records: list[Record] = []
"""The innermost is the last."""


@contextmanager
def recording(opened: Record) -> Iterator[Record]:
    """Context manager in which what our compiler compiles is written to a record, with the class of an exception that
    ends the block."""
    open_records.append(opened)
    try:
        with noted_exception(opened):
            yield opened
    finally:
        open_records[:] = [each for each in open_records if each is not opened]  # equal ones may be open, too
        opened.find_problems()


@contextmanager
def noted_exception(opened: Record) -> Iterator[None]:
    """Writes the class of an exception that ends the block to the record."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, GeneratorExit) and not (isinstance(error, SystemExit) and not error.code):
            opened.raised = type(error).__name__
        raise


def new_record(title: str = "") -> Record:
    """Returns an empty record with the time and the installed versions."""
    versions = {"python": platform.python_version(), "torch": torch.__version__, "cutaway": _cutaway_version()}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Record(title=title, created=now, versions=versions, _made_here=True)


def open_record() -> Record | None:
    """Returns the innermost open record, or None."""
    if config.ranks_folder() is not None and (record_rank := tool("record_rank_if_asked")):
        record_rank()
    return open_records[-1] if open_records else None


@functools.cache
def _cutaway_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cutaway")
    except PackageNotFoundError:
        return "source"


_regions: weakref.WeakKeyDictionary[types.FunctionType, Region] = weakref.WeakKeyDictionary()
"""The region of each compiled function."""
_own_records: weakref.WeakKeyDictionary[Region, list[Record]] = weakref.WeakKeyDictionary()
"""The record of each region that is written to while no other is open: one or none."""


def compile_function(fn: types.FunctionType, options: Options) -> Any:
    """Returns a function that behaves as `fn` and runs compiled code."""
    if is_generator(fn.__code__):
        failures.warn_of_generator(fn)
    # cache entries belong to code objects, so this needs its own
    region = _take_kept(fn, options) or _open_region(fn.__code__.replace(), options)
    copy = with_code(fn, region.root)
    compiled: Any = functools.wraps(fn)(region.hook.wrap_root(copy, fn, region.replace_root))
    compiled._torchdynamo_disable = True  # stock torch.compile does not trace into it
    compiled._cutaway_original = fn  # our own capture inlines the original into its caller
    compiled.__prepare_scriptable__ = lambda: fn  # torch.jit.script scripts the original
    _regions[compiled] = region
    leave = weak_callback(functools.partial(_leave, region, fn.__code__, fn.__globals__, options))
    weakref.finalize(compiled, leave, region.root).atexit = False
    return compiled


@dataclass
class _Kept:
    """What is kept of a function that the program compiles again in each call, until its code object is freed.

    The first compiled function of a code object that is deleted leaves only this; the next one leaves its region, which
    the one after it takes over.  So a function that is compiled once is freed with what it needs.
    """

    code: weakref.ref[types.CodeType]
    f_globals: dict[str, Any]
    options: Options
    region: Region | None = None


_kept: dict[int, _Kept] = {}
"""By the id of the code object that the user's functions share."""
atexit.register(_kept.clear)  # code that is freed later would be forgotten after PyTorch's modules are gone


def _take_kept(fn: types.FunctionType, options: Options) -> Region | None:
    """Returns the region of a compiled function that was deleted, if this one is made of the same code."""
    kept = _kept.get(id(fn.__code__))
    region = kept.region if kept else None
    if kept is None or region is None or kept.options != options or kept.f_globals is not fn.__globals__:
        return None
    state = region.states.get(CodeKey(region.root))
    if state is not None and state.record is not region.record():
        return None  # another record has its compiles
    kept.region = None
    return region


def _leave(
    region: Region, code: types.CodeType, f_globals: dict[str, Any], options: Options, root: types.CodeType
) -> None:
    """Closes the region of a compiled function that was deleted, or keeps it for the next one of this code."""
    kept = _kept.get(id(code))
    if kept is None:
        forget = weak_callback(functools.partial(_forget_code, id(code)))
        _kept[id(code)] = _Kept(weakref.ref(code, forget), f_globals, options)
    # a region with many compiles leaves too few to the next function
    elif region.root is root and all(2 * s.compile_count <= options.recompile_limit for s in region.states.values()):
        previous, _kept[id(code)] = kept.region, replace(kept, f_globals=f_globals, options=options, region=region)
        if previous is None:
            return
        region = previous
    region.close()


def _forget_code(key: int, _: object = None) -> None:
    kept = _kept.pop(key, None)
    if kept is not None and kept.region is not None:
        kept.region.close()


def forget_deleted() -> None:
    """Frees what is kept of compiled functions that were deleted."""
    for key in list(_kept):
        _forget_code(key)


def with_code(fn: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    """Returns a copy of `fn` that runs `code`."""
    copy = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__ = fn.__kwdefaults__
    return copy


def caller_of(function: Any) -> types.FunctionType:
    """Returns a Python function that calls a function of TorchScript or C, which itself cannot be compiled."""
    namespace: dict[str, Any] = {"function": function}
    text = "def call_function(*args, **kwargs):\n    return function(*args, **kwargs)\n"
    exec(compile(text, "<call of a function>", "exec"), namespace)
    caller: types.FunctionType = namespace.pop("call_function")
    return caller


def is_compiled(fn: Any) -> bool:
    """Whether `compile_function` returned `fn`."""
    return isinstance(fn, types.FunctionType) and fn in _regions


def region_of(compiled: Any) -> Region:
    """Returns the region of a compiled function, method, module or partial; UsageError for anything else."""
    fn = compiled
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "_compiled_forward", fn)
    region = _regions.get(getattr(fn, "__func__", fn)) if callable(fn) else None
    if region is None:
        raise UsageError(f"{compiled!r} was not made by compiler_core.compile")
    return region


def record_of(compiled: Any) -> Record:
    """Returns the record that a compiled function writes to; UsageError if `compiled` is not one."""
    record: Record = region_of(compiled).record()
    return record


def reset() -> None:
    """Frees all compiled code and the records of compiled functions, except records that you hold.

    Compiled functions compile again at their next call.  Warnings that were shown once may be shown again.
    """
    failures.reset_shown_warnings()
    forget_deleted()
    for region in list(_regions.values()):
        region.forget()
    for records in list(_own_records.values()):
        records.clear()
    frame_hook.remove_invalid_entries()


def _open_region(code: types.CodeType, options: Options) -> Region:
    frame_hook.remove_invalid_entries()
    own_record: list[Record] = []

    def current_record() -> Record:
        opened = open_record()
        if opened is not None:
            return opened
        if not own_record:
            own_record.append(new_record())
        return own_record[0]

    region = Region(code, options, current_record)
    _own_records[region] = own_record
    return region


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

    _cutaway_compiled = True
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
