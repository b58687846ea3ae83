"""Compare a program's kernels with eager PyTorch, as closely as the program itself lets one.

Eager runs some times more with every result of an operation moved by up to the last bit of its type: what that does to
a value is what another order of summation or another last bit of a sine may do to it, through comparisons and roundings
too.  A value may be a few times as far from eager's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from compiler_core import testing
from compiler_core.api import compile, record_of
from compiler_core.record import Record

RUNS = 6
FACTOR = 12.0


class Noise(TorchDispatchMode):
    """Moves the floats that an operation makes by the last bit of their type, up, down or not at all."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if any(r.alias_info is not None for r in func._schema.returns):
            return made  # a view, or what was written to
        return torch.utils._pytree.tree_map(self._moved, made)

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value._is_zerotensor():
            return value  # a zero tensor has no memory
        bits = torch.empty_like(value).random_(-1, 2, generator=self._generator(value.device))
        return value.mul_(1 + bits * torch.finfo(value.dtype).eps) if value.numel() else value

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


def valid(module: Any, arguments: Sequence[tuple[Any, ...]]) -> None:
    """Raise TypeError where `module` is none that `check` takes: arguments are tensors, and eager raises nothing."""
    if not all(isinstance(t, torch.Tensor) for t in itertools.chain(*arguments)) or not hasattr(module, "GRAD"):
        raise TypeError("arguments are tensors, and GRAD is said")
    with torch.no_grad():
        for each in arguments:
            if any(not isinstance(t, torch.Tensor) for t in module.program(*each)):
                raise TypeError("results are tensors")


def check(module: Any, backend: Any) -> Record:
    """Raise AssertionError where the program of `module`, compiled, differs from eager by more than noise makes."""
    program, compiled = module.program, compile(module.program, backend=backend, strict=True)
    for call, (seed, make) in enumerate(testing._calls(module.CALLS, 1)):

        def outcome(fn: Callable[..., Any], make: testing.Inputs = make, seed: int = seed) -> testing.Outcome:
            return testing._outcome(fn, program, make, seed, module.GRAD, ())

        want, noisy = outcome(program), []
        for number in range(RUNS):
            with Noise(number):
                noisy.append(outcome(program))
        got = outcome(compiled)
        assert got.raised == want.raised, f"call {call}, seed {seed}: raises {got.raised}, not {want.raised}"
        found = _Comparison(want, noisy).compare("", want, got)
        assert found is None, f"call {call}, seed {seed}: {found}"
    record = record_of(compiled)
    # what cannot be differentiated ahead of time is refused, and PyTorch runs it
    failures = [f for c in record.compiles for f in c.failures if f.stage != "run" and "JointRefused" not in f.detail]
    assert not failures, "\n".join(f.detail or f.message for f in failures)
    return record


class _Comparison(testing._Comparison):
    """Values may differ as far as those of the runs with noise do."""

    def __init__(self, want: testing.Outcome, noisy: Sequence[testing.Outcome]) -> None:
        super().__init__(0.0)
        columns = zip(testing._tensors(want), *map(testing._tensors, noisy), strict=False)
        self._noisy = {id(first): [t.detach() for t in others] for first, *others in columns}
        self._at: list[torch.Tensor] = []

    def _tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        self._at = self._noisy.get(id(want), [])
        return super()._tensors(path, want, got)

    def _strides(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """Those that say where elements are."""
        return tuple(s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1 and tensor.numel())

    def _values(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        if torch.equal(want, got) or not want.numel():
            return None
        wrong = _wrong(want, got, [t for t in self._at if t.shape == want.shape])
        if not bool(wrong.any()):
            return None
        at = tuple(int(k) for k in wrong.nonzero()[0])
        return f"{path}{list(at)}: {got[at]}, not {want[at]}; {int(wrong.sum())} of {want.numel()} differ"


def _wrong(want: torch.Tensor, got: torch.Tensor, noisy: Sequence[torch.Tensor]) -> torch.Tensor:
    """Where `got` is further from `want` than the noise explains."""
    # which of NaN and infinity an infinity leads to differs between eager's own kernels
    same = (want == got) | (~want.isfinite() & ~got.isfinite())
    if not want.is_floating_point():
        return ~same & torch.stack([want == want, *(t == want for t in noisy)]).all(0)
    exact, eps = want.double(), torch.finfo(want.dtype)
    moved = torch.stack([exact, *(t.double() for t in noisy)])
    spread = torch.where((moved == exact) | (moved.isnan() & exact.isnan()), 0.0, (moved - exact).abs()).amax(0)
    spread = spread.nan_to_num(math.inf)
    usual = spread[spread.isfinite()].mean() if bool(spread.isfinite().any()) else 0.0
    allowed = FACTOR * (spread + usual / 4 + eps.eps * exact.abs() + 4 * eps.smallest_normal * eps.eps)
    return ~same & ~((got.double() - exact).abs() <= allowed) & spread.isfinite()
