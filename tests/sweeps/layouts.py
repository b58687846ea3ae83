"""Compares the shapes, strides and types of fake results with those of PyTorch's kernels, for all layouts of arguments.

``python -m tests.sweeps.gpu layouts`` compares all operators and their gradients, on a GPU or with ``--device cpu``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from compiler_core.capture.tensors.fake_tensors import FakeMode

MOST_LAYOUTS = 10
MOST_SAMPLES = 8
KNOWN = {
    *("aten._fft_r2c.default", "aten._fft_c2c.default", "aten._fft_c2r.default"),
    *("aten._embedding_bag_forward_only.default", "aten._sparse_mm_reduce_impl.default"),
}
"""Operators with other fake results: spectra of tensors with unusual strides; and sizes that nothing reads."""


def names() -> list[str]:
    """Returns the names in PyTorch's operator database of the operators that take float32."""
    return list(dict.fromkeys(operator.name for operator in _operators()))


def differences_of(name: str, device: str) -> dict[str, str]:
    """Returns how fake results differ in the samples of an operator, for each operator that it calls."""
    different: dict[str, str] = {}
    for operator in _operators():
        if operator.name == name:
            for sample in list(operator.sample_inputs(device, torch.float32))[:MOST_SAMPLES]:
                different |= differences(functools.partial(operator, **sample.kwargs), sample.input, *sample.args)
    return {operator: text for operator, text in different.items() if operator not in KNOWN}


def _operators() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [operator for operator in op_db if torch.float32 in operator.dtypes]


def differences(function: Callable[..., Any], *arguments: Any) -> dict[str, str]:
    """Calls a function with each argument, and with all of them, in each layout, and computes gradients."""
    compared = _Compared()
    for place in (*range(len(arguments)), None):
        for number in range(MOST_LAYOUTS):
            given = [_laid_out(a, number) if place in (i, None) else a for i, a in enumerate(arguments)]
            given = [a.requires_grad_() if _is_strided(a) and a.is_floating_point() else a for a in given]
            with contextlib.suppress(Exception), compared:  # it takes no such layout
                _backward(function(*given), given, number)
    return compared.different


def layouts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns tensors of the shape of `x` in all layouts, by name.  All but the expanded ones have its values."""
    found = {"contiguous": x}
    if x.dim():
        back = tuple(range(x.dim() - 1, -1, -1))
        found["reversed"] = x.permute(back).contiguous().permute(back)
        found["expanded"] = x[:1].expand(x.shape)
        found["every second"] = torch.stack([x, x], -1).flatten(-2)[..., ::2]
        # elements that share memory; integers may be indices, and only 0 is one in every dimension
        memory = x.new_zeros(sum(x.shape) + 1)
        if x.is_floating_point():
            memory = torch.linspace(0.25, 1, len(memory), dtype=x.dtype, device=x.device)
        found["overlapping"] = memory.as_strided(x.shape, (1,) * x.dim())
    if x.dim() > 1:
        found["transposed"] = x.transpose(0, 1).contiguous().transpose(0, 1)
        found["expanded columns"] = x[..., :1].expand(x.shape)
        found["slice"] = F.pad(x, (1, 2) * x.dim())[(slice(1, -2),) * x.dim()]
        strides = [7 if n == 1 else step for n, step in zip(x.shape, x.stride(), strict=True)]
        found["sizes of one"] = x.as_strided(x.shape, strides)
    if x.dim() in (4, 5):
        last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        found["channels_last"] = x.contiguous(memory_format=last)
    return found


def _laid_out(value: Any, number: int) -> Any:
    """Returns a strided tensor in the layout of that number, and other values as they are."""
    return dict(enumerate(layouts(value.detach()).values())).get(number, value) if _is_strided(value) else value


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _backward(result: Any, inputs: Sequence[Any], layout: int) -> None:
    """Computes the gradients of the inputs, with tangents of that layout."""
    results = [t for t in tree_leaves(result) if _is_strided(t) and t.requires_grad]
    tangents = [_laid_out(torch.ones_like(t), layout) for t in results]
    leaves = [a for a in inputs if _is_strided(a) and a.requires_grad]
    if results:
        torch.autograd.grad(results, leaves, tangents, allow_unused=True)


class _Compared(TorchDispatchMode):
    """Runs each operator on fake tensors, too; `different` has the operators whose results differ."""

    def __init__(self) -> None:
        super().__init__()
        self.different: dict[str, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        mode = FakeMode(allow_non_fake_inputs=True)

        def fake(value: Any) -> Any:
            return mode.from_tensor(value.detach(), static_shapes=True) if torch.is_tensor(value) else value

        result = func(*args, **(kwargs or {}))
        if any(r.alias_info for r in func._schema.returns):
            return result
        try:
            with mode:
                found = func(*tree_map(fake, args), **tree_map(fake, kwargs or {}))
        except Exception:  # it has no fake results
            return result
        if _facts(found) != _facts(result):
            self.different.setdefault(str(func), f"{_facts(args)} gives {_facts(result)}, not {_facts(found)}")
        return result


def _facts(result: Any) -> list[Any]:
    """Returns the type, shape, and strides that count, of each tensor."""
    return [
        (t.dtype, t.shape, [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1 and t.numel()])
        for t in tree_leaves(result)
        if _is_strided(t)
    ]
