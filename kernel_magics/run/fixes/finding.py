"""Finds the changes that the advice on a cell's problems stands for, as far as they can be made without the user."""

from __future__ import annotations

import linecache
import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler_core.records import Problem, Record
from compiler_core.records.capture import BreakReason
from compiler_core.records.differences import SourceEdit
from compiler_core.records.user_lines import ItemLines
from compiler_core.tools.questions.advice import DYNAMIC, LINES
from compiler_core.tools.questions.memory import Held, highest_peak, keeping_line
from compiler_core.tools.questions.problems import BLOCKS, HINT, MIN_REPEATS, STEP, break_id
from kernel_magics.cell.parse import Program
from kernel_magics.run.fixes.expressions import Modules
from kernel_magics.run.fixes.live_code import functions_at, lines_of
from kernel_magics.run.fixes.rewrites import disabled, rewritten
from kernel_magics.run.request import Request
from kernel_magics.run.snapshots import reachable

if TYPE_CHECKING:
    import torch

_LARGE = 10
"""What share of the peak, as a divisor, a result has that the program is tried without."""
_REWRITTEN = frozenset[BreakReason]({"data-dependent branch", "tensor value read", "NumPy", "print"})
"""The reasons of breaks whose hint is what `rewrites` does."""


@dataclass(frozen=True)
class Fix:
    """A change that may remove problems."""

    problems: list[int]
    """The numbers of the problems in the record; none if it is to reduce the memory at the peak."""
    change: str
    """What is changed, in few words."""
    edit: SourceEdit
    remedies: list[str] = field(default_factory=list)
    """The parts of the problems' advice that it stands for."""
    flipped: tuple[SourceEdit, SourceEdit] | None = None
    disables: str = ""
    """The name of the function that is left to Python."""
    options: dict[str, Any] = field(default_factory=dict)
    """The options of the compile that are the change, and not the code."""
    lines: list[str] = field(default_factory=list)
    """Lines that run before each unit of the cell."""
    block: type[torch.nn.Module] | None = None
    """The class of the modules that are compiled in place of the cell, or changed by `around`."""
    around: Callable[[Any], Any] | None = None
    """What is put around each compiled function, or around the forward of `block`."""

    @property
    def is_timed(self) -> bool:
        """Whether it is the time of compiling that it should reduce."""
        return BLOCKS in self.remedies

    @property
    def is_of_code(self) -> bool:
        """Whether the text of the program changes."""
        return not (self.options or self.lines or self.block or self.around)


