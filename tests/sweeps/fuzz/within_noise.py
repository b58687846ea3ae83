"""Compares a program's kernels with eager PyTorch, within the noise of the program itself.

If a value differs from eager's, eager runs several more times with the result of each operation changed by up to the
last bit of its type.  This shows the effect of another order of summation or another last bit of a sine, also through
comparisons and roundings.  A value may differ from eager's by a few times that noise (`testing.WithinNoise`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from compiler_core.api.compile import compile, record_of
from compiler_core.records import Record
from compiler_core.tools import testing

RUNS = 6
aten = torch.ops.aten
UNSURE = {
    *(aten.hardshrink_backward.default, aten.softshrink_backward.default, aten.hardtanh_backward.default),
    *(aten.elu_backward.default, aten.hardswish_backward.default, aten.gelu.default),
}
"""Operators for which the vector and the scalar code of PyTorch's CPU kernels differ: gradients at NaN, and gelu at
infinity.  What eager gives depends on the element's place."""
_WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def _accumulates_halves(func: Any, args: Any) -> bool:
    """Whether eager adds up values of 16 bits, rounding after each; compiled code adds them up in float32."""
    is_put = func in (aten.index_put.default, aten.index_put_.default)
    return is_put and len(args) > 3 and args[3] and args[0].dtype in (torch.bfloat16, torch.float16)


def _in_float64(func: Any, args: Any, kwargs: Any) -> Any:
    """Calls an operator whose error is not that of its last operation: `upsample` computes coordinates in the type of
    the image, and may err by the image's slope times a coordinate's error."""
    first = next(t for t in torch.utils._pytree.tree_leaves(args) if isinstance(t, torch.Tensor))
    if not first.is_floating_point():
        return func(*args, **kwargs)
    wide = torch.utils._pytree.tree_map(lambda t: t.double() if isinstance(t, torch.Tensor) else t, args)
    return func(*wide, **kwargs).to(first.dtype)


def _with_memory(value: Any) -> Any:
    """Returns zeros in place of zeros without memory: in a dispatch mode some operators of PyTorch read them, which
    ends the process."""
    return value.clone() if isinstance(value, torch.Tensor) and value._is_zerotensor() else value


