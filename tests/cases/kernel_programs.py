"""Programs for the tests of lowering, fusion and code: traced, compiled, compared with eager."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.autograd.trace import decompositions
from compiler_core.config import Options
from compiler_core.pipeline.graph import compile_kernels
from compiler_core.records import Compile, Record
from compiler_core.support.fx_graphs import record_graph

Tensors = Sequence[torch.Tensor]
Program = Callable[..., Any]


def trace(program: Program, *inputs: torch.Tensor) -> fx.GraphModule:
    """A functional graph of aten operations, with the decompositions of our compiler."""
    traced: fx.GraphModule = make_fx(
        torch.func.functionalize(program), decomposition_table=decompositions.decomposition_table()
    )(*inputs)
    return traced


def compiled(program: Program, *inputs: torch.Tensor) -> tuple[Callable[..., list[Any]], Compile]:
    """`program` as C++ kernels, and the record of how."""
    gm = trace(program, *inputs)
    record = Record()
    compile_ = record.compile(record.frame("program", "program.py", 1, "root"))
    record_graph(compile_, "forward", "forward", gm)
    return compile_kernels(gm, "forward", compile_, Options()), compile_


def outputs(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def check(program: Program, *inputs: torch.Tensor, tolerances: Sequence[float] | None = None) -> Compile:
    """Compile `program`, run it twice and compare everything with eager.

    A tolerance of 0 asks for the same numbers; by default it goes by the result's type.
    """
    expected = outputs(program(*[_same(t) for t in inputs]))
    run, compile_ = compiled(program, *[_same(t) for t in inputs])
    for _ in range(2):
        got = run([_same(t) for t in inputs])
        assert len(got) == len(expected)
        for ours, reference, tolerance in zip(got, expected, tolerances or repeat(None), strict=False):
            assert_same(ours, reference, tolerance)
    return compile_


def assert_same(ours: torch.Tensor, expected: torch.Tensor, tolerance: float | None = None) -> None:
    assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
    if expected.numel() > 1:
        assert ours.stride() == expected.stride()
    if tolerance is None:
        tolerance = TOLERANCE.get(expected.dtype, 0)
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and storage offset."""
    if any(s == 0 for s in tensor.stride()):
        return tensor
    size = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    if not tensor.numel():
        return tensor.clone()
    flat = torch.empty(size, dtype=tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tensor)


# -- random programs ---------------------------------------------------------------------------

UNARY = (
    *(torch.neg, torch.abs, torch.relu, torch.tanh, torch.sigmoid, torch.sin, torch.cos, torch.erf, torch.floor),
    *(torch.square, torch.sign, torch.nn.functional.gelu, torch.nn.functional.silu, torch.trunc),
)
EXACT_UNARY = (torch.neg, torch.abs, torch.relu, torch.square, torch.sign)
BINARY = (torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum)
FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.bool)


@dataclass
class Step:
    apply: Callable[..., torch.Tensor]
    arguments: tuple[int, ...]


