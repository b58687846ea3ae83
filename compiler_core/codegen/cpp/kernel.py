"""Prints the function around a C++ kernel's loops: its signature, threads and nested loops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from compiler_core.codegen.cpp.source_writer import Loop, SourceWriter
from compiler_core.codegen.cpp.statements import FAULT, StatementPrinter
from compiler_core.loops import ir
from compiler_core.loops.schedule.threads import thread_plan

SIMD = "#pragma omp simd"


class KernelPrinter(StatementPrinter, ABC):
    """Prints one kernel; subclasses print its loops."""

    def __init__(self, text: SourceWriter, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        super().__init__(text, loops, buffers)
        self._sweeps = ir.sweeps(loops)
        self._threads = thread_plan(loops)

    def emit(self) -> None:
        """Prints the kernel; if it decides about threads at the call, also a function with its loops."""
        body = self._body
        if self._threads.kernel_at_call:
            fault = f", i64& {FAULT}" if self._loops.may_fail else ""
            heading = f"static __attribute__((noinline)) void {self._loops.name}_part({self._parameters()}{fault})"
            self._function(heading, self._body)
            body = self._choose_threads
        if self._loops.may_fail:
            self._function(self._heading(), lambda: self._with_fault_flag(body))
        else:
            self._function(self._heading(), body)

    def emit_call(self, other: str) -> None:
        """Prints the kernel as a call of kernel `other`, which does the same."""
        returned = "return " if self._loops.may_fail else ""
        call = f"{returned}{other}({', '.join(self._argument_list())});"
        self._function(self._heading(), lambda: self._line(call))

    def _heading(self) -> str:
        return f'extern "C" {"i64" if self._loops.may_fail else "void"} {self._loops.name}({self._parameters()})'

    def _parameters(self) -> str:
        reads = [f"const {self._buffer_type(b)}* __restrict in_{b}" for b in self._loops.reads]
        writes = [f"{self._buffer_type(b)}* __restrict out_{b}" for b in self._loops.writes]
        sizes = [f"i64 {name}" for name in self._loops.symbols] + [f"f64 {name}" for name in self._loops.scalars]
        return ", ".join(reads + writes + sizes)

    def _argument_list(self) -> list[str]:
        """Returns the names of the function's parameters, for calls of another function."""
        loops = self._loops
        buffers = [f"in_{b}" for b in loops.reads] + [f"out_{b}" for b in loops.writes]
        return [*buffers, *loops.symbols, *loops.scalars]

    def _function(self, heading: str, body: Callable[[], None]) -> None:
        self._line(f"{heading} noexcept {{")
        with self._text.nested():
            body()
        self._line("}")

    def _with_fault_flag(self, body: Callable[[], None]) -> None:
        """Prints `body`, and the return of the flag whether a position in it was out of range."""
        self._line(f"i64 {FAULT} = 0;")
        body()
        self._line(f"return {FAULT};")

    @abstractmethod
    def _body(self) -> None:
        """Prints the kernel's loops."""

    def _choose_threads(self) -> None:
        """Prints calls of the function with the loops: on all threads if the kernel is expensive, else on one."""
        given = [*self._argument_list(), *([FAULT] if self._loops.may_fail else [])]
        call = f"{self._loops.name}_part({', '.join(given)});"

        def on_all() -> None:
            self._line("#pragma omp parallel")
            self._line(call)

        self._if_else(self._threads.condition, on_all, lambda: self._line(call))

    def _if_else(self, condition: str, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._line(f"if ({condition}) {{")
        with self._text.nested():
            first()
        self._line("} else {")
        with self._text.nested():
            second()
        self._line("}")

    @contextmanager
    def _nest(self, loops: Sequence[Loop], pragma: str | None) -> Iterator[None]:
        """Opens nested loops around what the caller prints; `pragma` is written before the outermost."""
        if not loops:
            yield
            return
        if pragma:
            self._line(pragma + (f" reduction(| : {FAULT})" if self._loops.may_fail else ""))
        self._line(str(loops[0]))
        with self._text.nested(), self._nest(loops[1:], None):
            yield
        self._line("}")

    def _pragma(self, loops: int) -> str | None:
        """Returns the OpenMP pragma that distributes the outermost `loops` loops over threads, if there are threads."""
        if not self._threads.parallel:
            return None
        which = "for" if self._threads.kernel_at_call else "parallel for"
        return f"#pragma omp {which}{f' collapse({loops})' if loops > 1 else ''} schedule(static)"
