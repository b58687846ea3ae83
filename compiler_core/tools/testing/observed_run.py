"""Runs a program and observes everything that the run leaves behind."""

from __future__ import annotations

import array
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

from compiler_core.errors import CompileWarning
from compiler_core.support.tensors import gradient_function
from compiler_core.tools.testing.object_trees import tensors
from compiler_core.torch_private import set_grad_enabled, tree_leaves

Inputs = Callable[[], Sequence[Any]]
"""Returns fresh arguments for one call."""

_NODE = re.compile(
    r"\[torch\.[\w.]+ \[[\d, ]*\]\]|, which is output \d+( of [\w:]+)?,|(?<=at version )\d+|(?<=expected version )\d+"
)
"""What an error says about an autograd node, what it saved and counts of writes; compiled functions have others."""
_PER_ALLOCATION = "ComplexHalf support is experimental"
"""A warning that PyTorch gives once or, while all are shown, at each allocation: compiled code allocates less."""


@dataclass
class ObservedRun:
    """What a run leaves behind."""

    raised: str | None = None
    result: Any = None
    arguments: Sequence[Any] = ()
    raised_backward: Sequence[str | None] = ()
    """The exceptions of three backward passes (None: no exception); before the third, saved tensors are freed."""
    gradients: Sequence[Any] = ()
    """Copies of the gradients of all leaves after the first backward pass.  Empty if it raises: which leaves it reached
    before depends on the nodes."""
    accumulated: Sequence[Any] = ()
    """The gradients after each was scaled in place by a different factor and a second pass added to it.  Empty if a
    pass raises."""
    outside: Mapping[str, Any] = field(default_factory=dict)
    """Tensors, and parameters and buffers of modules, that the program finds in globals and cells."""
    globals: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    printed: str = ""
    errors: str = ""
    """The text on the standard error stream."""
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
) -> ObservedRun:
    """Runs a program once on fresh arguments.

    Globals that the program may change, and modules and tensors that it finds in globals and cells, are restored
    afterwards.

    Args:
        fn: the function to call: the program, or compiled from it.
        make: returns the arguments.
        seed: for all random generators.
        program: the original program, in which globals and cells are looked up; `fn` by default.
        grad: let all floating-point leaves among the arguments require gradients.
        backward: run backward passes; as `grad` by default.
        changes: the names of globals that the program may change.

    Returns:
        The run; an exception of the program is in `ObservedRun.raised`.

    Example::

        want = observe(f, lambda: [torch.ones(3)], seed=0)
        got = observe(compiled, lambda: [torch.ones(3)], seed=0, program=f)
        assert Comparison(Exact()).compare("", want, got) is None
    """
    program = fn if program is None else program
    seed_all(seed)
    arguments = tuple(make())
    if grad:
        for tensor in filter(torch.is_tensor, tree_leaves(arguments)):
            if tensor.is_leaf:
                tensor.requires_grad_(tensor.is_floating_point())
    external = {name: obj for name, obj in external_state(program).items() if name not in changes}
    run, modes_before = ObservedRun(arguments=arguments), _modes()
    text, errors = io.StringIO(), io.StringIO()
    with (
        restored_tensors(external),
        _all_warnings() as caught,
        contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(errors),
    ):
        with _restored_globals(program, changes) as current_globals:
            try:
                run.result = fn(*arguments)
            except Exception as error:
                run.raised = f"{type(error).__name__}: {error}"
            run.globals = current_globals()
        run.modes = _modes()
        set_grad_enabled(modes_before["grad"])
        if (grad if backward is None else backward) and run.raised is None:
            _run_backward(run, [t for _, t in tensors((arguments, external))])
        run.outside = {name: _copied_leaves(obj) for name, obj in external.items()}
    run.printed, run.errors = text.getvalue(), errors.getvalue()
    # a CompileWarning is left out: the record has the failure
    warned = [w for w in caught if not issubclass(w.category, CompileWarning) and _PER_ALLOCATION not in str(w.message)]
    run.warnings = [f"{w.category.__name__}: {w.message}" for w in warned]
    run.random = random_states()
    return run


# ---- random state and modes


def seed_all(seed: int) -> None:
    """Seeds PyTorch on all devices, Python's `random`, and NumPy if it is imported."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # `torch.manual_seed` would keep a traceback for each kind of GPU that is not here, which takes milliseconds
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def random_states() -> dict[str, Any]:
    """Returns the states of all default random generators."""
    version, words, gauss = random.getstate()
    python = (version, array.array("I", words).tobytes(), gauss)  # one object is compared faster than 625
    states: dict[str, Any] = {"cpu": torch.get_rng_state(), "python": python}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states |= {f"cuda:{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = (name, keys.tobytes(), *rest)
    return states


def _modes() -> dict[str, Any]:
    """Returns the global modes that a program may leave changed."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "autocast": [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
    }


@contextlib.contextmanager
def _all_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Context manager that collects all warnings, including those that PyTorch otherwise gives only once."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield caught
    finally:
        torch.set_warn_always(always)


# ---- globals and cells of the program


