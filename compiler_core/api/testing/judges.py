"""How near to eager's a tensor's values must be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from compiler_core.api.testing.trees import tensors

FACTOR = 2.0
"""How many times eager's own error ours may be."""
LAST_BITS = 4.0
"""Errors of so many last bits of the greatest value are none: eager may be exact by luck."""
NOISE_FACTOR = 12.0


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The elements, strided and as they are read."""
    if tensor.is_nested:
        return tensor.to_padded_tensor(0.0)
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    return tensor.resolve_conj().resolve_neg()


def same_bits(want: torch.Tensor, got: torch.Tensor) -> bool:
    """Equal, zeros by their signs too, and NaN where NaN is."""
    if want.is_complex():
        return same_bits(torch.view_as_real(want), torch.view_as_real(got))
    if not want.is_floating_point():
        return torch.equal(want, got)
    missing = want.isnan()
    if not torch.equal(missing, got.isnan()):
        return False
    same = (want == got) & (want.signbit() == got.signbit())
    return bool((same | missing).all())


class Exact:
    """Every bit is eager's."""

    exact_strides = True

    def numbers(self, want: float, got: float) -> bool:
        return False  # the tree compares them as it does every other value

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        return None if same_bits(plain(want), plain(got)) else f"{path}: {got}, not {want}"


class Anything:
    """Elements are whatever lies in memory."""

    exact_strides = True

    def numbers(self, want: float, got: float) -> bool:
        return True

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        return None


class Close:
    """Values are within a tolerance, relative and absolute, of eager's."""

    exact_strides = True

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance

    def numbers(self, want: float, got: float) -> bool:
        return math.isclose(want, got, rel_tol=self._tolerance)

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        a, b = plain(want), plain(got)
        if torch.equal(a, b) or torch.allclose(a, b, self._tolerance, self._tolerance, equal_nan=True):
            return None
        return f"{path}: {got}, not {want}"


class BesideFloat64:
    """The error beside a run in float64 is at most twice eager's own, tensor by tensor.

    Eager's error is the greatest of several runs: in ill-conditioned programs (batch norm over two images) one run says
    little, so `others` are runs of eager whose inputs were moved by their last bits.
    """

    exact_strides = False

    def __init__(self, exact: Callable[[], Any], others: Callable[[], Sequence[Any]] = lambda: ()) -> None:
        """`exact` makes the run in float64, `others` those of eager; they are called where a value is not eager's."""
        self._runs = exact, others
        self._exact: dict[str, torch.Tensor] | None = None
        self._others: list[dict[str, torch.Tensor]] = []

    def numbers(self, want: float, got: float) -> bool:
        return math.isclose(want, got, rel_tol=1e-5)

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        a, b = plain(want), plain(got)
        if same_bits(a, b):
            return None
        if self._exact is None:
            self._exact = dict(tensors(self._runs[0]()))
            self._others = [dict(tensors(other)) for other in self._runs[1]()]
        exact = self._exact.get(path)
        if exact is None or exact.shape != a.shape:
            return f"{path}: differs from eager's, and float64 has no such tensor"
        eager = [a, *(plain(run[path]) for run in self._others if path in run and run[path].shape == a.shape)]
        return beside(path, b, eager, plain(exact.detach()))


def beside(path: str, got: torch.Tensor, eager: Sequence[torch.Tensor], exact: torch.Tensor) -> str | None:
    """What is wrong with `got` where the values are `exact` and eager's, in some runs, are `eager`."""
    if exact.is_complex():
        exact, got = torch.view_as_real(exact), torch.view_as_real(got)
        eager = [torch.view_as_real(each) for each in eager]
    if not got.is_floating_point():
        return _as_any(path, got, eager)
    error, scale = _error(got, exact)
    allowed, eps = max(_error(each, exact)[0] for each in eager), torch.finfo(got.dtype).eps
    if error <= FACTOR * allowed + LAST_BITS * eps * scale:
        return None
    where = int((got.double() - exact.double()).abs().nan_to_num(math.inf).argmax()) if got.numel() else 0
    values = [float(each.flatten()[where]) for each in (got, eager[0], exact)]
    return (
        f"{path}: error {error:.3g} beside float64, eager's is {allowed:.3g} (values up to {scale:.3g}); "
        f"{values[0]:.9g}, not {values[1]:.9g} ({values[2]:.9g})"
    )


def _as_any(path: str, got: torch.Tensor, eager: Sequence[torch.Tensor]) -> str | None:
    """Whole numbers and bools are those of one of eager's runs, element by element."""
    right = torch.stack([got == each for each in eager]).any(0)
    return (
        None if bool(right.all()) else f"{path}: {int((~right).sum())} of {got.numel()} differ: {got}, not {eager[0]}"
    )


def _error(value: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """The greatest error, and the greatest value; infinite where NaN or an infinity stands where none should."""
    value, exact = value.double(), exact.double()
    same = (value == exact) | (value.isnan() & exact.isnan())
    finite = value.isfinite() & exact.isfinite()
    scale = float(exact[finite].abs().max()) if bool(finite.any()) else 0.0
    if not bool((same | finite).all()):
        return math.inf, scale
    return float(torch.where(same, 0.0, (value - exact).abs()).max()) if value.numel() else 0.0, scale


class WithinNoise:
    """Values are as far from eager's as a few times what moving the last bits of its operations' results makes.

    For programs that compare and round: there, float64 may go another way than float32.
    """

    exact_strides = False

    def __init__(self, runs: Callable[[], Sequence[Any]]) -> None:
        """`runs` makes the noisy runs; it is called where a value is not eager's."""
        self._runs = runs
        self._noisy: list[Mapping[str, torch.Tensor]] | None = None

    def numbers(self, want: float, got: float) -> bool:
        return False

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        if torch.equal(want, got) or not want.numel():
            return None
        if self._noisy is None:
            self._noisy = [dict(tensors(run)) for run in self._runs()]
        noisy = [run[path].detach() for run in self._noisy if path in run and run[path].shape == want.shape]
        wrong = _beyond(want, got, noisy)
        if not bool(wrong.any()):
            return None
        at = tuple(int(k) for k in wrong.nonzero()[0])
        return f"{path}{list(at)}: {got[at]}, not {want[at]}; {int(wrong.sum())} of {want.numel()} differ"


def _beyond(want: torch.Tensor, got: torch.Tensor, noisy: Sequence[torch.Tensor]) -> torch.Tensor:
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
    allowed = NOISE_FACTOR * (spread + usual / 4 + eps.eps * exact.abs() + 4 * eps.smallest_normal * eps.eps)
    return ~same & ~((got.double() - exact).abs() <= allowed) & spread.isfinite()


def judge(tolerance: float) -> Exact | Close:
    """The judge for a tolerance; every bit counts where there is none."""
    return Close(tolerance) if tolerance else Exact()
