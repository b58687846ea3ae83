"""All that one run of a program leaves behind."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import io
import random
import re
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from compiler_core.api.testing.trees import tensors
from compiler_core.errors import CompileWarning

Inputs = Callable[[], Sequence[Any]]
NODE = re.compile(r"output (\d+) of \w+,")
"""How autograd's messages name the node that made a tensor: compiled functions have nodes of their own."""


@dataclass
class World:
    """All that a run leaves behind."""

    raised: str | None = None
    result: Any = None
    arguments: Sequence[Any] = ()
    raised_backward: Sequence[str | None] = ()
    """What each of three passes raised; the third one comes when nothing is kept any more."""
    gradients: Sequence[Any] = ()
    """Those of all leaves after the first backward pass, copied."""
    accumulated: Sequence[Any] = ()
    """Those after they were scaled in place, each by a factor of its own, and a second pass added to them."""
    outside: Mapping[str, Any] = field(default_factory=dict)
    """The parameters and buffers of modules, and the tensors, that the program finds in globals and cells."""
    globals: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    printed: str = ""
    errors: str = ""
    """What went to the standard error stream."""
    modes: Mapping[str, Any] = field(default_factory=dict)
    random: Mapping[str, Any] = field(default_factory=dict)


def observe(
    fn: Callable[..., Any],
    make: Inputs,
    seed: int,
    *,
    program: Any = None,
    grad: bool = False,
    backward: bool | None = None,
    changes: Sequence[str] = (),
) -> World:
    """Run `fn`, which is `program` or compiled from it, on fresh arguments.

    `changes` names the globals that it may change: they are as before afterwards, and so are modules and tensors that
    it finds in globals.  With `grad` all floating-point arguments require gradients; with `backward`, which is `grad`
    where it is left out, there are backward passes.
    """
    program = fn if program is None else program
    seeded(seed)
    arguments = tuple(make())
    if grad:
        for tensor in filter(torch.is_tensor, torch.utils._pytree.tree_leaves(arguments)):
            if tensor.is_leaf:
                tensor.requires_grad_(tensor.is_floating_point())
    found = {k: v for k, v in outside(program).items() if k not in changes}
    world, before = World(arguments=arguments), _modes()
    text, errors = io.StringIO(), io.StringIO()
    with _kept(found), _every_warning() as said, contextlib.redirect_stdout(text), contextlib.redirect_stderr(errors):
        with _restored(program, changes) as now:
            try:
                world.result = fn(*arguments)
            except Exception as error:
                world.raised = f"{type(error).__name__}: {error}"
            world.globals = now()
        world.modes = _modes()
        torch._C._set_grad_enabled(before["grad"])
        if (grad if backward is None else backward) and world.raised is None:
            _backward(world, [t for _, t in tensors((arguments, found))])
        world.outside = {name: _copies(obj) for name, obj in found.items()}
    world.printed, world.errors = text.getvalue(), errors.getvalue()
    # failures of ours are in the record, where those who compare look for them
    world.warnings = [f"{w.category.__name__}: {w.message}" for w in said if not issubclass(w.category, CompileWarning)]
    world.random = random_states()
    return world


# ---------------------------------------------------------------- random and other state


def seeded(seed: int) -> None:
    """Seed PyTorch on all devices, Python and NumPy."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def random_states() -> dict[str, Any]:
    """The state of every generator that a program may draw from without naming it."""
    states: dict[str, Any] = {"cpu": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states |= {f"cuda:{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = (name, keys.tobytes(), *rest)
    return states


def _modes() -> dict[str, Any]:
    """What stays switched on after a program."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "autocast": [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
    }


@contextlib.contextmanager
def _every_warning() -> Iterator[list[warnings.WarningMessage]]:
    """All warnings, those that PyTorch gives only once, too."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield said
    finally:
        torch.set_warn_always(always)


# ---------------------------------------------------------------- what lies outside of the program


@contextlib.contextmanager
def _restored(program: Any, changes: Sequence[str]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Globals of these names are as before at the end; the function gives what they are now."""
    f_globals = inspect.unwrap(program).__globals__ if changes else {}
    before = {name: copy.deepcopy(f_globals[name]) for name in changes if name in f_globals}
    try:
        yield lambda: {name: f_globals[name] for name in changes if name in f_globals}
    finally:
        for name in changes:
            f_globals.pop(name, None)
        f_globals.update(before)