class FixFinder:
    """Finds the changes for one cell, whose run has `record`."""

    def __init__(self, shell: Any, program: Program, request: Request, record: Record) -> None:
        self._shell, self._program, self._request, self._record = shell, program, request, record

    def find(self) -> Iterator[Fix]:
        """Yields the changes, those of options and inputs after those of the code."""
        if self._program.is_async:
            return
        modules = self._modules()
        numbered = list(enumerate(self._record.problems))
        for number, problem in numbered:
            if problem.kind == "graph break" and problem.grade != "expected" and self.is_cell(problem.filename):
                fix = self._rewritten(number, problem, modules) or self._disabled(number, problem, modules)
                if fix is not None:
                    fix.edit.in_cell = fix.edit.file == self._program.filename
                    yield fix
        yield from self._blocks([n for n, problem in numbered if BLOCKS in problem._parts])
        if not self._request.dynamic:
            with_sizes = [n for n, problem in numbered if DYNAMIC.intersection(problem.remedies)]
            yield from self._option(with_sizes, "dynamic", "dynamic sizes and numbers", sorted(DYNAMIC))
        if self._request.engine == "core":
            of_steps = [n for n, problem in numbered if problem.is_training and STEP in problem._parts]
            yield from self._option(of_steps, "capture_backward", "the whole step in one graph", [STEP])
        for number, problem in numbered:
            if problem.lines and self._lines_reach(problem):
                at = problem.lineno if problem.filename == self._program.filename else 1
                edit = SourceEdit("before each call", self._program.filename, at, [], problem.lines)
                remedies = [key for key in problem.remedies if key in LINES]
                change = f"`{'; '.join(problem.lines)}` before each call"
                yield Fix([number], change, edit, remedies, lines=problem.lines)
        yield from self._memory()

    def _modules(self) -> Modules:
        values = reversed(self._shell.user_ns.items())
        named = {value.__name__: name for name, value in values if isinstance(value, types.ModuleType)}
        guards = [guard.code for compile_ in self._record.compiles for guard in compile_.guards]
        with_gradients = any("requires_grad=True" in code for code in guards)
        torch, numpy, math = (named.get(each, "") for each in ("torch", "numpy", "math"))
        return Modules(torch, numpy, math, with_gradients)

    def _rewritten(self, number: int, problem: Problem, modules: Modules) -> Fix | None:
        made = rewritten(problem.filename, self.text(problem.filename), problem.lineno, modules)
        if made is None or not self._can_edit(made.edit):
            return None
        reasons = {b.reason for c in self._record.compiles for b in c.breaks if break_id(c, b) in problem.breaks}
        remedies = [HINT] if reasons <= _REWRITTEN else []
        return Fix([number], made.edit.title, made.edit, remedies, made.flipped)

    def _disabled(self, number: int, problem: Problem, modules: Modules) -> Fix | None:
        """Returns the change that leaves a function with several breaks to Python."""
        made = disabled(problem.filename, self.text(problem.filename), problem.lineno, modules)
        if made is None:
            return None
        name, edit = made
        function = self._shell.user_ns.get(name)
        if not isinstance(function, types.FunctionType) or function.__code__.co_filename != problem.filename:
            return None
        lines = lines_of(function.__code__)
        breaks = [p for p in self._record.problems if p.kind == "graph break" and p.filename == problem.filename]
        own = [each for each in breaks if each.lineno in lines]
        is_training = any(each.is_training for each in own)  # a step of training is what is to be compiled
        return Fix([number], edit.title, edit, disables=name) if len(own) > 1 and not is_training else None

    def _option(self, numbers: list[int], option: str, title: str, remedies: list[str]) -> Iterator[Fix]:
        """Yields the change that turns an option on, for all problems that it is advised for."""
        if numbers and self.can_compile_otherwise:
            edit = self._option_edit(title, option)
            yield Fix(numbers, f"`{option}=True`", edit, remedies, options={option: True})

    def _memory(self) -> Iterator[Fix]:
        """Yields the changes that may reduce the memory at the peak: saving less for the backward, if that is most of
        it, and keeping fewer results."""
        peak = highest_peak(self._record)
        if peak is None or not self.can_compile_otherwise:
            return
        if 2 * peak.saved_bytes >= peak.bytes:
            yield from self._saving_less()
        for held in [each for each in peak.held if each.kind == "result" and _LARGE * each.bytes >= peak.bytes]:
            if (edit := self._not_keeping(held)) is not None:
                yield Fix([], f"leaving out line {edit.first}, `{edit.removed[0].strip()}`", edit)

    def _saving_less(self) -> Iterator[Fix]:
        import torch

        is_core = self._request.engine == "core"
        change = (
            "`compiler_core.compile(..., memory_budget=0.5)`"
            if is_core
            else "`torch._functorch.config.activation_memory_budget = 0.5`"
        )
        edit = self._option_edit("half of the saved bytes", "memory_budget", "0.5")
        yield Fix([], change, edit, options={"memory_budget": 0.5})
        yield Fix([], "`torch.no_grad()` around the compiled calls", edit, around=torch.no_grad())
        block = repeated_class({id(each): each for root in self._models() for each in root.modules()}.values(), 2)
        if block is not None:
            change = f"`torch.utils.checkpoint.checkpoint` around the forward of each {block.__name__}"
            yield Fix([], change, edit, block=block, around=checkpointed)

    def _not_keeping(self, held: Held) -> SourceEdit | None:
        """Returns the change that leaves out the line of the program in which a result is kept."""
        file, made = ItemLines(self._record).line_of(held.node)
        number = keeping_line(self.text(file), made, held.owner) if file == self._program.filename else 0
        if not number:
            return None
        line = self.text(file)[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        return SourceEdit("the result is not kept", file, number, [line], [f"{indent}pass"])

    def _option_edit(self, title: str, option: str, value: str = "") -> SourceEdit:
        """Returns the change that turns an option on, or gives it a value."""
        magic = self._program.source.partition("\n")[0].removeprefix("# ")
        is_magic = magic.startswith("%%compile")
        flag = f"{magic} --{option.replace('_', '-')} {value}".rstrip()
        added = flag if is_magic else f"{option}={value or True}"
        return SourceEdit(title, self._program.filename, 1, [magic] if is_magic else [], [added])

    @property
    def can_compile_otherwise(self) -> bool:
        """Whether a trial decides what is compiled, and how."""
        return not self._request.as_written

    def _lines_reach(self, problem: Problem) -> bool:
        """Whether the objects that differ are globals, so that lines before a unit of the cell can change them."""
        causes = [c.cause for c in self._record.compiles if c.id in problem.compiles and c.cause is not None]
        return all(each.source.startswith("G[") for cause in causes for each in [cause, *cause.besides])

    def _blocks(self, numbers: list[int]) -> Iterator[Fix]:
        """Yields the change that compiles a class of modules, of which there are many, in place of the whole."""
        if not numbers or not self.can_compile_otherwise:
            return
        block = repeated_class({id(each): each for root in self._models() for each in root.modules()}.values())
        if block is None:
            return
        name = block.__name__
        api = "torch" if self._request.engine == "torch" else "compiler_core"
        line = f"{name}.forward = {api}.compile({name}.forward)"
        edit = SourceEdit("in place of compiling the cell", self._program.filename, 1, [], [line])
        yield Fix(numbers, f"compile each {name}", edit, [BLOCKS], block=block)

    def _models(self) -> Iterator[torch.nn.Module]:
        """Yields the modules that the cell uses."""
        import torch

        names, _ = reachable(self._shell.user_ns, [self._program.skeleton, *self._program.units])
        for name in sorted(names):
            if isinstance(value := self._shell.user_ns.get(name), torch.nn.Module):
                yield value

    # ---- the code

    def is_cell(self, filename: str) -> bool:
        """Whether a file is a cell of this session."""
        return self.cell_number(filename) is not None

    def cell_number(self, filename: str) -> int | None:
        """Returns the number of the cell that a file is; None for any other file."""
        named = self._shell.compile.format_code_name(filename)
        found = re.fullmatch(r"In\[(\d+)\]", named[1]) if named else None
        return int(found[1]) if found else None

    def text(self, filename: str) -> list[str]:
        """Returns the lines of a cell or file."""
        if filename == self._program.filename:
            return self._program.source.split("\n")
        return [line.rstrip("\n") for line in linecache.getlines(filename)]

    def functions(self, edit: SourceEdit) -> list[types.FunctionType]:
        """Returns the functions of another cell that an edit changes."""
        codes = [self._program.skeleton, *self._program.units]
        return functions_at(self._shell.user_ns, codes, edit.file, edit.first)

    def _can_edit(self, edit: SourceEdit) -> bool:
        return edit.file == self._program.filename or bool(self.functions(edit))


def checkpointed(forward: Any) -> Any:
    """Returns the forward of a module with gradient checkpointing; both compilers trace it as the program's code."""
    from torch.utils.checkpoint import checkpoint

    scope = {"checkpoint": checkpoint, "inner": forward}
    text = "def forward(*args, **kwargs):\n    return checkpoint(inner, *args, use_reentrant=False, **kwargs)"
    exec(compile(text, "<checkpointed forward>", "exec"), scope)
    return scope["forward"]


def repeated_class(modules: Iterable[torch.nn.Module], at_least: int = MIN_REPEATS) -> type[torch.nn.Module] | None:
    """Returns the class of the modules that are repeated and, with what is in them, make up most; None without one."""
    import torch

    sizes: dict[type[torch.nn.Module], list[int]] = {}
    for module in modules:
        sizes.setdefault(type(module), []).append(sum(1 for _ in module.modules()))
    repeated = [each for each, own in sizes.items() if len(own) >= at_least]
    can_run = [each for each in repeated if each.forward is not torch.nn.Module.forward]
    # the smallest of them counts: a container, such as Sequential, may also be around the others
    return max(can_run, key=lambda each: len(sizes[each]) * min(sizes[each]), default=None)
