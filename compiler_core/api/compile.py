"""What users call.  See the package's docstring."""

from __future__ import annotations

import builtins
import datetime
import functools
import inspect
import platform
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch._dynamo.eval_frame import innermost_fn

from compiler_core.backends import registry as backends
from compiler_core.codegen.machine_code.stages import check_target
from compiler_core.config import Options
from compiler_core.errors import UsageError
from compiler_core.hook import cache_entries, failures, frame_hook
from compiler_core.hook.skip_rules import leave_alone
from compiler_core.pipeline.code_state import Installed
from compiler_core.pipeline.compiled_region import Region
from compiler_core.records import Guard, Record

_recording: list[Record] = []
_regions: weakref.WeakKeyDictionary[types.FunctionType, Region] = weakref.WeakKeyDictionary()
"""What the compiled functions compile."""
_own_records: weakref.WeakKeyDictionary[Region, list[Record]] = weakref.WeakKeyDictionary()
"""The record that a compiled function writes to while no other is open."""


@contextmanager
def record(
    title: str = "",
    *,
    engine: Literal["core", "torch"] = "core",
    steps: bool = False,
    logs: bool = False,
    **options: str,
) -> Iterator[Record]:
    """Everything compiled inside, by whatever compiled function, is written to the yielded Record.

    With ``engine="torch"`` that is what stock `torch.compile` compiles; it runs as it does without.  `steps`:
    with every step of its symbolic interpreter (our own are asked for with ``compile(..., steps=True)``); `logs`: with
    all that PyTorch's loggers say (``TORCH_LOGS=all`` and its artifacts, which takes a compile several times as long).
    """
    made = new_record(title)
    made.engine, made.options = engine, options
    if engine == "torch":
        from compiler_core.stock.observer import observing  # it takes a while

        with observing(made, steps, logs):
            yield made
        return
    _recording.append(made)
    try:
        yield made
    finally:
        _recording.remove(made)


def new_record(title: str = "") -> Record:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "cutaway": _version()}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Record(title=title, created=now, versions=versions, _made_here=True)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cutaway")
    except PackageNotFoundError:
        return "source"


def compile(
    fn: Any = None,
    *,
    backend: str | Callable[..., Any] | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    target: str | None = None,
    strict: bool = False,
    recompile_limit: int = 8,
    memory_budget: float = 1.0,
    steps: bool = False,
    guard_filter: Callable[[list[Guard]], Sequence[bool]] | None = None,
    memory_curve: bool = False,
    mode: str = "default",
    keep_apart: Sequence[tuple[str, str]] = (),
    force_fuse: Sequence[tuple[str, str]] = (),
    tune: bool = False,
) -> Any:
    """Compile a function, method or nn.Module; also a decorator, with or without arguments.

    The result behaves as `fn` does.  `backend`: a name (`compiler_core.backends.registry.names()`) or a
    callable ``(GraphModule, example_inputs) -> callable``; None makes C++ kernels for what lies on the CPU
    and Triton's for what lies on GPUs, in one graph too.  `fullgraph`: raise FullGraphError at the first graph
    break.  `dynamic`: sizes and numbers that differ from call to call are symbolic, so that one compile holds for
    many: from their second value on (None), at once (True) or never (False); see `mark_dynamic`.  `target`:
    also record the kernels' machine code for this device, which need not be here (``sm_90``).
    `strict`: raise a failure of the compiler's own as StrictError; without it a CompileWarning says what failed,
    and the code runs as it is (``docs/failures.md``).  `recompile_limit`: after so many compiles of one function,
    calls that none covers run as plain Python.  `memory_budget`: the share of the saved bytes that the backward
    may keep; `memory_curve`:
    record what other shares would give (``Partition.curve``).  `steps`: record every step of the
    symbolic interpreter (`Compile.replay`).  `guard_filter`: given the guards of a compile, says for
    each whether it is kept; one that is not is never checked, and it is for you to know that it always
    holds.  `mode`: ``reduce-overhead`` replays the launches of a graph by CUDA graphs, where that is possible
    (`Compile.cuda_graphs` has the reasons).  `keep_apart`, `force_fuse`: pairs of nodes of the forward or backward
    graph, by name, that must not become one kernel, or must where that is possible.  `tune`: time several block sizes
    for each Triton kernel on the GPU that is here and take the fastest, which is then remembered on disk
    (`Compile.tunings`).  Raises UsageError where the request itself is wrong.
    """
    options = Options(
        backend, fullgraph, dynamic, target, strict, recompile_limit, memory_budget, steps, guard_filter, memory_curve,
        mode, tuple(keep_apart), tuple(force_fuse), tune,
    )  # fmt: skip
    backends.check_name(backend)
    if target is not None:
        check_target(target)
    return functools.partial(_compiled, options=options) if fn is None else _compiled(fn, options)


