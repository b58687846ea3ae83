"""%%compile, %compile and %explain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.error import UsageError
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    line_magic,
    magics_class,
    no_var_expand,
    output_can_be_silenced,
)
from IPython.core.magic_arguments import magic_arguments

from compiler_core.records import Record
from kernel_magics import options
from kernel_magics.cell.parse import Program, cell_number, parse
from kernel_magics.display import summary
from kernel_magics.display.view import View, make_view, say
from kernel_magics.run.both import run_both
from kernel_magics.run.core import Request, run, run_awaiting
from kernel_magics.tracebacks.traces import show_alone


@magics_class
class CutawayMagics(Magics):
    """The magics, as methods."""

    shell: Any

    @magic_arguments()
    @options.with_options
    @line_cell_magic
    @no_var_expand
    @output_can_be_silenced
    def compile(self, line: str, cell: str | None = None) -> object:
        """Run this cell (or, on one line, this expression) compiled, and explore what the compiler did.

        The cell runs as it always would: the same result, prints and exceptions.
        """
        if cell is None:
            request, expression = self._read(self.compile, line)
            if not expression:
                raise UsageError("%compile takes an expression, for example: %compile model(x)")
            return self._run(parse_alone(self.shell, expression), request, expression)
        return self._run(*self._read_cell(line, cell))

    async def compile_awaiting(self, line: str, cell: str) -> object:
        """``%%compile`` of a cell that awaits, where a loop runs already; see `awaiting`."""
        program, request, title = self._read_cell(line, cell)
        with self._shown_alone(program):
            value = await run_awaiting(self.shell, program, request, title, make_view(self.shell))
        return None if DisplayHook.semicolon_at_end_of_expression(cell) else value

    @magic_arguments()
    @options.with_options
    @line_magic
    @no_var_expand
    def explain(self, line: str) -> None:
        """Run this expression compiled and say in short: graphs, breaks with reasons and lines, guards, recompiles."""
        request, expression = self._read(self.explain, line)
        if not expression:
            raise UsageError("%explain takes an expression, for example: %explain model(x)")
        self._run(parse_alone(self.shell, expression), request, expression, ShortView())

    def _read(self, magic: Any, line: str) -> tuple[Request, str]:
        """The options, checked, and the expression after them."""
        words, expression = options.split_line(line, magic.parser)
        return options.request(magic.parser.parse_args(words), self.shell.user_ns), expression

    def _read_cell(self, line: str, cell: str) -> tuple[Program, Request, str]:
        """A cell and its options, ready to run, and what to call its record."""
        request, expression = self._read(self.compile, line)
        if expression:
            raise UsageError(f"%%compile does not know what {expression!r} is; its options start with --")
        program = parse_alone(self.shell, cell, f"# %%compile {line}".rstrip() + "\n")
        return program, request, f"Cell In[{cell_number(self.shell)}]"

    def _run(self, program: Program, request: Request, title: str, view: View | None = None) -> object:
        through = run_both if "," in request.engine else run
        with self._shown_alone(program):
            return through(self.shell, program, request, title, view or make_view(self.shell))

    @contextmanager
    def _shown_alone(self, program: Program) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            show_alone(self.shell, error, program.filename)
            raise


def parse_alone(shell: Any, text: str, above: str = "") -> Program:
    """The program of `text`; a syntax error in it is shown as a plain cell's."""
    try:
        return parse(shell, text, above)
    except SyntaxError as error:
        show_alone(shell, error, None)
        raise


class ShortView(View):
    """Says the short answer only."""

    def show(self, record: Record) -> None:
        say(summary.explanation(record))
