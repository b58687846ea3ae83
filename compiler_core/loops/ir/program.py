"""A whole graph as a program: its steps (loops, or calls of PyTorch's operators) and its buffers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Literal as OneOf

import torch

from compiler_core.errors import CompilerBug
from compiler_core.loops.ir.loops import Loops
from compiler_core.loops.ir.statements import Load
from compiler_core.records import ItemId
from compiler_core.support.fx_symbols import SymbolDefinition
from compiler_core.support.opaque_ops import FakeTape
from compiler_core.support.size_expr import Int, hint, prod


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory that a step reads or writes; its strides are those of eager's tensor."""

    name: str
    dtype: torch.dtype
    size: tuple[Int, ...]
    stride: tuple[Int, ...]
    device: torch.device
    kind: OneOf["input", "constant", "loops", "call", "stack"]
    """An input of the graph; an attribute of the graph; allocated for loops; returned by a `Call`; on the stack of a
    `Run`."""
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    @property
    def numel(self) -> Int:
        return prod(self.size)

    @property
    def bytes(self) -> int:
        """The number of bytes; if the size is symbolic, that of the tensor with which the graph was captured."""
        return 0 if self.device.type == "meta" else hint(self.numel) * self.dtype.itemsize


@dataclass(frozen=True)
class TensorView:
    """A tensor as a strided view of a buffer, from element `offset` of the buffer on."""

    buffer: str
    size: tuple[Int, ...]
    stride: tuple[Int, ...]
    offset: Int = 0

    def whole(self, buffer: Buffer) -> bool:
        """Whether this view is the buffer's whole tensor."""
        return (self.size, self.stride, self.offset) == (buffer.size, buffer.stride, 0)


@dataclass(frozen=True)
class Result:
    """The result of the call `name`, if that is not a tensor (several tensors, or a number)."""

    name: str


@dataclass(frozen=True)
class Call:
    """``name = target(*args, **kwargs)``, run by PyTorch; tensors among the arguments are `TensorView`.

    A tensor that it returns is the buffer `name`.  `ordered` calls (random draws, collectives) keep their order among
    themselves.  No step is moved across a `barrier` (a call that changes an argument, or a collective).  A call with
    `draws` does not run `target`: it reads the state of the generator into numbers of these names and advances it, and
    kernels draw the numbers that `target` would draw.
    """

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reads: tuple[str, ...]
    """The names of the buffers and results that it reads."""
    ordered: bool = False
    barrier: bool = False
    origin: tuple[ItemId, ...] = ()
    reason: str = ""
    """Why its lowering rule was not applied; empty if there is no rule."""
    draws: tuple[str, ...] = ()
    unused_bytes: int = 0
    """The bytes of those returned tensors that no node reads, of a call that returns several."""

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
    """The target of a call that draws dropout's mask on a CPU; the wrapper calls `mersenne.bernoulli` instead."""
    raise NotImplementedError


