"""A whole graph: its steps, which are loops or calls of PyTorch's, and the memory that they work on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Literal as OneOf

import torch

from compiler_core.loops.ir.loops import Loops
from compiler_core.records import ItemId
from compiler_core.support.fx_symbols import Definition
from compiler_core.support.opaque_ops import TapeOf
from compiler_core.support.size_expr import Int, hint, prod


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory, as it is given to or made by a step; strides are eager's."""

    name: str
    dtype: torch.dtype
    size: tuple[Int, ...]
    stride: tuple[Int, ...]
    device: torch.device
    kind: OneOf["input", "constant", "loops", "call"]
    """Given by the caller; an attribute of the graph; allocated by us; returned by a Call."""
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    @property
    def numel(self) -> Int:
        return prod(self.size)

    @property
    def bytes(self) -> int:
        """Where the size is symbolic, of the tensor that was there when the graph was captured."""
        return 0 if self.device.type == "meta" else hint(self.numel) * self.dtype.itemsize


@dataclass(frozen=True)
class View:
    """A tensor as a window on a buffer, `offset` elements from the buffer's first one."""

    buffer: str
    size: tuple[Int, ...]
    stride: tuple[Int, ...]
    offset: Int = 0

    def whole(self, buffer: Buffer) -> bool:
        """Whether this is the buffer's tensor itself."""
        return (self.size, self.stride, self.offset) == (buffer.size, buffer.stride, 0)


@dataclass(frozen=True)
class Result:
    """What the call `name` returned, where that is no tensor (several tensors, a number)."""

    name: str


@dataclass(frozen=True)
class Call:
    """``name = target(*args, **kwargs)`` by PyTorch; among the arguments, a tensor is a View.

    A tensor that it returns is the buffer `name`.  `ordered` calls (random draws) keep their
    order among themselves; a `barrier` (it changes an argument) keeps its place among all steps.
    A call that `draws` only says where the generator is, in numbers of these names, and moves it on:
    kernels draw what `target` would.
    """

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reads: tuple[str, ...]
    """Names of buffers and results."""
    ordered: bool = False
    barrier: bool = False
    origin: tuple[ItemId, ...] = ()
    reason: str = ""
    """Why a rule left it to PyTorch; nothing where no loops could do it."""
    draws: tuple[str, ...] = ()
    unnamed: int = 0
    """Bytes of the tensors that it returns beside others and nothing takes."""

    @property
    def writes(self) -> tuple[str, ...]:
        return self.draws or (self.name,)

    @property
    def makes(self) -> tuple[str, ...]:
        return self.writes

    @property
    def needs(self) -> tuple[str, ...]:
        return self.reads


def draw_bernoulli(p: float) -> torch.Tensor:
    """The target of a call that draws dropout's mask on a CPU; the wrapper calls `mersenne.bernoulli` in its place."""
    raise NotImplementedError


Step = Loops | Call
Language = OneOf["cpp", "triton"]
Languages = Mapping[str, Language]
"""The language of the kernels for each type of device that has kernels; on all others PyTorch's operators run."""
LANGUAGES: Languages = {"cpu": "cpp", "cuda": "triton"}


@dataclass(frozen=True)
class Program:
    """A whole graph: `inputs` are buffer names in order, `results` what it returns."""

    name: str
    buffers: dict[str, Buffer]
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[View | Result | int | float | bool | None, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    """Attributes of the graph, by buffer name."""
    symbols: Mapping[str, Definition] = field(default_factory=dict)
    """How each symbol is computed from the inputs; each after those that it needs."""
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    """What each input that is a number was when the graph was captured."""
    tapes: Mapping[str, TapeOf] = field(default_factory=dict)
    """The inputs that autograd goes on from, for operators that stay whole."""
    languages: Languages = field(default_factory=lambda: LANGUAGES)

    def device(self, loops: Loops) -> torch.device:
        """The device that a kernel runs on: all of its buffers lie there (`check`)."""
        return self.buffers[loops.writes[0]].device

    def language(self, loops: Loops) -> Language:
        """The language that a kernel is printed in, which its device decides."""
        return self.languages[self.device(loops).type]

    def in_language(self, language: Language) -> Program:
        """The program with its kernels in `language` as its only steps."""
        loops = (s for s in self.steps if isinstance(s, Loops))
        return self.with_steps([s for s in loops if self.language(s) == language])

    @property
    def used_languages(self) -> tuple[Language, ...]:
        """The languages of its kernels, in alphabetical order."""
        return tuple(sorted({self.language(s) for s in self.steps if isinstance(s, Loops)}))

    @property
    def saved(self) -> tuple[str, ...]:
        """What a forward left to this backward, and nobody else needs."""
        inputs = self.inputs if self.name == "backward" else ()
        return tuple(name for name in inputs if name in self.buffers and not name.startswith("tangents"))

    @property
    def in_place(self) -> tuple[str, ...]:
        """The inputs that loops write to."""
        written = {name for step in self.steps if isinstance(step, Loops) for name in step.writes}
        return tuple(name for name in self.inputs if name in written)

    def text(self) -> str:
        return "\n".join(s.text() for s in self.steps if isinstance(s, Loops))

    def with_steps(self, steps: Sequence[Step]) -> Program:
        return replace(self, steps=tuple(steps))

    def numbered(self) -> Program:
        """Its loops named ``<program>_0, <program>_1 ...`` in order, as kernels are called."""
        numbers = itertools.count()
        taken = {*self.buffers, *(s.name for s in self.steps if isinstance(s, Call))}
        names = (name for n in numbers if (name := f"{self.name}_{n}") not in taken)
        return self.with_steps([replace(s, name=next(names)) if isinstance(s, Loops) else s for s in self.steps])