@dataclass
class RandomProgram:
    """A straight-line program of random operations."""

    seed: int
    length: int = 12
    inputs: list[torch.Tensor] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    exact: list[bool] = field(default_factory=list)
    rough: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        torch.manual_seed(self.seed)
        sizes = [self._random.choice((1, 2, 3, 5, 8, 17)) for _ in range(self._random.randint(1, 4))]
        self.inputs = [self._input(sizes) for _ in range(self._random.randint(1, 4))]
        values, self.exact = list(self.inputs), [True] * len(self.inputs)
        self.rough = [TOLERANCE.get(t.dtype, 0) for t in self.inputs]
        while len(self.steps) < self.length:
            step, exact = self._step(values)
            try:
                value = step.apply(*(values[a] for a in step.arguments))
            except (RuntimeError, IndexError):
                continue  # not for these types or sizes: draw another
            if value.is_complex() or value.numel() > 20_000:
                continue
            self.steps.append(step)
            self.exact.append(exact and all(self.exact[a] for a in step.arguments))
            self.rough.append(max([TOLERANCE.get(value.dtype, 0), *(self.rough[a] for a in step.arguments)]))
            values.append(value)
        result = range(len(self.inputs), len(values))
        self.results = sorted({result[-1], *self._random.sample(result, self._random.randint(1, 4))})

    @property
    def tolerances(self) -> list[float]:
        """0 for results that rounding cannot change, else by the least exact type on the way."""
        return [0 if self.exact[r] else self.rough[r] for r in self.results]

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for step in self.steps:
            values.append(step.apply(*(values[a] for a in step.arguments)))
        return tuple(values[r] for r in self.results)

    def _input(self, sizes: list[int]) -> torch.Tensor:
        """Broadcast, transposed, sliced or plain."""
        sizes = sizes[self._random.randrange(len(sizes)) :] if self._random.random() < 0.3 else sizes
        sizes = [1 if self._random.random() < 0.15 else s for s in sizes]
        dtype = self._random.choice(DTYPES)
        form = self._random.choice(("plain", "plain", "permuted", "sliced", "offset"))
        order = list(range(len(sizes)))
        if form == "permuted":
            self._random.shuffle(order)
        wide = [sizes[d] + (2 if form == "sliced" else 0) for d in order]
        value = torch.randn(wide).mul(3).to(dtype)
        if form == "sliced":
            value = value[tuple(slice(1, s - 1) for s in wide)]
        elif form == "offset":
            value = torch.cat([value.flatten()[:1], value.flatten()])[1:].view(wide)
        return value.permute([order.index(d) for d in range(len(sizes))])

    def _step(self, values: Tensors) -> tuple[Step, bool]:
        kinds = (self._unary, self._binary, self._binary, self._reduction, self._view, self._choice, self._cast)
        return self._random.choice(kinds)(values)

    def _pick(self, values: Tensors) -> int:
        # late values more often, so that chains grow
        return max(self._random.randrange(len(values)) for _ in range(2))

    def _unary(self, values: Tensors) -> tuple[Step, bool]:
        function = self._random.choice(UNARY)
        return Step(function, (self._pick(values),)), function in EXACT_UNARY

    def _binary(self, values: Tensors) -> tuple[Step, bool]:
        function = self._random.choice(BINARY)
        a = self._pick(values)
        if self._random.random() < 0.3:
            number = self._random.choice((2, 0.5, -1, True))
            return Step(lambda x: function(x, torch.tensor(number)), (a,)), True
        return Step(function, (a, self._pick(values))), True

    def _reduction(self, values: Tensors) -> tuple[Step, bool]:
        a = self._pick(values)
        rank = values[a].dim()
        dims = self._random.sample(range(rank), self._random.randint(1, rank)) if rank else []
        keep = self._random.random() < 0.5
        name = self._random.choice(("sum", "mean", "amax", "amin", "var", "softmax", "any"))
        if name == "softmax":
            dim = dims[0] if dims else 0
            return Step(lambda x: x.softmax(dim), (a,)), False
        if name == "any":
            return Step(lambda x: (x != 0).any(dims[0] if dims else 0, keep), (a,)), True
        is_exact = name in ("amax", "amin") or not values[a].is_floating_point()
        return Step(lambda x: getattr(x, name)(dims, keepdim=keep), (a,)), is_exact

    def _view(self, values: Tensors) -> tuple[Step, bool]:
        a = self._pick(values)
        shape = list(values[a].shape)
        rank = len(shape)
        d, e = (self._random.randrange(max(rank, 1)) for _ in range(2))
        size = shape[d] if shape else 1
        start = self._random.randrange(size)
        forms: list[Callable[[torch.Tensor], torch.Tensor]] = [
            lambda x: x.transpose(d, e),
            lambda x: x.unsqueeze(d),
            lambda x: x.reshape(-1),
            lambda x: x.flatten(min(d, e), max(d, e)),
            lambda x: x.narrow(d, start, size - start),
            lambda x: x.select(d, start),
            lambda x: x[(slice(None),) * d + (slice(0, size, 2),)],
            lambda x: x.expand(3, *x.shape),
            lambda x: x.contiguous(),
            lambda x: x.squeeze(),
        ]
        return Step(self._random.choice(forms), (a,)), True

    def _choice(self, values: Tensors) -> tuple[Step, bool]:
        """A comparison and what follows from it; only of values without rounding errors."""
        exact = [k for k, e in enumerate(self.exact) if e]
        a, b = self._random.choice(exact), self._random.choice(exact)
        c = self._pick(values)
        if self._random.random() < 0.5:
            return Step(lambda x, y, z: torch.where(x > y, z, x.to(z.dtype)), (a, b, c)), True
        return Step(lambda x, y: x.masked_fill(y.to(torch.bool), 1), (a, b)), True

    def _cast(self, values: Tensors) -> tuple[Step, bool]:
        dtype = self._random.choice(DTYPES)
        a = self._pick(values)
        if not dtype.is_floating_point and not self.exact[a]:
            dtype = torch.float32
        return Step(lambda x: x.to(dtype), (a,)), True
