"""Checks of how close the values of tensors must be to eager's; each class is a `ValueCheck`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from compiler_core.tools.testing.object_trees import tensors

ERROR_FACTOR = 2.0
"""The greatest allowed error, in multiples of eager's own error."""
OUTLIER_FACTOR = 20.0
"""The greatest allowed error of an outlier, in multiples of eager's own error."""
ALLOWED_ULPS = 4.0
"""Errors of this many units in the last place of the greatest value are ignored: eager may be exact by chance."""
WITHOUT_FLOAT64 = 1e-4
"""The greatest allowed difference from eager, in multiples of a tensor's greatest value, if there is no float64 run."""
FEW_ELEMENTS = 16
"""Larger tensors are not printed: which element differs says more."""
NOISE_FACTOR = 12.0
"""The greatest allowed difference, in multiples of the noise."""


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the elements as a strided tensor without conjugate and negative bits, of a type that can be compared."""
    if tensor.is_nested:
        return tensor.to_padded_tensor(0.0)
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype is torch.complex32:  # few operators take it and floats of one byte
        return tensor.to(torch.complex64)
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def same_bits(want: torch.Tensor, got: torch.Tensor) -> bool:
    """Whether all elements are equal, including the signs of zeros; a NaN equals any NaN."""
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
    """Requires equal bits, except the payload of NaNs."""

    exact_strides = True

    def numbers(self, want: float, got: float) -> bool:
        return False  # `Comparison` then compares them like other plain values

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        return None if same_bits(plain(want), plain(got)) else f"{path}: {got}, not {want}"


class AnyValue:
    """Accepts any elements, as of uninitialised memory."""

    exact_strides = True

    def numbers(self, want: float, got: float) -> bool:
        return True

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        return None


class Close:
    """Requires values within a tolerance, both relative and absolute."""

    exact_strides = True

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance

    def numbers(self, want: float, got: float) -> bool:
        return math.isclose(want, got, rel_tol=self._tolerance)

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        a, b = plain(want), plain(got)
        if torch.equal(a, b) or torch.allclose(a, b, self._tolerance, self._tolerance, equal_nan=True):
            return None
        if want.numel() <= FEW_ELEMENTS:
            return f"{path}: {got}, not {want}"
        differ = ~torch.isclose(b, a, self._tolerance, self._tolerance, equal_nan=True)
        first = tuple(differ.nonzero()[0].tolist())
        shown = f"{b[first].item():.6g}, not {a[first].item():.6g}"
        return f"{path}: {int(differ.sum())} of {differ.numel()} elements differ; at {list(first)}: {shown}"


class Float64Error:
    """Requires an error, compared with a run in float64, of at most twice eager's own error, tensor by tensor.

    A program with operators that take no float64 (grouped matrix products) cannot run so.  Then values may differ from
    eager's by `WITHOUT_FLOAT64`.

    Eager's error is the greatest of several runs.  In ill-conditioned programs (batch norm over two images) the error
    of one run means little, so there are further eager runs, whose inputs differ in their last bits.
    """

    exact_strides = False

    def __init__(
        self, exact: Callable[[], Any], others: Callable[[], Sequence[Any]] = lambda: (), outliers: float = 0.0
    ) -> None:
        """
        Args:
            exact: returns the results of a run in float64.
            others: returns the results of further eager runs.
            outliers: the share of tensors that may err by up to `OUTLIER_FACTOR` times as much as eager.  An activation
                close to the kink of a ReLU can be on the other side of it, which changes single sums.

        Both are called at the first value that is not bit-equal to eager's.
        """
        self._run_exact, self._run_others, self._outliers = exact, others, outliers
        self.outliers: list[str] = []
        """The differences that were taken for outliers."""
        self.failed = ""
        """The exception of the run in float64."""
        self._exact: dict[str, torch.Tensor] | None = None
        self._others: list[dict[str, torch.Tensor]] = []

    def numbers(self, want: float, got: float) -> bool:
        return math.isclose(want, got, rel_tol=1e-5)

    def _run(self) -> dict[str, torch.Tensor]:
        try:
            run = self._run_exact()
        except Exception as error:
            self.failed = f"{type(error).__name__}: {error}"
            return {}
        self.failed = getattr(run, "raised", None) or ""
        self._others = [dict(tensors(other)) for other in self._run_others()]
        return dict(tensors(run))

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        a, b = plain(want), plain(got)
        if same_bits(a, b):
            return None
        if self._exact is None:
            self._exact = self._run()
        if self.failed:
            return _difference_without_float64(path, a, b)
        exact = self._exact.get(path)
        if exact is None or exact.shape != a.shape:
            return f"{path}: differs from eager's, and the run in float64 has no such tensor"
        eager = [a, *(plain(run[path]) for run in self._others if path in run and run[path].shape == a.shape)]
        exact = plain(exact.detach())
        found = float64_difference(path, b, eager, exact)
        if found and len(self.outliers) + 1 <= self._outliers * len(self._exact):
            self.outliers.append(found)
            found = float64_difference(path, b, eager, exact, OUTLIER_FACTOR)
        return found


def float64_difference(
    path: str,
    got: torch.Tensor,
    eager: Sequence[torch.Tensor],
    exact: torch.Tensor,
    factor: float = ERROR_FACTOR,
) -> str | None:
    """Returns why the error of `got` is more than `factor` times eager's, or None; `eager`: values of several eager
    runs."""
    if exact.is_complex():
        exact, got = torch.view_as_real(exact), torch.view_as_real(got)
        eager = [torch.view_as_real(each) for each in eager]
    if not got.is_floating_point():
        return _difference_from_all(path, got, eager)
    error, scale = _error(got, exact)
    allowed, eps = max(_error(each, exact)[0] for each in eager), torch.finfo(got.dtype).eps
    if error <= factor * allowed + ALLOWED_ULPS * eps * scale:
        return None
    where = int((got.double() - exact.double()).abs().nan_to_num(math.inf).argmax()) if got.numel() else 0
    values = [float(each.flatten()[where]) for each in (got, eager[0], exact)]
    return (
        f"{path}: error {error:.3g} against float64, eager's is {allowed:.3g} (values up to {scale:.3g}); "
        f"{values[0]:.9g}, not {values[1]:.9g} ({values[2]:.9g})"
    )


def _difference_without_float64(path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
    if want.is_complex():
        want, got = torch.view_as_real(want), torch.view_as_real(got)
    if not want.is_floating_point():
        return _difference_from_all(path, got, [want])
    error, scale = _error(got, want)
    if error <= max(WITHOUT_FLOAT64, ALLOWED_ULPS * torch.finfo(want.dtype).eps) * scale:
        return None
    return f"{path}: differs by {error:.3g} from eager's (values up to {scale:.3g}); there is no run in float64"


def _difference_from_all(path: str, got: torch.Tensor, eager: Sequence[torch.Tensor]) -> str | None:
    """Checks that each integer or bool equals that of at least one eager run."""
    equal = torch.stack([got == each for each in eager]).any(0)
    if bool(equal.all()):
        return None
    return f"{path}: {int((~equal).sum())} of {got.numel()} differ: {got}, not {eager[0]}"


def _error(value: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """Returns the greatest error and the greatest finite value; the error is infinite for a wrong NaN or infinity."""
    value, exact = value.double(), exact.double()
    same = (value == exact) | (value.isnan() & exact.isnan())
    finite = value.isfinite() & exact.isfinite()
    scale = float(exact[finite].abs().max()) if bool(finite.any()) else 0.0
    if not bool((same | finite).all()):
        return math.inf, scale
    return float(torch.where(same, 0.0, (value - exact).abs()).max()) if value.numel() else 0.0, scale


class WithinNoise:
    """Requires differences of at most a few times the noise of eager runs with results changed in their last bits.

    For programs that compare and round: there a run in float64 may take another branch than one in float32.
    """

    exact_strides = False

    def __init__(self, runs: Callable[[], Sequence[Any]]) -> None:
        """`runs` returns the results of the noisy runs; it is called at the first value that differs."""
        self._runs = runs
        self._noisy: list[Mapping[str, torch.Tensor]] | None = None

    def numbers(self, want: float, got: float) -> bool:
        return False

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        if want.is_complex():
            want, got = torch.view_as_real(plain(want)), torch.view_as_real(plain(got))
        if torch.equal(want, got) or not want.numel():
            return None
        if self._noisy is None:
            self._noisy = [dict(tensors(run)) for run in self._runs()]
        noisy = [run[path].detach() for run in self._noisy if path in run]
        noisy = [torch.view_as_real(plain(each)) if each.is_complex() else each for each in noisy]
        noisy = [each for each in noisy if each.shape == want.shape]
        wrong = _beyond_noise(want, got, noisy)
        if not bool(wrong.any()):
            return None
        at = tuple(int(k) for k in wrong.nonzero()[0])
        return f"{path}{list(at)}: {got[at]}, not {want[at]}; {int(wrong.sum())} of {want.numel()} differ"


def _beyond_noise(want: torch.Tensor, got: torch.Tensor, noisy: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns a mask of the elements of `got` that differ from `want` by more than the noise."""
    # eager's own kernels differ in whether an infinity leads to NaN or to an infinity
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


def value_check(tolerance: float) -> Exact | Close:
    """Returns the check for a tolerance; `Exact` for 0."""
    return Close(tolerance) if tolerance else Exact()