@dataclass(frozen=True)
class Run:
    """Consecutive C++ kernels that one C function calls; `first` is the number of the first one's step.

    `places` has the buffers that no other step uses: each lies in the workspace, or in a result of the run that is not
    written yet, from this byte on.
    """

    name: str
    kernels: tuple[Loops, ...]
    first: int
    places: Mapping[str, tuple[str, int]]
    workspace: Buffer | None

    @property
    def reads(self) -> tuple[str, ...]:
        return self._outside(name for each in self.kernels for name in each.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        return self._outside(name for each in self.kernels for name in each.writes)

    @property
    def makes(self) -> tuple[str, ...]:
        workspace = (self.workspace.name,) if self.workspace else ()
        return self._outside(name for each in self.kernels for name in each.makes) + workspace

    @property
    def needs(self) -> tuple[str, ...]:
        return self._outside(name for each in self.kernels for name in each.needs)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The buffers that are arguments of the function, in order."""
        in_memory = self.workspace is not None and self.workspace.kind == "loops"
        buffers = (name for each in self.kernels for name in each.arguments)
        return self._outside(buffers) + ((self.workspace.name,) if self.workspace and in_memory else ())

    @property
    def symbols(self) -> tuple[str, ...]:
        return ()

    @property
    def scalars(self) -> tuple[str, ...]:
        """The numbers that are arguments of the function, after its buffers."""
        return tuple(dict.fromkeys(name for each in self.kernels for name in each.scalars))

    @property
    def may_fail(self) -> bool:
        return any(each.may_fail for each in self.kernels)

    def _outside(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in dict.fromkeys(names) if name not in self.places)


Step = Loops | Call
Launch = Loops | Run
"""What a wrapper calls with buffers: one kernel, or several."""
Language = OneOf["cpp", "triton"]
Languages = Mapping[str, Language]
"""The language of the kernels for each device type that has kernels; on all others PyTorch's operators run."""
LANGUAGES: Languages = {"cpu": "cpp", "cuda": "triton"}


@dataclass(frozen=True)
class Program:
    """A whole graph: `inputs` are the names of its inputs in order, `results` what it returns."""

    name: str
    buffers: dict[str, Buffer]
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[TensorView | Result | int | float | bool | None, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    """The attributes of the graph, by buffer name."""
    symbols: Mapping[str, SymbolDefinition] = field(default_factory=dict)
    """How each symbol is computed from the inputs, in an order in which each depends only on those before it."""
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    """The values, at capture, of the inputs that are numbers."""
    tapes: Mapping[str, FakeTape] = field(default_factory=dict)
    """The inputs that hold an autograd graph, for the backward of operators that are not decomposed."""
    languages: Languages = field(default_factory=lambda: LANGUAGES)
    new_values: Mapping[str, str] = field(default_factory=dict)
    """For the buffer of each result that is the new value of an input, the name of that input."""
    is_alone: bool = False
    """Whether it is a forward without a backward, so that nothing needs its inputs as they were."""

    def device(self, loops: Loops) -> torch.device:
        """Returns the device of a kernel, which is that of all its buffers (`check_devices`)."""
        return self.buffers[loops.writes[0]].device

    def language(self, loops: Loops) -> Language:
        """Returns the language of a kernel, which its device determines."""
        return self.languages[self.device(loops).type]

    def in_language(self, language: Language) -> Program:
        """Returns the program with only the kernels in `language` as steps."""
        loops = (s for s in self.steps if isinstance(s, Loops))
        return self.with_steps([s for s in loops if self.language(s) == language])

    @property
    def used_languages(self) -> tuple[Language, ...]:
        """The languages of its kernels, in alphabetical order."""
        return tuple(sorted({self.language(s) for s in self.steps if isinstance(s, Loops)}))

    def definitions(self, needed: Set[str]) -> list[str]:
        """Returns assignments, as Python, that compute these symbols from the inputs."""
        lines: list[str] = []
        for name, definition in reversed(list(self.symbols.items())):
            if name in needed:
                needed = needed | definition.needs
                if name != definition.text:
                    lines.append(f"{name} = {definition.text}")
        return lines[::-1]

    @property
    def saved(self) -> tuple[str, ...]:
        """The saved tensors among the inputs of a backward: all but the incoming gradients."""
        inputs = self.inputs if self.name == "backward" else ()
        return tuple(name for name in inputs if name in self.buffers and not name.startswith("tangents"))

    @property
    def in_place(self) -> tuple[str, ...]:
        """The inputs that loops write to."""
        written = {name for step in self.steps if isinstance(step, Loops) for name in step.writes}
        return tuple(name for name in self.inputs if name in written)

    @property
    def updates(self) -> bool:
        """Whether loops compute new values of inputs from the old ones, in place."""
        found = (set(s.reads) & set(s.writes) for s in self.steps if isinstance(s, Loops))
        return any(not names.isdisjoint(self.inputs) for names in found)

    @property
    def optional(self) -> dict[str, str]:
        """The inputs that may be absent, and for each the input that says whether it is there."""
        bodies = (step.body for step in self.steps if isinstance(step, Loops))
        return {s.buffer: s.given for body in bodies for s in body if isinstance(s, Load) and s.given}

    def text(self) -> str:
        return "\n".join(s.text() for s in self.steps if isinstance(s, Loops))

    def with_steps(self, steps: Sequence[Step]) -> Program:
        return replace(self, steps=tuple(steps))

    def numbered(self) -> Program:
        """Returns the program with its loops named ``<program>_0, <program>_1, ...`` in order: the kernels' names."""
        taken = {*self.buffers, *(s.name for s in self.steps if isinstance(s, Call))}
        numbered = (f"{self.name}_{n}" for n in itertools.count())
        names = (name for name in numbered if name not in taken)
        return self.with_steps([replace(s, name=next(names)) if isinstance(s, Loops) else s for s in self.steps])


def check_devices(program: Program) -> None:
    """Checks that the buffers of each kernel are on one device, for which there is a language.

    Raises:
        CompilerBug: they are not; the message lists the buffers with their devices.
    """
    for loops in (step for step in program.steps if isinstance(step, Loops)):
        where = {name: program.buffers[name].device for name in loops.arguments}
        devices = set(where.values())
        if len(devices) == 1 and devices.pop().type in program.languages:
            continue
        placed = ", ".join(f"{name} on {device}" for name, device in where.items())
        known = " and ".join(program.languages) or "no device"
        problem = f"the buffers of a kernel must be on one device, and this program has kernels for {known}: {placed}"
        raise CompilerBug(f"loop IR: {problem}\n{loops.text()}")