def _compiled(fn: Any, options: Options) -> Any:
    """`fn` compiled, as the kind of thing that it is."""
    fn = _original(fn)
    if isinstance(fn, torch.nn.Module):
        return CompiledModule(fn, options)
    if isinstance(fn, torch.jit.ScriptFunction):
        return _compile_function(_caller(fn), options)
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        return types.MethodType(_compile_function(fn.__func__, options), fn.__self__)
    if isinstance(fn, types.FunctionType):
        return _compile_function(fn, options)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(_compiled(fn.__func__, options))
    if isinstance(fn, functools.partial):
        return functools.partial(_compiled(fn.func, options), *fn.args, **fn.keywords)
    if not isinstance(fn, type) and isinstance(getattr(fn, "__call__", None), types.MethodType):  # noqa: B004
        return _compiled(fn.__call__, options)
    raise UsageError(_refusal(fn))


def _original(fn: Any) -> Any:
    """What a compiled function or module, ours or stock's, was made from."""
    if isinstance(fn, CompiledModule):
        return fn._orig_mod
    if isinstance(fn, types.MethodType) and fn.__func__ in _regions:
        return types.MethodType(fn.__func__.__wrapped__, fn.__self__)  # type: ignore[attr-defined]
    if isinstance(fn, types.FunctionType) and fn in _regions:
        return fn.__wrapped__  # type: ignore[attr-defined]
    if isinstance(fn, torch.nn.Module):
        return getattr(fn, "_orig_mod", fn)
    return fn if getattr(fn, "_torchdynamo_disable", False) else innermost_fn(fn)


def _caller(scripted: Any) -> types.FunctionType:
    """A Python function that calls what TorchScript runs, of which there is nothing to compile."""
    space: dict[str, Any] = {"scripted": scripted}
    text = "def call_torchscript(*args, **kwargs):\n    return scripted(*args, **kwargs)\n"
    exec(builtins.compile(text, "<TorchScript>", "exec"), space)
    made: types.FunctionType = space.pop("call_torchscript")
    return made


def _forward_of(original: torch.nn.Module) -> Any:
    """What a call of a module runs between its hooks; that of a scripted module is no function."""
    forward = inspect.getattr_static(type(original), "forward")
    return forward if isinstance(forward, types.FunctionType) else _caller(_run_forward)


