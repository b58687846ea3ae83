"""The Python function that runs a program: it allocates, launches our kernels and calls
PyTorch's for the rest.  Its text is what a reader sees and what really runs.

A kernel is any callable that takes a tensor for each buffer of its loops, then numbers (`Launcher`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from compiler_core.codegen.source import Code
from compiler_core.codegen.wrapper import huge_pages
from compiler_core.codegen.wrapper.example_inputs import WHOLE, below_of
from compiler_core.codegen.wrapper.executable import NAMES, Recipe, Short
from compiler_core.codegen.wrapper.memory_plan import MemoryPlan, dead_after, views
from compiler_core.loops import ir
from compiler_core.support import opaque_ops
from compiler_core.support.fx_graphs import constant_text
from compiler_core.support.fx_symbols import hint as symbols_hint
from compiler_core.support.size_expr import Int, Real, Size, are_contiguous, hint, symbols_in

FEW = 16
"""Lines that a caller writes out: beside so few, a call of Python's shows."""


class Wrapper:
    """The text of one program's function; `lines` tells the step that each line belongs to."""

    def __init__(self, program: ir.Program, codes: Sequence[Code], plan: MemoryPlan) -> None:
        self._program, self._codes, self._plan = program, codes, plan
        self._taken = {*program.buffers, *(s.name for s in program.steps if isinstance(s, ir.Call))}
        self._kept = self._own(f"{program.name}_kept")
        """The list of the tensors that earlier runs have left for later ones."""
        self._names: dict[str, Any] = {}
        self._text: list[str] = []
        self._needed: set[str] = set()
        self._addressed = _addressed(program)
        self._device = _one_gpu(program)
        self._dispatches = any(isinstance(s, ir.Call) or program.language(s) == "triton" for s in program.steps)
        self.lines: dict[int, ir.Step] = {}
        self._render()
        above = [*self._header(), *self._on_its_device(), *self._unpacked(), *self._symbols()]
        self.text = "\n".join([*above, *self._text, *self._examples()]) + "\n"
        self.lines = {at + len(above): step for at, step in self.lines.items()}

    def recipe(self) -> Recipe:
        """All that the function is made from but `constants`."""
        may_fail = any(s.may_fail for s in self._program.in_language("cpp").steps if isinstance(s, ir.Loops))
        return Recipe(
            program=self._program.name,
            function=self._function(),
            text=self.text,
            names={self._own(name): name for name in NAMES},
            kernels={code.language: code.text for code in self._codes},
            may_raise=bool(self._draws()) or may_fail,
            only_kernels=not self._dispatches,
            short=self._short(),
            in_place=list(self._program.in_place),
        )

    def _short(self) -> Short | None:
        """The function, if there is not much in it, and nothing but what the loops need."""
        *statements, _ = (line.removeprefix("    ") for line in self._text)
        more = self._dispatches or self._names or self._symbols()
        results = list(map(self._output, self._program.results))
        return None if more or len(statements) > FEW else Short(list(self._program.inputs), statements, results)

    @property
    def constants(self) -> dict[str, Any]:
        """What the text names and no text can hold: tensors of the graph, and objects that are no operators."""
        return {n: v for n, v in self._names.items() if not isinstance(v, torch._ops.OpOverload)}

    # -- the text ---------------------------------------------------------------------------

    def _symbols(self) -> list[str]:
        """The symbols that the text names, computed from the inputs."""
        lines: list[str] = []
        needed = self._needed
        for name, definition in reversed(list(self._program.symbols.items())):
            if name in needed:
                needed = needed | definition.needs
                lines += [f"    {name} = {definition.text}"] * (name != definition.text)
        return lines[::-1]

    def _number(self, value: Int | Real | tuple[Int, ...]) -> str:
        """A number, or a tuple of them, whose symbols the text then computes."""
        self._needed.update(symbols_in(value))
        return repr(value)

    def _header(self) -> list[str]:
        named = {n: v for n, v in self._names.items() if isinstance(v, torch._ops.OpOverload)}
        operators = [f"{n} = {self._own('torch')}.ops.{v}" for n, v in named.items()]
        above = [*operators, *([f"{self._kept} = []"] if self._plan.kept else [])]
        return [*above, *(["", ""] if above else []), f"def {self._function()}(inputs):"]

    def _examples(self) -> list[str]:
        """A function that makes inputs such as the program was captured with, and its constants, for who has no
        more than the text."""
        program, constants = self._program, sorted(self._program.constants.keys() & self._names.keys())
        lines = ["", "", f"def {self._own('random_inputs')}():"]
        lines += [f"    global {', '.join(constants)}"] * bool(constants)
        for name in constants:
            lines.append(f"    {name} = {constant_text(program.constants[name]) or self._example(name)}")
        lines.append("    return [")
        for name in program.inputs:
            given = self._given(name)
            lines.append(f"        {given},  # {name}")
        return [*lines, "    ]"]

    def _given(self, name: str) -> str:
        program = self._program
        if name in program.tapes:
            return self._tape(program.tapes[name])
        for call in (s for s in program.steps if isinstance(s, ir.Call) and opaque_ops.operator_of(s) is not None):
            given = opaque_ops.named(call.args[0], call.args[1])
            if getattr(given.get("batch_sizes"), "buffer", None) == name:
                return self._batch_sizes(given)
        return self._example(name) if name in program.buffers else repr(program.numbers[name])

    def _batch_sizes(self, given: Mapping[str, Any]) -> str:
        """Of a packed sequence, as its other arguments have it."""
        hidden = given["hx"][0] if isinstance(given["hx"], (list, tuple)) else given["hx"]
        numbers = _shape(given["data"])[0], _shape(given["batch_sizes"])[0], _shape(hidden)[1]
        return f"{self._own('torch')}.tensor({opaque_ops.example_batch_sizes(*numbers)})"

    def _tape(self, tape: opaque_ops.TapeOf) -> str:
        """A tape of the operator on random tensors."""

        def text(value: Any) -> str:
            if isinstance(value, (list, tuple)):
                return f"[{', '.join(map(text, value))}]"
            if not isinstance(value, torch.Tensor):
                return self._plain(value)
            size, stride = (tuple(map(symbols_hint, numbers)) for numbers in (value.shape, value.stride()))
            if not value.is_floating_point():
                return self._batch_sizes(tape.call.given)
            return f"random_tensor({size}, {stride}, {self._dtype(value.dtype)}, {str(value.device)!r})"

        call = tape.call
        operator, args = f"{self._own('torch')}.ops.{call.operator}", text(call.args)
        autocast = [tuple(each) for each in tape.autocast]
        return f"{self._own('with_tape')}({operator}, {args}, {list(tape.wanted)}, {autocast})[-1]"

    def _example(self, name: str) -> str:
        buffer = self._program.buffers[name]
        size, stride = (tuple(map(hint, numbers)) for numbers in (buffer.size, buffer.stride))
        below = f", {below_of(self._program, name)}" if buffer.dtype in WHOLE else ""
        return f"random_tensor({size}, {stride}, {self._dtype(buffer.dtype)}, {str(buffer.device)!r}{below})"

    def _on_its_device(self) -> list[str]:
        """Make the GPU the current one, if it is not: memory and launches are then the current device's."""
        if self._device is None:
            return []
        return [
            f"    if {self._own('current_device')}() != {self._device.index}:",
            f"        with {self._own('on_device')}({self._device.index}):",
            f"            return {self._function()}(inputs)",
        ]

    def _unpacked(self) -> list[str]:
        names = self._program.inputs
        lines = [f"    {', '.join(names)}{',' if len(names) == 1 else ''} = inputs"] if names else []
        return [*lines, "    inputs.clear()"] if self._program.saved else lines

    def _function(self) -> str:
        return self._own(f"run_{self._program.name}")

    def _render(self) -> None:
        program = self._program
        self._names.update(program.constants)
        for name in program.saved:
            # it may have any strides: a call's, or those that a hook on saved tensors gave it
            if name in self._addressed:
                self._expect(program.buffers[name])
        if draws := self._draws():
            self._line(f"if {' or '.join(self._forbids_drawing(draws))}: raise {self._own('NotDrawn')}")
        self._take_kept()
        stay, dies = {*self._plan.takes.values(), *self._plan.kept}, dead_after(self._plan.dies)
        for at, step in enumerate(program.steps):
            self._loops(step) if isinstance(step, ir.Loops) else self._call(step)
            if at < len(program.steps) - 1 and (dead := sorted(set(dies.get(at, ())) - stay)):
                self._line(f"del {', '.join(dead)}")
        if self._plan.kept:
            names = self._plan.kept
            self._line(f"{self._kept}.append({tuple_text(names)})")
        self._line(f"return [{', '.join(self._output(r) for r in program.results)}]")

    def _take_kept(self) -> None:
        """The buffers of an earlier run, so that none is used by two runs at once, or new ones."""
        if not self._plan.kept:
            return
        kept, names = self._kept, self._plan.kept
        self._line(f"if {kept}: {tuple_text(names)} = {kept}.pop()")
        self._line("else:")
        for name in names:
            self._line(f"    {name} = {self._empty(self._program.buffers[name])}")

    def _loops(self, loops: ir.Loops) -> None:
        for name in loops.makes:
            if name not in self._plan.kept:
                self._allocation(name, loops)
        numbers = loops.symbols + loops.scalars
        arguments = [*loops.arguments, *numbers]
        self._needed.update(numbers)
        call = f"{loops.name}({', '.join(arguments)})"
        if loops.may_fail and self._program.language(loops) == "cpp":
            call = f"if {call}: raise {self._own('BadIndex')}"
        self._line(call, loops)

    def _allocation(self, name: str, loops: ir.Loops) -> None:
        buffer = self._program.buffers[name]
        dead = self._plan.takes.get(name)
        if dead is None:
            self._line(f"{name} = {self._empty(buffer)}", loops)
            return
        place = self._program.buffers[dead]
        same = (place.size, place.stride) == (buffer.size, buffer.stride)
        self._dispatches |= not same
        window = f"{self._own('window')}({dead}, {self._number(buffer.size)}, {self._number(buffer.stride)}, 0)"
        self._line(f"{name} = {dead if same else window}; del {dead}", loops)

    def _draws(self) -> list[ir.Call]:
        return [s for s in self._program.steps if isinstance(s, ir.Call) and s.draws]

    def _forbids_drawing(self, draws: Sequence[ir.Call]) -> list[str]:
        """When other numbers would be drawn than by eager: the generator's are not known while a CUDA graph is
        recorded, and who draws for an element depends on the address of eager's tensor."""
        inputs = dict.fromkeys(view.buffer for call in draws for view in views(call.args))
        return [f"{self._own('is_recording')}()", *(f"{name}.data_ptr() % 16" for name in inputs)]

    def _call(self, call: ir.Call) -> None:
        if call.draws:
            _, numel, device = call.args
            self._line(f"{', '.join(call.draws)} = {self._own('draw')}({numel}, {device})", call)
            return
        args = [self._argument(a) for a in call.args] + [f"{k}={self._argument(v)}" for k, v in call.kwargs.items()]
        if call.target is ir.draw_bernoulli:
            place = self._empty(self._program.buffers[call.name])
            self._line(f"{call.name} = {self._own('draw_bernoulli')}({place}, {args[0]})", call)
            return
        if getattr(call.target, "__name__", "") == "getitem":
            text = f"{args[0]}[{args[1]}]"
        else:
            text = f"{self._target(call.target)}({', '.join(args)})"
        self._line(f"{call.name} = {text}", call)
        if call.name in self._program.buffers and call.name in self._addressed:
            self._expect(self._program.buffers[call.name], call)

    def _expect(self, buffer: ir.Buffer, step: ir.Step | None = None) -> None:
        """What we did not allocate need not lie as its fake tensor did."""
        name = buffer.name
        if buffer.numel not in (0, 1):
            size, stride = self._number(buffer.size), self._number(buffer.stride)
            known = are_contiguous(buffer.size, buffer.stride)
            differs = f"not {name}.is_contiguous()" if known else f"{name}.stride() != {stride}"
            self._line(f"if {differs}: {name} = {self._own('restrided')}({name}, {size}, {stride})", step)

    def _empty(self, buffer: ir.Buffer) -> str:
        size, stride = self._number(buffer.size), self._number(buffer.stride)
        if buffer.device.type == "cpu":
            function = "empty_large" if buffer.bytes >= huge_pages.LARGE else "empty"
            return f"{self._own(function)}({size}, {stride}, {self._dtype(buffer.dtype)})"
        if buffer.device == self._device:
            return f"{self._own('empty_cuda')}({size}, {stride}, {self._dtype(buffer.dtype)})"
        where = f"dtype={buffer.dtype}, device={str(buffer.device)!r}"
        return f"{self._own('torch')}.empty_strided({size}, {stride}, {where})"

    def _dtype(self, dtype: torch.dtype) -> str:
        if dtype in ir.SHORT and dtype is not torch.bool:
            return self._own(ir.SHORT[dtype])
        return f"{self._own('torch')}.{str(dtype).removeprefix('torch.')}"

    def _output(self, result: Any) -> str:
        """A result that is a window on what others hold too is a true view, with its version counter."""
        if not isinstance(result, ir.View):
            return self._argument(result)
        buffer = self._program.buffers[result.buffer]
        alone = buffer.kind == "loops" and [v.buffer for v in views(self._program.results)].count(buffer.name) == 1
        if alone or result.whole(buffer):
            return self._argument(result)
        self._dispatches = True
        offset = f"{result.buffer}.storage_offset() + {self._number(result.offset)}"
        return f"{result.buffer}.as_strided({self._number(result.size)}, {self._number(result.stride)}, {offset})"

    def _argument(self, value: Any) -> str:
        if isinstance(value, ir.View):
            if value.whole(self._program.buffers[value.buffer]):
                return value.buffer
            self._dispatches = True
            numbers = ", ".join(map(self._number, (value.size, value.stride, value.offset)))
            return f"{self._own('window')}({value.buffer}, {numbers})"
        if isinstance(value, ir.Result):
            return value.name
        if isinstance(value, (list, tuple)):
            inner = map(self._argument, value)
            return f"[{', '.join(inner)}]" if isinstance(value, list) else tuple_text(inner)
        if isinstance(value, slice):
            return f"slice({', '.join(map(self._argument, (value.start, value.stop, value.step)))})"
        return self._plain(value)

    def _plain(self, value: Any) -> str:
        if isinstance(value, (Size, Real)):
            return self._number(value)
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if abs(value) < float("inf") else f"float('{value}')"
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value).replace("torch", self._own("torch"), 1)
        if isinstance(value, torch.device):
            return f"{self._own('torch')}.device({str(value)!r})"
        return self._named(value, "constant")

    def _target(self, target: Any) -> str:
        if (name := getattr(target, "__name__", "")) in opaque_ops.NAMES and opaque_ops.NAMES[name] is target:
            return self._own(name)
        if isinstance(target, torch._ops.OpOverload):
            name = str(target).replace("::", "_").replace(".", "_").removesuffix("_default")
        else:
            name = getattr(target, "__name__", type(target).__name__)
        return self._named(target, name)

    def _named(self, value: Any, name: str) -> str:
        """A global of the text that stands for `value`."""
        name = name if name.isidentifier() else "constant"
        while name in self._taken or name in NAMES or name == self._kept or self._names.get(name, value) is not value:
            name += "_"
        self._names[name] = value
        return name

    def _own(self, name: str) -> str:
        """A name of ours, apart from those of the graph's nodes."""
        while name in self._taken:
            name += "_"
        return name

    def _line(self, text: str, step: ir.Step | None = None) -> None:
        self._text.append("    " + text)
        if step is not None:
            self.lines[len(self._text)] = step


def _shape(tensor: ir.View | torch.Tensor) -> list[int]:
    """With what symbolic sizes were when the graph was captured."""
    return [hint(symbols_hint(n)) for n in (tensor.size if isinstance(tensor, ir.View) else tensor.shape)]


def _one_gpu(program: ir.Program) -> torch.device | None:
    """The CUDA device of all buffers that lie on one, if they agree."""
    found = {b.device for b in program.buffers.values() if b.device.type == "cuda"}
    return found.pop() if len(found) == 1 and None not in {d.index for d in found} else None


def _addressed(program: ir.Program) -> set[str]:
    """The buffers by whose strides a kernel or a window goes."""
    found: set[str] = set()
    windows = list(views(program.results))
    for step in program.steps:
        if isinstance(step, ir.Loops):
            found.update(step.reads)
        else:
            windows += views((step.args, step.kwargs))
    return found | {v.buffer for v in windows if v.buffer in program.buffers and not v.whole(program.buffers[v.buffer])}


def tuple_text(parts: Iterable[str]) -> str:
    """A tuple of what the parts name, as Python source."""
    items = list(parts)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
