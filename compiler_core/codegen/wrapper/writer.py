"""Prints the Python function that runs a program: it allocates buffers, launches kernels and calls PyTorch's kernels.

The printed source is shown in the record and is also what runs.  A kernel is any callable that takes a tensor for each
buffer of its loops, then numbers (`Launcher`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.codegen.source import KernelSource
from compiler_core.codegen.wrapper.executable import NAMES, Executable, InlineBody
from compiler_core.codegen.wrapper.memory_plan import MemoryPlan, names_by_last_use, views
from compiler_core.codegen.wrapper.values import NameScope, ValuePrinter, tuple_text
from compiler_core.instruments import tool
from compiler_core.loops import ir
from compiler_core.support.recorded_calls import is_recorded
from compiler_core.support.size_expr import are_contiguous
from compiler_core.torch_private import OpOverload

MAX_INLINE_STATEMENTS = 16
"""A function with at most this many statements is inlined into its caller, to save the time of a Python call."""

_aten = torch.ops.aten
FUNCTIONS = {
    _aten.convolution.default: "convolution",
    _aten.mm.default: "mm",
    _aten.mm.dtype: "mm",
    _aten.bmm.default: "bmm",
    _aten.bmm.dtype: "bmm",
    _aten.addmm.default: "addmm",
    _aten.baddbmm.default: "baddbmm",
}
"""Operators that are called as functions of `torch`, which read their arguments in half the time."""


@dataclass(frozen=True)
class Wrapper:
    """The source of one program's function."""

    text: str
    lines: dict[int, ir.Step | ir.Run]
    """The step that each line (from 1) was printed from; lines of no step are missing."""
    constants: dict[str, Any]
    """Globals of the source that it cannot contain: tensors of the graph, and objects that are not operators."""
    executable: Executable
    """Everything that the function is made from, except `constants`."""


def print_wrapper(program: ir.Program, codes: Sequence[KernelSource], plan: MemoryPlan) -> Wrapper:
    """Returns the wrapper of `program`, whose kernels are `codes`, with the memory plan `plan`."""
    return _WrapperPrinter(program, plan).wrapper(codes)