def _run_forward(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module.forward(*args, **kwargs)


def _refusal(fn: Any) -> str:
    if isinstance(fn, type):
        return f"cannot compile the class {fn.__name__}: compile its instances, or decorate its methods"
    if isinstance(fn, (types.BuiltinFunctionType, types.BuiltinMethodType, types.MethodDescriptorType)):
        name = fn.__name__
        return f"{name} is not written in Python, so there is nothing to compile; compile a function that calls it"
    return f"cannot compile a {type(fn).__name__}; give a function, a method, a callable object or an nn.Module"


def _compile_function(fn: types.FunctionType, options: Options) -> Any:
    own = _with_code(fn, fn.__code__.replace())  # a copy of our own: cache entries belong to code objects
    region = _open_region(own.__code__, options)
    compiled: Any = functools.wraps(fn)(region.hook.around_root(own))
    compiled._torchdynamo_disable = True  # stock torch.compile is not to look into it
    compiled._cutaway_original = fn  # and our own captures it as part of its caller
    compiled.__prepare_scriptable__ = lambda: fn  # and torch.jit.script makes a script of it
    _regions[compiled] = region
    weakref.finalize(compiled, region.close).atexit = False
    return compiled


def _with_code(fn: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    """`fn` but for what it runs."""
    made = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__kwdefaults__ = fn.__kwdefaults__
    return made


class CompiledModule(torch.nn.Module):
    """Calls the original module with its forward compiled; attributes are the original's.

    As with stock ``torch.compile``, the original is its only submodule, ``_orig_mod``.
    """

    _orig_mod: Any

    def __init__(self, original: torch.nn.Module, options: Options) -> None:
        super().__init__()
        compiled = _compile_function(_forward_of(original), options)
        with_hooks = _regions[compiled].hook.around(original.__call__)
        own = {"_options": options, "_compiled_forward": compiled, "_compiled_call": with_hooks}
        for name, value in own.items():
            object.__setattr__(self, name, value)
        self._modules["_orig_mod"] = original

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        original = self._orig_mod
        if original._forward_hooks or original._forward_pre_hooks or "forward" in original.__dict__:
            return self._compiled_call(*args, **kwargs)  # its frames one by one, hooks as Python calls them
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
        """What ``torch.jit.script`` makes a script of."""
        original: torch.nn.Module = self._orig_mod
        return original

    def __reduce__(self) -> Any:
        # compiled code is not copied: a copy compiles for itself
        return CompiledModule, (self._orig_mod, self._options)


def _open_region(code: types.CodeType, options: Options) -> Region:
    cache_entries.sweep()
    own: list[Record] = []

    def current() -> Record:
        if _recording:
            return _recording[-1]
        if not own:
            own.append(new_record())
        return own[0]

    region = Region(code, options, current)
    _own_records[region] = own
    return region


def open_record() -> Record:
    """The record that is open, else a new one."""
    return _recording[-1] if _recording else new_record()


def record_of(compiled: Any) -> Record:
    """The record that a compiled function writes to."""
    found: Record = _region_of(compiled).record()
    return found


def _region_of(compiled: Any) -> Region:
    at = compiled
    while isinstance(at, functools.partial):
        at = at.func
    at = getattr(at, "_compiled_forward", at)
    region = _regions.get(getattr(at, "__func__", at)) if callable(at) else None
    if region is None:
        raise UsageError(f"{compiled!r} was not made by compiler_core.compile")
    return region


def pin(compiled: Any, compile_id: str | None = None) -> Any:
    """A function that runs one compile of `compiled` and checks no guards.

    You promise that all later calls are such as that compile was made for: the same types, shapes,
    attributes and globals.  Where they are not, the result is wrong or the process crashes.  What
    comes after a graph break is still guarded.  `compile_id` ("0/1") chooses where there are several
    compiles; later compiles and `reset` change nothing.  UsageError where there is none to pin.
    """
    if isinstance(compiled, functools.partial):
        return functools.partial(pin(compiled.func, compile_id), *compiled.args, **compiled.keywords)
    if isinstance(compiled, CompiledModule):
        return functools.partial(pin(compiled._compiled_forward, compile_id), compiled._orig_mod)
    if isinstance(compiled, types.MethodType):
        return types.MethodType(pin(compiled.__func__, compile_id), compiled.__self__)
    region = _region_of(compiled)
    chosen = _chosen(region.installed(), compile_id, getattr(compiled, "__name__", "the function"))
    fn = compiled.__wrapped__
    # the name of its file tells other compiled functions that call it to leave it alone
    code = chosen.made if chosen.breaks else chosen.made.replace(co_filename=f"<cutaway {fn.__name__} {chosen.id}>")
    pinned = _with_code(fn, code)
    return functools.wraps(compiled)(region.around_pinned(pinned) if chosen.breaks else pinned)


def _chosen(found: list[Installed], compile_id: str | None, name: str) -> Installed:
    if not found:
        raise UsageError(f"{name} has no compile to pin: call it first, with arguments like those to come")
    ids = ", ".join(each.id for each in found)
    if compile_id is None and len(found) > 1:
        raise UsageError(f"{name} has the compiles {ids}: say which, as in pin({name}, {found[-1].id!r})")
    chosen = [each for each in found if compile_id in (None, each.id)]
    if not chosen:
        raise UsageError(f"{name} has no compile {compile_id!r}; it has {ids}")
    return chosen[0]


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True) -> Any:
    """A function that runs as plain Python wherever compiled code calls it; also a decorator.

    Unless `recursive`, the functions that it calls are compiled on their own.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive)
    if recursive:
        return _without_hook(fn)
    if not isinstance(fn, types.FunctionType):
        raise UsageError(f"disable(recursive=False) takes a Python function, not a {type(fn).__name__}")
    plain: Any = _with_code(fn, fn.__code__.replace())
    functools.update_wrapper(plain, fn)
    leave_alone(plain.__code__)
    plain._cutaway_disabled = True
    return plain


def _without_hook(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with frame_hook.hook_off():
            return fn(*args, **kwargs)

    plain._cutaway_disabled = True  # type: ignore[attr-defined]
    return plain


def graph_break(msg: str = "") -> None:
    """Break the graph here; does nothing in plain Python."""


graph_break._cutaway_disabled = True  # type: ignore[attr-defined]


def mark_dynamic(tensor: torch.Tensor, dim: int, *, min: int | None = None, max: int | None = None) -> None:
    """The size of `tensor` in `dim` is symbolic from the first compile on, for sizes from `min` to `max`.

    Where the program makes it a number for good, compiling raises UsageError with the condition that did.
    The mark is PyTorch's own (``torch._dynamo.mark_dynamic``) and holds for stock ``torch.compile``, too.
    """
    torch._dynamo.mark_dynamic(tensor, dim, min=min, max=max)


def mark_static(tensor: torch.Tensor, dim: int | None = None) -> None:
    """The size of `tensor` in `dim`, or every one, is never symbolic: each is compiled for itself."""
    torch._dynamo.mark_static(tensor, dim)


def reset() -> None:
    """Free everything that was compiled and the records of it, but for those that you hold; and forget which
    warnings were shown."""
    failures.forget()
    for region in list(_regions.values()):
        region.forget()
    for own in list(_own_records.values()):
        own.clear()
    cache_entries.sweep()


__all__ = [
    "compile", "disable", "graph_break", "mark_dynamic", "mark_static", "pin", "record", "record_of", "reset",
]  # fmt: skip
