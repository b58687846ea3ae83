"""The magics of the notebook: ``%%compile`` and the others, a method each."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import traitlets
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
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from compiler_core.records import Record
from compiler_core.tools.frames.report import FrameReport
from kernel_magics import options
from kernel_magics.cell.parse import Program, cell_number, parse
from kernel_magics.display.explanation import explanation
from kernel_magics.display.record_view import RecordView, make_view, print_line
from kernel_magics.display.static_html import captures_html, frames_html
from kernel_magics.run import edits, graph_passes
from kernel_magics.run.both import run_both
from kernel_magics.run.captures import USAGE, capture_expression
from kernel_magics.run.core import run, run_awaiting
from kernel_magics.run.request import Request
from kernel_magics.run.speed import time_expression
from kernel_magics.run.what_if import what_if
from kernel_magics.tracebacks.traces import show_as_plain_cell, show_interrupt


@magics_class
class CutawayMagics(Magics):
    """The magics, one method each."""

    shell: Any
    try_advice = traitlets.Bool(
        False, help="Try the advice on each problem after every %%compile cell, as --try-advice does for one."
    ).tag(config=True)

    @magic_arguments()
    @options.with_options
    @line_cell_magic
    @no_var_expand
    @output_can_be_silenced
    def compile(self, line: str, cell: str | None = None) -> object:
        """Run this cell (or, with %compile, this expression) compiled, and show what the compiler did.

        Its value, printed output and exceptions are the same as without the magic.
        """
        if cell is None:
            request, expression = self._read(self.compile, line)
            if not expression:
                raise UsageError("%compile takes an expression, for example: %compile model(x)")
            return self._run(parse_or_show_error(self.shell, expression), request, expression)
        if found := options.RANKS.search(line):
            self._run_on_ranks(found[1], f"{line[: found.start()]} {line[found.end() :]}", cell)
            return None
        return self._run(*self._read_cell(line, cell))

    def _run_on_ranks(self, name: str, line: str, cell: str) -> None:
        """Runs a cell on the engines of a cluster; prints how the ranks differ, and shows a rank of each group."""
        from kernel_magics.run.ranks import run_on_ranks

        self._read_cell(line, cell)  # checks the options and the syntax here
        ran = run_on_ranks(self.shell.user_ns, name, line, cell, f"In[{cell_number(self.shell)}]")
        print_line(str(ran.comparison))
        for record in ran.firsts:
            view = make_view(self.shell)
            view.start(record)
            view.stop()
            view.show(record)
        if ran.error:
            raise RuntimeError(ran.error)

    async def compile_awaiting(self, line: str, cell: str) -> object:
        """Runs ``%%compile`` for a cell that awaits while an event loop is already running; see `awaiting`."""
        program, request, title = self._read_cell(line, cell)
        with _ShownAsPlainCell(self.shell, program):
            value = await run_awaiting(self.shell, program, request, title, make_view(self.shell))
        return None if DisplayHook.semicolon_at_end_of_expression(cell) else value

    @magic_arguments()
    @options.with_options
    @line_magic
    @no_var_expand
    def explain(self, line: str) -> None:
        """Run this expression compiled and print a few lines: counts, the worst problems with what to do about them,
        guards, saved tensors."""
        request, expression = self._read(self.explain, line)
        if not expression:
            raise UsageError("%explain takes an expression, for example: %explain model(x)")
        self._run(parse_or_show_error(self.shell, expression), request, expression, ExplanationView())

    @magic_arguments()
    @options.with_options
    @line_magic
    @no_var_expand
    def frames(self, line: str) -> None:
        """Run this expression compiled, and show every Python frame that ran, as the frame hook saw it.

        A frame was compiled, inlined, skipped, or ran as plain Python, each with the reason; as a table and a tree.
        """
        request, expression = self._read(self.frames, line)
        if not expression:
            raise UsageError("%frames takes an expression, for example: %frames model(x)")
        if "," in request.engine or request.time is not None:
            raise UsageError("%frames watches one call with one engine, so it takes no --time and no two engines")
        request = dataclasses.replace(request, steps=True, frames=True)
        self._run(parse_or_show_error(self.shell, expression), request, expression, FramesView())

    @magic_arguments()
    @argument("--engine", default="core", help="core (Cutaway), torch (stock torch.compile) or both: core,torch")
    @argument("--mode", help="reduce-overhead; torch: also max-autotune ...")
    @argument("--backward", action="store_true", help="also run the backward pass of the sum of the results")
    @argument("--seconds", type=float, default=2.0, help="for how long to time, besides compiling")
    @line_magic
    @no_var_expand
    def speed(self, line: str) -> None:
        """Time this expression as plain PyTorch and compiled, side by side.

        It is evaluated hundreds of times, and its side effects happen each time.
        """
        words, expression = options.split_line(line, self.speed.parser)
        if not expression:
            raise UsageError("%speed takes an expression, for example: %speed model(x)")
        parse_or_show_error(self.shell, expression)
        given = self.speed.parser.parse_args(words)
        with _InterruptShown(self.shell):
            timings = time_expression(self.shell, expression, given.engine, given.mode, given.backward, given.seconds)
            print_line(str(timings))

    @line_magic
    @no_var_expand
    def capture_methods(self, line: str) -> None:
        """Capture a function by each of PyTorch's methods and by ours, and show which results are right.

        `%capture_methods f(x), f(y)` captures f with x, and calls each result with x and with y.
        """
        if not line.strip():
            raise UsageError(USAGE)
        parse_or_show_error(self.shell, line)
        with _InterruptShown(self.shell):
            comparison = capture_expression(self.shell, line)
        display({"text/html": captures_html(comparison), "text/plain": str(comparison)}, raw=True)

    @magic_arguments()
    @argument("name", nargs="?", help="the name of the pass")
    @argument("--at", default="captured", help="the graph: captured, joint, forward, backward; or lowering, fusion")
    @argument("--operator", default="", help="for a lowering rule: the operator, such as aten.tanh.default")
    @argument("--remove", metavar="NAME", help="remove a pass")
    @argument("--remove-all", action="store_true", help="remove all passes")
    @line_cell_magic
    @no_var_expand
    def graph_pass(self, line: str, cell: str | None = None) -> None:
        """Run this cell, and let %%compile run the function that it defines as a pass over graphs.

        The function takes a torch.fx.GraphModule and changes it, or returns another one. %graph_pass lists the passes.
        With --at lowering --operator OPERATOR it is a rule that lowers an operator to a loop: it takes the loop's body
        and an element of each argument, and returns one of the result: body.op("mul", x, 2). With --at fusion it takes
        two loop nests and returns "keep_apart", "force_fuse" or None.
        """
        given = self.graph_pass.parser.parse_args(shlex.split(line))
        if cell is None:
            print_line(graph_passes.list_or_remove(given.name, given.remove, given.remove_all))
            return
        if not given.name:
            raise UsageError("%%graph_pass takes the name of the pass: %%graph_pass NAME --at captured")
        parse_or_show_error(self.shell, cell)
        if self.shell.run_cell(cell).success:
            print_line(graph_passes.add(self.shell, given.name, given.at, given.operator, cell))

    @magic_arguments()
    @argument("--drop-guard", metavar="SOURCE", help="leave out the guards of this source, such as L['x']")
    @argument(
        "--split", metavar="KERNEL", action="append", help="make a kernel of each operation of this one, and time"
    )
    @argument("--join", metavar="A,B", action="append", help="make two kernels one where that is possible, and time")
    @argument("--mark-dynamic", metavar="NAME:DIM", action="append", help="make this size of a tensor symbolic")
    @options.with_options
    @line_magic
    @no_var_expand
    def what_if(self, line: str) -> None:
        """Run the last %%compile cell again with these options changed, on saved state, and print what that changes.

        Its values are compared with plain PyTorch, and the explorer shows both runs.
        """
        parser = self.what_if.parser
        words, expression = options.split_line(line, parser)
        if expression:
            raise UsageError(f"%what_if: unexpected argument {expression!r}; options start with --")
        given, default = parser.parse_args(words), parser.parse_args([])
        namespace = self.shell.user_ns
        with _InterruptShown(self.shell):
            print_line(what_if(options.request(given, namespace), options.request(default, namespace), given))

    @magic_arguments()
    @options.with_edit_options
    @line_cell_magic
    @no_var_expand
    def kernel(self, line: str, cell: str | None = None) -> None:
        """Try this text in place of a kernel that the last %%compile cell made, and use it from now on.

        %kernel ID makes a cell with the kernel's text; %kernel lists the edits.
        """
        self._edit("kernel", line, cell)

    @magic_arguments()
    @options.with_edit_options
    @line_cell_magic
    @no_var_expand
    def schedule(self, line: str, cell: str | None = None) -> None:
        """Try this schedule in place of a kernel's own, and use it from now on.

        %schedule ID makes a cell with the kernel's schedule, a line for each rewrite of its loop nest; %schedule lists
        the edits.  The rewrites, applied from the naive nest on, each to the result of the one before:

            split(i0, 128)        blocks of 128 elements: loops over i0_tile and i0
            cut(i0, 300)          parts of a range: up to 300, and the rest
            reorder(j0, i0)       another order of loops that are directly inside each other
            distribute(i0)        a loop over i0 for each sweep, or of elements around a scan
            hoist(j0)             what is the same for each j0 is computed before that loop
            keep(exp)             values that a later sweep reads again instead of computing them
            partial(i1)           sums of columns over a block of rows first
            vectorize(j0, 16)     vectors of 16 elements; without a number, as many as fit
            jam(j0, 8)            8 elements of a row are added in a register before they reach its sum
            parallelize(i0)       iterations divided among threads

        Those of a Triton kernel:

            fuse(i0, i1)          one loop over the flattened index i
            split(i, 1024)        blocks of 1024 elements
            programs(i_tile)      a program for each iteration
            block(i)              all elements at a time, by the threads of a program
            stages(j_tile, 2)     blocks of the next iterations are loaded ahead
            warps(4)              4 warps of 32 threads in each program
        """
        self._edit("schedule", line, cell)

    @magic_arguments()
    @options.with_edit_options
    @line_cell_magic
    @no_var_expand
    def graph(self, line: str, cell: str | None = None) -> None:
        """Try this text in place of a graph that the last %%compile cell made, and use it from now on.

        %graph ID makes a cell with the graph's text; %graph lists the edits.
        """
        self._edit("graph", line, cell)

    def _edit(self, magic: str, line: str, cell: str | None) -> None:
        given = getattr(self, magic).parser.parse_args(shlex.split(line))
        if magic == "schedule" and given.id:
            given.id = edits.schedule_id(given.id)
        if given.revert or given.revert_all:
            print_line(edits.revert(None if given.revert_all else given.id))
        elif not given.id and cell is not None:
            raise UsageError(f"the first line names what is edited: %%{magic} ID; %{magic} alone lists the edits")
        elif not given.id:
            print_line(edits.table())
        elif cell is None:
            shown = given.id.removesuffix(".schedule") if magic == "schedule" else given.id
            self.shell.set_next_input(f"%%{magic} {shown}\n{edits.text(given.id)}")
        else:
            with _InterruptShown(self.shell):
                print_line(edits.try_and_use(given.id, cell, given.force))

    def _read(self, magic: Any, line: str) -> tuple[Request, str]:
        """Returns the checked options of a magic's line, and the expression after them."""
        words, expression = options.split_line(line, magic.parser)
        given = magic.parser.parse_args(words)
        given.try_advice |= self.try_advice
        return options.request(given, self.shell.user_ns), expression

    def _read_cell(self, line: str, cell: str) -> tuple[Program, Request, str]:
        """Returns the parsed cell, its options, and the title of its record."""
        request, expression = self._read(self.compile, line)
        if expression:
            raise UsageError(f"%%compile: unexpected argument {expression!r}; options start with --")
        program = parse_or_show_error(self.shell, cell, f"# %%compile {line}".rstrip() + "\n")
        return program, request, f"Cell In[{cell_number(self.shell)}]"

    def _run(self, program: Program, request: Request, title: str, view: RecordView | None = None) -> object:
        run_program = run_both if "," in request.engine else run
        with _ShownAsPlainCell(self.shell, program):
            return run_program(self.shell, program, request, title, view or make_view(self.shell))


class _ShownAsPlainCell:
    """Shows what is raised in the block as a plain cell would.  No `contextmanager`, which puts back the frames that
    are not shown."""

    def __init__(self, shell: Any, program: Program) -> None:
        self._shell, self._filename = shell, program.filename

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            show_as_plain_cell(self._shell, error, self._filename)


class _InterruptShown:
    """Shows an interrupt of the block, which is our work and not the user's program, without its frames."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            show_interrupt(self._shell, error)


def parse_or_show_error(shell: Any, text: str, above: str = "") -> Program:
    """Parses `text`; a syntax error is shown as for a plain cell."""
    try:
        return parse(shell, text, above)
    except SyntaxError as error:
        show_as_plain_cell(shell, error, None)
        raise


class ExplanationView(RecordView):
    """Prints the short summary of ``%explain``."""

    def show(self, record: Record) -> None:
        print_line(explanation(record))


class FramesView(RecordView):
    """Shows the frames of ``%frames``."""

    def show(self, record: Record) -> None:
        report = FrameReport(record.seen, record.labels)
        display({"text/html": frames_html(report), "text/plain": str(report)}, raw=True)
