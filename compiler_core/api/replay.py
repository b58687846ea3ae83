"""One graph's program made again from the texts of a record, with a look at what each kernel does.

What runs is what ran: the wrapper's text, our kernels from the cache on disk, PyTorch's own.  It needs nothing of the
process that compiled it and keeps nothing of it alive; its inputs are random (`codegen.examples`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.codegen.wrapper.example_inputs import random_tensor
from compiler_core.codegen.wrapper.executable import NAMES, launchers
from compiler_core.errors import CutawayError, UsageError
from compiler_core.loops import ir
from compiler_core.records import Artifact, Compile, Kernel, Record

Begin = Callable[[Kernel], None]
End = Callable[[Kernel, Mapping[str, Any]], None]
"""Given what the names of the program are, where that is asked for."""


@dataclass(frozen=True)
class Runnable:
    """A program that was loaded: `run` takes `inputs` as one list, which it may empty."""

    inputs: list[Any]
    _run: Callable[[list[Any]], Any]
    _names: dict[str, Any]

    def let_go(self) -> None:
        """Nothing of it, and nothing that looked at it, is kept alive by its functions' names for one another."""
        self._names.clear()

    @property
    def on_gpu(self) -> bool:
        return any(isinstance(value, torch.Tensor) and value.is_cuda for value in self.inputs)

    def run(self) -> Any:
        """The results, of the inputs as they are now; what the graph changes in place is changed in them."""
        with torch.no_grad(), torch._C._AutoDispatchBelowADInplaceOrView():
            return self._run(list(self.inputs))


def refuse_strangers(record: Record) -> None:
    """UsageError for a record that was read: its texts may be anybody's, and nothing of them runs."""
    if not record._made_here:
        raise UsageError(
            "this record was read, and not made in this process: measuring or checking it would run its code; "
            "compile the program here"
        )


@contextmanager
def noting(record: Record, what: str) -> Iterator[None]:
    """What goes wrong inside becomes a note of the record: `what`, and why."""
    try:
        yield
    except Exception as error:
        why = str(error) if isinstance(error, CutawayError) else f"{type(error).__name__}: {error}"
        note = f"{what}: {why}"
        record.notes += [] if note in record.notes else [note]


def wrappers(compile_: Compile) -> Iterator[Artifact]:
    """The texts that run a graph's kernels; each is loaded by `load`."""
    for artifact in compile_.artifacts:
        which, _, name = artifact.name.partition(".")
        if artifact.language == "python" and name.startswith("wrapper") and which in ("forward", "backward"):
            yield artifact


def kernels_of(compile_: Compile, wrapper: Artifact) -> dict[int, Kernel]:
    """The kernel that each line of a wrapper runs."""
    lines: dict[str, list[int]] = {}
    for edge in compile_.edges:
        if edge.made.startswith(f"{wrapper.id}#"):
            for source in edge.sources:
                lines.setdefault(source, []).append(int(edge.made.rpartition("#")[2]))
    found = {}
    for kernel in compile_.kernels:
        if kernel.item and kernel.item.startswith(f"{wrapper.id}#"):
            found[int(kernel.item.rpartition("#")[2])] = kernel
        elif kernel.item and kernel.item in lines:
            found[max(lines[kernel.item])] = kernel  # lines before it make room for the results
    return found


def load(compile_: Compile, wrapper: Artifact, begin: Begin, end: End, values: bool = False) -> Runnable:
    """The program of `wrapper`; `begin` and `end` are called around each kernel, `end` with the `values` of all names.

    UsageError or BuildError: it cannot run here, and why.
    """
    kernels = kernels_of(compile_, wrapper)
    tree = _watched(wrapper.text, kernels, values)
    scope: dict[str, Any] = {"__name__": wrapper.id, "_begin": begin, "_end": end, "_kernels": kernels}
    if "async_compile" in wrapper.text:
        return _stock(wrapper, tree, scope)
    return _ours(compile_, wrapper, tree, scope)


def _ours(compile_: Compile, wrapper: Artifact, tree: ast.Module, scope: dict[str, Any]) -> Runnable:
    which = wrapper.name.partition(".")[0]
    names = {**NAMES, "random_tensor": random_tensor}
    # the text writes a name of ours with a _ where a node has that name
    scope |= names | {f"{name}_": value for name, value in names.items()} | launchers(sources(compile_, which))
    exec(compile(tree, f"<cutaway {wrapper.id}>", "exec"), scope)
    return Runnable(scope["random_inputs"](), scope[f"run_{which}"], scope)


def sources(compile_: Compile, which: str) -> dict[ir.Language, str]:
    """The source of a graph's kernels, in each language that it has kernels in.

    The record may also have them in a language that they do not run in, printed for a target.
    """
    names: dict[ir.Language, str] = {"cpp": f"{which}.cpp", "triton": f"{which}.py"}
    used = {kernel.language for kernel in compile_.kernels if kernel.graph == which}
    texts = {artifact.name: artifact.text for artifact in compile_.artifacts}
    missing = [name for language, name in names.items() if language in used and name not in texts]
    if missing:
        raise UsageError(f"compile {compile_.id} has no text {missing[0]}, though it has kernels from there")
    return {language: texts[name] for language, name in names.items() if language in used}


def _stock(wrapper: Artifact, tree: ast.Module, scope: dict[str, Any]) -> Runnable:
    """Inductor's output code, which has inputs of its own for who would run it alone."""
    exec(compile(tree, f"<cutaway {wrapper.id}>", "exec"), scope)
    run = scope["call"]
    if "get_args" in scope:
        return Runnable(scope["get_args"](), run, scope)
    given: list[Any] = []

    def take(inputs: list[Any]) -> None:
        given.extend(inputs or given)
        inputs.clear()

    scope["call"] = take
    scope["benchmark_compiled_module"](times=1, repeat=1)
    return Runnable(given, run, scope)


def _watched(text: str, kernels: Mapping[int, Kernel], values: bool) -> ast.Module:
    """`text`, in which the statements of these lines stand between calls of `_begin` and `_end`."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for part in ("body", "orelse"):
            statements = getattr(node, part, None)
            if isinstance(statements, list):
                setattr(node, part, [s for each in statements for s in _around(each, kernels, values)])
    return ast.fix_missing_locations(tree)


def _around(statement: ast.stmt, kernels: Mapping[int, Kernel], values: bool) -> list[ast.stmt]:
    kernel = kernels.get(statement.lineno)
    if kernel is None or isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement]
    line = f"_kernels[{statement.lineno}]"
    begin, end = ast.parse(f"_begin({line})\n_end({line}, {'locals()' if values else '{}'})").body
    return [begin, statement, end]
