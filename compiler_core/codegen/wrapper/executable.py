"""What a program's function is made from, as plain data, and the function itself.

A `Recipe` is all that running needs: the texts of wrapper and kernels and what the kernels take.  It can be kept on
disk and loaded in another process; what no text can hold (the graph's own tensors) comes beside it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from compiler_core.codegen.cpp import module as cpp_module
from compiler_core.codegen.source import Launcher
from compiler_core.codegen.wrapper import huge_pages, mersenne
from compiler_core.loops import ir
from compiler_core.loops.ir import philox
from compiler_core.support import opaque_ops

Runner = Callable[[list[Any]], list[Any]]


class BadIndex(IndexError):
    """A kernel met an index that is out of range; what the graph does in PyTorch says which."""


class NotDrawn(Exception):
    """No kernel may draw the graph's random numbers now; PyTorch's own do."""


def restrided(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """A copy of `tensor` that lies in memory as the kernels expect it, made unseen by autograd."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor.expand(size))


def _window(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def _empty_cuda(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


_private = torch._C._dynamo.guards
NAMES: dict[str, Any] = {
    "torch": torch,
    "operator": operator,
    "math": math,
    "restrided": restrided,
    "BadIndex": BadIndex,
    "NotDrawn": NotDrawn,
    "draw": philox.draw,
    "draw_bernoulli": mersenne.bernoulli,
    **opaque_ops.NAMES,
    "is_recording": torch.cuda.is_current_stream_capturing,
    "empty": huge_pages.empty,
    "empty_large": huge_pages.empty_large,
    # these save a microsecond each where this PyTorch has them
    "window": getattr(_private, "_reinterpret_tensor", _window),
    "empty_cuda": getattr(_private, "_empty_strided_cuda", _empty_cuda),  # on the current device
    "on_device": torch.cuda.device,
    "current_device": getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device),
    **{short: dtype for dtype, short in ir.SHORT.items() if short != "bool"},
}
"""What the text of a wrapper may name besides the kernels, operators and constants of its program."""


@dataclass(frozen=True)
class Short:
    """A function that does no more than a few allocations and launches, so that its caller may do them itself."""

    inputs: list[str]
    statements: list[str]
    results: list[str]


@dataclass(frozen=True)
class Recipe:
    """One graph's function: `text` defines it as `function` and names members of `NAMES` as `names` says."""

    program: str
    function: str
    text: str
    names: dict[str, str]
    kernels: dict[ir.Language, str]
    """Their source in each language that there are kernels in."""
    may_raise: bool
    """Whether it may raise BadIndex or NotDrawn."""
    only_kernels: bool
    """Whether it calls nothing of PyTorch's that autograd would notice."""
    short: Short | None
    in_place: list[str] = field(default_factory=list)
    """The inputs that kernels write to."""


def load(recipe: Recipe, constants: Mapping[str, Any]) -> Runner:
    """The function; it takes the inputs as one list, which a backward empties, and returns the results as a list.

    Its attributes are what it is made from, `recipe` and `constants`.
    """
    scope = {own: NAMES[name] for own, name in recipe.names.items()} | dict(constants) | launchers(recipe.kernels)
    exec(compile(recipe.text, f"<cutaway {recipe.program}>", "exec"), scope)
    run: Any = scope[recipe.function]
    run.recipe, run.constants = recipe, constants
    return run  # type: ignore[no-any-return]


def launchers(kernels: Mapping[ir.Language, str]) -> dict[str, Launcher]:
    """The kernels in these texts, by name; BuildError where some cannot be built."""
    made: dict[str, Launcher] = {}
    if "cpp" in kernels:
        made |= cpp_module.launchers(kernels["cpp"])
    if "triton" in kernels:
        from compiler_core.codegen.triton import module as triton_module

        made |= triton_module.launchers(triton_module.load(kernels["triton"]))
    return made