@contextlib.contextmanager
def _restored_globals(program: Any, changes: Sequence[str]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Context manager that restores these globals at the end; yields a function that returns their current values."""
    f_globals = inspect.unwrap(program).__globals__ if changes else {}
    before = {name: copy.deepcopy(f_globals[name]) for name in changes if name in f_globals}
    try:
        yield lambda: {name: f_globals[name] for name in changes if name in f_globals}
    finally:
        for name in changes:
            f_globals.pop(name, None)
        f_globals.update(before)


def external_state(program: Any) -> dict[str, Any]:
    """Returns the modules and tensors in globals and cells of a function and of the functions of its module it uses."""
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
        named = {name: function.__globals__[name] for name in _names_used(code) if name in function.__globals__}
        for name, value in (named | {n: _cell(c) for n, c in cells}).items():
            if isinstance(value, (torch.nn.Module, torch.Tensor)):
                found[name] = value
            elif isinstance(value, types.FunctionType) and value.__globals__ is function.__globals__:
                waiting.append(value)
    return found


def _names_used(code: types.CodeType) -> set[str]:
    """Returns the names that a code object and its nested code objects use."""
    return set(code.co_names).union(*(_names_used(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _copied_leaves(obj: Any) -> dict[str, Any]:
    return {name: (t.detach().clone(), t.requires_grad, _cloned(t.grad)) for name, t in _leaves(obj)}


def _leaves(obj: Any) -> Iterable[tuple[str, torch.Tensor]]:
    if isinstance(obj, torch.Tensor):
        return [("", obj)] if obj.is_leaf else []
    held = [*obj.named_parameters(), *obj.named_buffers()]
    return [(n, t) for n, t in held if t.is_leaf and not isinstance(t, UninitializedTensorMixin)]


def _cloned(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()


@contextlib.contextmanager
def restored_tensors(external: Mapping[str, Any]) -> Iterator[None]:
    """Context manager that restores the values and gradients of the leaves of these objects at the end."""
    before = [(t, t.detach().clone(), t.grad, _cloned(t.grad)) for obj in external.values() for _, t in _leaves(obj)]
    try:
        yield
    finally:
        for tensor, value, grad, grad_value in before:
            _restore_value(tensor, value)
            if grad is not None and grad_value is not None:
                _restore_value(grad, grad_value)
            if tensor.grad is not grad:
                tensor.grad = grad


def _restore_value(tensor: torch.Tensor, value: torch.Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta or tensor.shape != value.shape:
        return
    if not torch.equal(tensor.detach(), value):
        tensor.data.copy_(value)


# ---- backward passes


def _run_backward(run: ObservedRun, inputs: Sequence[torch.Tensor]) -> None:
    """Runs two passes that accumulate, with an in-place change between them, and a third after the graph was freed."""
    roots = [t for _, t in tensors(run.result) if t.requires_grad and gradient_function(t) is not None]
    leaves = [t for t in inputs if t.is_leaf]
    if not roots:
        run.gradients = [_cloned(t.grad) for t in leaves]
        return
    raised = [_pass(roots, keep=True)]
    if raised == [None]:
        run.gradients = [_cloned(t.grad) for t in leaves]
        _scale([t.grad for t in leaves if t.grad is not None])
        raised.append(_pass(roots, keep=False))
        if raised[-1] is None:
            run.accumulated = [t.grad for t in leaves]
            raised.append(_pass_after_free(roots, leaves))
    run.raised_backward = raised


def _pass_after_free(roots: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> str | None:
    """Runs a pass and returns its exception; gradients are restored."""
    gradients = [t.grad for t in leaves]
    for leaf in leaves:
        leaf.grad = None
    raised = _pass(roots, keep=False)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        leaf.grad = gradient
    return raised


def tangent(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """Returns a random gradient for a result, with the layout of the result; `number` is the seed."""
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        if tensor.layout is torch.strided:
            gradient = torch.empty_like(tensor, requires_grad=False)
            elements = gradient
        else:  # with the sparsity pattern of the result
            gradient = tensor.detach().clone()
            elements = gradient._values() if gradient.layout is torch.sparse_coo else gradient.values()
        elements.copy_(torch.randn(elements.shape, generator=generator, device="cpu"))
    return gradient


def _pass(roots: Sequence[torch.Tensor], keep: bool) -> str | None:
    """Runs one backward pass and returns its exception as text, or None.  `keep`: do not free the graph."""
    # New tangents for each pass: one may become the gradient of a leaf, which is then changed in place.
    tangents = [tangent(t, number) for number, t in enumerate(roots)]
    try:
        torch.autograd.backward(roots, tangents, retain_graph=keep)
    except Exception as error:
        message = _NODE.sub("", f"{type(error).__name__}: {error}")
    else:
        return None
    _clear_engine()
    return message


def _clear_engine() -> None:
    """Runs a trivial backward pass: after an exception the engine holds the rest of its graph until the next pass."""
    torch.autograd.backward([torch.ones((), requires_grad=True).mul(1)])


def _scale(gradients: Sequence[torch.Tensor]) -> None:
    """Scales each gradient in place by a different factor, as clipping does; shared memory is scaled twice."""
    with torch.no_grad():
        for number, gradient in enumerate(gradients):
            if gradient.layout is torch.strided and not gradient._is_zerotensor():
                gradient.mul_(1 + (number + 1) / 8)


# ---- leaks

WatchedTensors = list[tuple[str, weakref.ref[torch.Tensor]]]
"""The paths of tensors, and weak references to them."""


def watch_tensors(run: ObservedRun) -> WatchedTensors:
    """Returns weak references to the tensors of a run; see `leaked_tensors`."""
    return [(path, weakref.ref(t)) for path, t in tensors(run)]


def _alive(refs: WatchedTensors) -> list[str]:
    return [path for path, ref in refs if ref() is not None]


def leaked_tensors(runs: Sequence[tuple[WatchedTensors, WatchedTensors]]) -> list[str]:
    """Returns the paths of tensors of compiled runs that are alive although eager's are not.

    `runs`: the watched tensors of the eager and the compiled run of each call; the runs themselves were dropped.
    """
    if not any(_alive(compiled) for _, compiled in runs):
        return []
    gc.collect()
    return [
        f"call {number}{path}"
        for number, (eager, compiled) in enumerate(runs)
        for path in sorted(set(_alive(compiled)) - set(_alive(eager)))
    ]