def outside(program: Any) -> dict[str, Any]:
    """The modules and tensors that a function, or one of its module that it names, finds in globals and cells."""
    if isinstance(program, torch.nn.Module):
        return {"module": program}
    found: dict[str, Any] = {}
    waiting, seen = [inspect.unwrap(program)], set()
    while waiting:
        function = waiting.pop()
        code = getattr(function, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        cells = zip(code.co_freevars, (function.__closure__ or ()), strict=False)
        named = {name: function.__globals__[name] for name in _names(code) if name in function.__globals__}
        for name, value in (named | {n: _cell(c) for n, c in cells}).items():
            if isinstance(value, (torch.nn.Module, torch.Tensor)):
                found[name] = value
            elif isinstance(value, types.FunctionType) and value.__globals__ is function.__globals__:
                waiting.append(value)
    return found


def _names(code: types.CodeType) -> set[str]:
    """The names that a code object and those in it speak of."""
    return set(code.co_names).union(*(_names(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _copies(obj: Any) -> dict[str, Any]:
    return {name: (t.detach().clone(), t.requires_grad, _cloned(t.grad)) for name, t in _held(obj)}


def _held(obj: Any) -> Iterable[tuple[str, torch.Tensor]]:
    if isinstance(obj, torch.Tensor):
        return [("", obj)] if obj.is_leaf else []
    held = [*obj.named_parameters(), *obj.named_buffers()]
    return [(n, t) for n, t in held if t.is_leaf and not isinstance(t, UninitializedTensorMixin)]


def _cloned(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()


@contextlib.contextmanager
def _kept(found: Mapping[str, Any]) -> Iterator[None]:
    """The values and gradients of these are as before at the end."""
    before = [(t, t.detach().clone(), t.grad, _cloned(t.grad)) for obj in found.values() for _, t in _held(obj)]
    try:
        yield
    finally:
        for tensor, value, grad, grad_value in before:
            _put_back(tensor, value)
            if grad is not None and grad_value is not None:
                _put_back(grad, grad_value)
            if tensor.grad is not grad:
                tensor.grad = grad


def _put_back(tensor: torch.Tensor, value: torch.Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta or tensor.shape != value.shape:
        return
    if not torch.equal(tensor.detach(), value):
        tensor.data.copy_(value)


# ---------------------------------------------------------------- backward passes


def _backward(world: World, found: Sequence[torch.Tensor]) -> None:
    """Two passes that accumulate, with a change in place between them, and a third one for which nothing is kept."""
    wanted = [t for _, t in tensors(world.result) if t.requires_grad and t.grad_fn is not None]
    leaves = [t for t in found if t.is_leaf]
    if not wanted:
        world.gradients = [_cloned(t.grad) for t in leaves]
        return
    raised = [_pass(wanted, keep=True)]
    world.gradients = [_cloned(t.grad) for t in leaves]
    if raised == [None]:
        _scale([t.grad for t in leaves if t.grad is not None])
        raised.append(_pass(wanted, keep=False))
        world.accumulated = [t.grad for t in leaves]
        if raised[-1] is None:
            raised.append(_third_pass(wanted, leaves))
    world.raised_backward = raised


def _third_pass(wanted: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> str | None:
    """What it raises; gradients stay what they are."""
    gradients = [t.grad for t in leaves]
    for leaf in leaves:
        leaf.grad = None
    raised = _pass(wanted, keep=False)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        leaf.grad = gradient
    return raised


def tangent(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """A gradient for a result, always the same one, laid out as the result is."""
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        if tensor.layout is torch.strided:
            made = filled = torch.empty_like(tensor, requires_grad=False)
        else:  # with elements where the result has them
            made = tensor.detach().clone()
            filled = made._values() if made.layout is torch.sparse_coo else made.values()
        filled.copy_(torch.randn(filled.shape, generator=generator, device="cpu"))
    return made


def _pass(wanted: Sequence[torch.Tensor], keep: bool) -> str | None:
    # made anew: the gradient of a leaf may be what was passed in, and is changed in place
    tangents = [tangent(t, number) for number, t in enumerate(wanted)]
    try:
        torch.autograd.backward(wanted, tangents, retain_graph=keep)
    except Exception as error:
        said = NODE.sub(r"output \1,", f"{type(error).__name__}: {error}")
    else:
        return None
    _let_go()
    return said


def _let_go() -> None:
    """The engine keeps what was to come in a pass that raised until it runs another pass."""
    torch.autograd.backward([torch.ones((), requires_grad=True).mul(1)])


def _scale(gradients: Sequence[torch.Tensor]) -> None:
    """Each by a factor of its own, as clipping and unscaling do: one that shares its memory is scaled twice."""
    with torch.no_grad():
        for number, gradient in enumerate(gradients):
            if gradient.layout is torch.strided and not gradient._is_zerotensor():
                gradient.mul_(1 + (number + 1) / 8)


# ---------------------------------------------------------------- what is still alive

Watched = list[tuple[str, weakref.ref[torch.Tensor]]]


def watched(world: World) -> Watched:
    """The tensors of a run, to be asked for once the run is dropped."""
    return [(path, weakref.ref(t)) for path, t in tensors(world)]


def alive(refs: Watched) -> list[str]:
    return [path for path, ref in refs if ref() is not None]


def kept_alive(runs: Sequence[tuple[Watched, Watched]]) -> list[str]:
    """The tensors of compiled runs that live on while eager's are gone; all of these runs were dropped."""
    if not any(alive(compiled) for _, compiled in runs):
        return []
    gc.collect()
    return [
        f"call {number}{path}"
        for number, (eager, compiled) in enumerate(runs)
        for path in sorted(set(alive(compiled)) - set(alive(eager)))
    ]