class Noise(TorchDispatchMode):
    """Changes the float results of each operation by the last bit of their type, up, down or not at all."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = torch.utils._pytree.tree_map(_with_memory, args)
        if self._seed % 2 and _accumulates_halves(func, args):
            wide = aten.index_put(args[0].float(), args[1], args[2].float(), True)
            return args[0].copy_(wide) if func is aten.index_put_.default else wide.to(args[0].dtype)
        if self._seed % 2 and "upsample" in func.name():
            return _in_float64(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if any(r.alias_info is not None for r in func._schema.returns):
            return result  # a view, or what was written to
        if func is aten.gelu.default and self._seed % 3 == 2:  # infinity as by scalar code
            return torch.where(args[0].isfinite(), result, args[0].masked_fill(args[0] < 0, torch.nan))
        if func in UNSURE and (other := (None, torch.nan, 0.0)[self._seed % 3]) is not None:
            special = [~t.isfinite() for t in torch.utils._pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
            return result.masked_fill(torch.stack(torch.broadcast_tensors(*special)).any(0), other)
        if func is aten.signbit.default and self._seed % 2:
            return result ^ args[0].isnan()
        if func is aten._to_copy.default and args[0].is_floating_point() and not result.is_floating_point():
            return self._beyond_range(args[0], result)
        return torch.utils._pytree.tree_map(self._moved, result)

    def moved_leaf(self, value: Any) -> Any:
        """Returns an input, changed likewise, as a leaf."""
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.is_floating_point():
            return value
        with torch.no_grad():
            return (value * self._factors(value)).requires_grad_(value.requires_grad)

    def _beyond_range(self, value: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        """Changes the integers of numbers that do not fit their type: each kernel may have others."""
        if result.dtype not in _WHOLE or self._seed % 2:
            return result
        bounds = torch.iinfo(result.dtype)
        inside = (value.double() > bounds.min - 1) & (value.double() < bounds.max + 1)
        return torch.where(inside, result, bounds.max - self._seed)

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value._is_zerotensor() or value.is_meta:
            return value  # it has no memory
        if value.is_complex():
            self._moved(torch.view_as_real(value.conj() if value.is_conj() else value))
            return value
        return value.mul_(self._factors(value)) if value.is_floating_point() and value.numel() else value

    def _factors(self, value: torch.Tensor) -> torch.Tensor:
        """Returns 1 plus or minus the last bit, or 1.  Small whole numbers, which may be the largest that an operator
        takes (probabilities, places in a row), do not grow."""
        eps = torch.finfo(value.dtype).eps
        bits = torch.empty_like(value).random_(-1, 2, generator=self._generator(value.device))
        is_bound = (value == value.trunc()) & (value.abs() * eps < 1 / 8)
        return 1 + torch.where(is_bound, bits.clamp(max=0), bits) * eps

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


def valid(module: Any, arguments: Sequence[tuple[Any, ...]]) -> None:
    """Raises TypeError unless `check` can take `module`: arguments are tensors, and eager does not raise."""
    if not all(isinstance(t, torch.Tensor) for t in itertools.chain(*arguments)) or not hasattr(module, "GRAD"):
        raise TypeError("arguments are tensors, and GRAD is said")
    with torch.no_grad():
        for each in arguments:
            if any(not isinstance(t, torch.Tensor) for t in module.program(*each)):
                raise TypeError("results are tensors")


def check(module: Any, backend: Any) -> Record:
    """Raises AssertionError if the compiled program of `module` differs from eager by more than the noise."""
    compiled = compile(module.program, backend=backend, strict=True)
    compare(module, compiled)
    record = record_of(compiled)
    # what cannot be differentiated ahead of time is refused, and PyTorch runs it
    failures = [f for c in record.compiles for f in c.failures if f.stage != "run" and f.kind != "refusal"]
    assert not failures, "\n".join(f.detail or f.message for f in failures)
    return record


def _keep_only(part: str, want: testing.ObservedRun, got: testing.ObservedRun) -> None:
    """Replaces all but one part of `got`, such as ``.result[2]``, by those of `want`."""
    name, _, index = part.removeprefix(".").removesuffix("]").partition("[")
    for field in dataclasses.fields(want):
        found, wanted = getattr(got, field.name), getattr(want, field.name)
        if field.name != name:
            setattr(got, field.name, wanted)
        elif index and len(found or ()) == len(wanted or ()) > int(index):
            setattr(got, name, [*wanted[: int(index)], found[int(index)], *wanted[int(index) + 1 :]])


def compare(module: Any, compiled: Callable[..., Any], only: str = "") -> None:
    """Raises AssertionError if `compiled` differs from the program of `module` by more than the noise.

    Args:
        module: with the program and its calls.
        compiled: the compiled program.
        only: a part of the run, such as ``.result[2]``; nothing else is compared.
    """
    program = module.program
    for call, (seed, make) in enumerate(testing.calls(module.CALLS, 1)):

        def observed(fn: Callable[..., Any], make: testing.Inputs = make, seed: int = seed) -> testing.ObservedRun:
            return testing.observe(fn, make, seed, program=program, grad=module.GRAD)

        def noisy(fn: Callable[..., Any] = program, observed: Any = observed) -> list[testing.ObservedRun]:
            worlds = []
            for number in range(RUNS):
                with Noise(number):
                    worlds.append(observed(fn))
            return worlds

        want, got = observed(program), observed(compiled)
        testing.ignore_known_differences(want, got)
        if only:
            _keep_only(only, want, got)
        found = testing.Comparison(testing.WithinNoise(noisy)).compare("", want, got)
        assert found is None, f"call {call}, seed {seed}: {found}"