class _WrapperPrinter:
    """Prints one program's function."""

    def __init__(self, program: ir.Program, plan: MemoryPlan) -> None:
        self._program, self._plan = program, plan
        self._names = NameScope(program)
        self._values = ValuePrinter(program, self._names)
        self._read_by_strides = _buffers_read_by_strides(program, plan)
        self._draws = [s for s in program.steps if isinstance(s, ir.Call) and s.draws]
        self._body: list[str] = []
        self._steps: dict[int, ir.Step | ir.Run] = {}

    def wrapper(self, codes: Sequence[KernelSource]) -> Wrapper:
        """Prints the function and returns it."""
        self._print_body()
        above = [*self._header(), *self._device_switch(), *self._unpacked_inputs(), *self._symbol_definitions()]
        example_inputs = tool("example_inputs")
        examples = example_inputs(self._program, self._names, self._values) if example_inputs else []
        text = "\n".join([*above, *self._body, *examples]) + "\n"
        lines = {at + len(above): step for at, step in self._steps.items()}
        constants = {n: v for n, v in self._names.globals.items() if not isinstance(v, OpOverload)}
        return Wrapper(text, lines, constants, self._executable(text, codes))

    def _executable(self, text: str, codes: Sequence[KernelSource]) -> Executable:
        may_fail = any(s.may_fail for s in self._program.in_language("cpp").steps if isinstance(s, ir.Loops))
        inline_body = self._inline_body()
        return Executable(
            program=self._program.name,
            function=self._function_name(),
            text=text,
            names={self._names.unique(name): name for name in NAMES},
            kernels={code.language: code.text for code in codes},
            may_raise=bool(self._draws) or may_fail,
            only_kernels=not self._values.uses_dispatcher,
            inline_body=inline_body,
            in_place=list(self._program.in_place),
            updates=self._program.updates,
            optional=self._program.optional,
        )

    def _inline_body(self) -> InlineBody | None:
        """Returns the function's statements if there are few, and they only allocate and launch."""
        *statements, _ = (line.removeprefix("    ") for line in self._body)
        if self._values.uses_dispatcher or self._names.globals or self._symbol_definitions():
            return None
        if len(statements) > MAX_INLINE_STATEMENTS:
            return None
        results = list(map(self._values.result, self._program.results))
        return InlineBody(list(self._program.inputs), statements, results)

    # -- the lines before the body ------------------------------------------------------------

    def _function_name(self) -> str:
        return self._names.unique(f"run_{self._program.name}")

    def _header(self) -> list[str]:
        operators = {n: v for n, v in self._names.globals.items() if isinstance(v, OpOverload)}
        above = [f"{name} = {self._operator(o)}" for name, o in operators.items()]
        if self._plan.retained:
            above.append(f"{self._names.retained} = []")
        if above:
            above += ["", ""]
        if self._plan.runs:
            above.append(f"# what runs; {self._program.name}.wrapper does the same kernel by kernel, for tools")
        return [*above, f"def {self._function_name()}(inputs):"]

    def _operator(self, operator: OpOverload) -> str:
        text = f"{self._names.unique('torch')}.{FUNCTIONS.get(operator, f'ops.{operator}')}"
        return f"{self._names.unique('recorded')}({text})" if is_recorded(operator) else text

    def _device_switch(self) -> list[str]:
        """Makes the program's GPU the current device, where memory is allocated and kernels are launched."""
        device = self._values.device
        if device is None:
            return []
        return [
            f"    if {self._names.unique('current_device')}() != {device.index}:",
            f"        with {self._names.unique('on_device')}({device.index}):",
            f"            return {self._function_name()}(inputs)",
        ]

    def _unpacked_inputs(self) -> list[str]:
        names = self._program.inputs
        lines = [f"    {', '.join(names)}{',' if len(names) == 1 else ''} = inputs"] if names else []
        return [*lines, "    inputs.clear()"] if self._program.saved else lines

    def _symbol_definitions(self) -> list[str]:
        """Computes the symbols that the source uses from the inputs."""
        return [f"    {line}" for line in self._program.definitions(self._values.symbols)]

    # -- the body -----------------------------------------------------------------------------

    def _line(self, text: str, step: ir.Step | ir.Run | None = None) -> None:
        self._body.append("    " + text)
        if step is not None:
            self._steps[len(self._body)] = step

    def _print_body(self) -> None:
        program, plan = self._program, self._plan
        self._names.globals.update(program.constants)
        for name in program.saved:
            # saved by a call, or returned by a hook on saved tensors: its strides may differ
            if name in self._read_by_strides:
                self._restride(program.buffers[name])
        if self._draws:
            conditions = " or ".join(self._conditions_against_drawing())
            self._line(f"if {conditions}: raise {self._names.unique('CannotDraw')}")
        self._take_retained()
        on_stack = {name for name, buffer in program.buffers.items() if buffer.kind == "stack"}
        reused = set(plan.reuses.values()).difference(plan.overwritten)
        remaining, last_uses = {*reused, *plan.retained, *on_stack}, names_by_last_use(plan.last_uses)
        for at, step in enumerate(plan.steps):
            if isinstance(step, ir.Launch):
                self._launch(step)
            else:
                self._call(step)
            dead = sorted(set(last_uses.get(at, ())) - remaining)
            if dead and at < len(plan.steps) - 1:
                self._line(f"del {', '.join(dead)}")
        if plan.retained:
            self._line(f"{self._names.retained}.append({tuple_text(plan.retained)})")
        self._line(f"return [{', '.join(map(self._values.result, program.results))}]")

    def _take_retained(self) -> None:
        """Takes the buffers that an earlier run left, so that no two runs use them at once, or allocates new ones."""
        names = self._plan.retained
        if not names:
            return
        self._line(f"if {self._names.retained}: {tuple_text(names)} = {self._names.retained}.pop()")
        self._line("else:")
        for name in names:
            self._line(f"    {name} = {self._values.empty(self._program.buffers[name])}")

    def _launch(self, loops: ir.Launch) -> None:
        for name in loops.makes:
            if name not in self._plan.retained and self._program.buffers[name].kind == "loops":
                self._allocate(name, loops)
        numbers = loops.symbols + loops.scalars
        self._values.symbols.update(numbers)
        call = f"{loops.name}({', '.join([*loops.arguments, *numbers])})"
        if loops.may_fail and (isinstance(loops, ir.Run) or self._program.language(loops) == "cpp"):
            call = f"if {call}: raise {self._names.unique('IndexOutOfRange')}"
        self._line(call, loops)

    def _allocate(self, name: str, loops: ir.Launch) -> None:
        buffer = self._program.buffers[name]
        reused = self._plan.reuses.get(name)
        if reused is None:
            self._line(f"{name} = {self._values.empty(buffer)}", loops)
            return
        old = self._program.buffers[reused]
        if reused in self._plan.overwritten:
            self._line(f"{name} = {reused}", loops)
        elif (old.size, old.stride) == (buffer.size, buffer.stride):
            self._line(f"{name} = {reused}; del {reused}", loops)
        else:
            self._line(f"{name} = {self._values.window(reused, buffer.size, buffer.stride, 0)}; del {reused}", loops)

    def _conditions_against_drawing(self) -> list[str]:
        """Returns the conditions under which eager mode would draw other random numbers than the kernels.

        While a CUDA graph is recorded the generator's state is not known, and the thread that draws for an element
        depends on the alignment of eager mode's tensor.
        """
        inputs = dict.fromkeys(view.buffer for call in self._draws for view in views(call.args))
        return [f"{self._names.unique('is_recording')}()", *(f"{name}.data_ptr() % 16" for name in inputs)]

    def _call(self, call: ir.Call) -> None:
        if call.draws:
            _, numel, device = call.args
            self._line(f"{', '.join(call.draws)} = {self._names.unique('draw')}({numel}, {device})", call)
            return
        args = list(map(self._values.argument, call.args))
        args += [f"{name}={self._values.argument(value)}" for name, value in call.kwargs.items()]
        if call.target is ir.draw_bernoulli:
            empty = self._values.empty(self._program.buffers[call.name])
            self._line(f"{call.name} = {self._names.unique('draw_bernoulli')}({empty}, {args[0]})", call)
            return
        if getattr(call.target, "__name__", "") == "getitem":
            text = f"{args[0]}[{args[1]}]"
        else:
            text = f"{self._values.target(call.target)}({', '.join(args)})"
        self._line(f"{call.name} = {text}", call)
        if call.name in self._program.buffers and call.name in self._read_by_strides:
            self._cast(call)
            self._restride(self._program.buffers[call.name], call)

    def _cast(self, call: ir.Call) -> None:
        """Casts the result of a call of mixed dtypes if its dtype is not that of its fake tensor, as kernels expect."""
        dtypes = {self._program.buffers[name].dtype for name in call.reads if name in self._program.buffers}
        if sum(dtype.is_floating_point for dtype in dtypes) > 1:
            dtype = self._values.dtype(self._program.buffers[call.name].dtype)
            cast = f"{self._names.unique('cast')}({call.name}, {dtype})"
            self._line(f"if {call.name}.dtype is not {dtype}: {call.name} = {cast}", call)

    def _restride(self, buffer: ir.Buffer, step: ir.Step | None = None) -> None:
        """Copies a tensor that PyTorch allocated if its strides are not those of its fake tensor, as kernels expect."""
        name = buffer.name
        if buffer.numel not in (0, 1):
            size, stride = self._values.number(buffer.size), self._values.number(buffer.stride)
            is_contiguous = are_contiguous(buffer.size, buffer.stride)
            differs = f"not {name}.is_contiguous()" if is_contiguous else f"{name}.stride() != {stride}"
            self._line(f"if {differs}: {name} = {self._names.unique('restrided')}({name}, {size}, {stride})", step)


def _buffers_read_by_strides(program: ir.Program, plan: MemoryPlan) -> set[str]:
    """Returns the buffers that a kernel or a view accesses by their strides."""
    found: set[str] = set()
    windows = list(views(program.results))
    for step in plan.steps:
        if isinstance(step, ir.Launch):
            found.update(step.reads)
        else:
            windows += views((step.args, step.kwargs))
    return found | {v.buffer for v in windows if v.buffer in program.buffers and not v.whole(program.buffers[v.buffer])}
