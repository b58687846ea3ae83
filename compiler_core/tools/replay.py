"""Runs the program of a graph again, from the texts of a record, with callbacks around each kernel.

The program is the one that was compiled: the wrapper's text, our kernels from the disk cache, and PyTorch's own.  It
depends on no object of the original compile and keeps none alive.  Its inputs are random
(`example_inputs`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.codegen.wrapper.executable import NAMES, launchers
from compiler_core.errors import CutawayError, UsageError
from compiler_core.loops import ir
from compiler_core.records import Artifact, Compile, Kernel, Record
from compiler_core.tools.example_inputs import random_tensor
from compiler_core.torch_private import AutoDispatchBelowADInplaceOrView

BeforeKernel = Callable[[Kernel], None]
AfterKernel = Callable[[Kernel, Mapping[str, Any]], None]
"""Called with the program's local variables, or an empty mapping if these were not requested."""


@dataclass(frozen=True)
class LoadedProgram:
    """A program that can be run.  `inputs` are its arguments, which may be replaced before a run."""

    inputs: list[Any]
    _run: Callable[[list[Any]], Any]
    _namespace: dict[str, Any]

    def release(self) -> None:
        """Clears the program's namespace, whose functions refer to it and would keep it alive."""
        self._namespace.clear()

    def observe_launches(self, kernel: str, observer: Callable[[tuple[Any, ...]], None]) -> None:
        """Calls `observer` with the arguments of each launch of the kernel of this name, before it."""
        launch = self._namespace[kernel]

        def observed(*args: Any) -> Any:
            observer(args)
            return launch(*args)

        self._namespace[kernel] = observed

    @property
    def on_gpu(self) -> bool:
        """Whether an input is on a GPU."""
        return any(isinstance(value, torch.Tensor) and value.is_cuda for value in self.inputs)

    def run(self) -> Any:
        """Runs the program on `inputs` and returns its results; inputs that the graph mutates are mutated."""
        with torch.no_grad(), AutoDispatchBelowADInplaceOrView():
            return self._run(list(self.inputs))


def check_made_here(record: Record) -> None:
    """Raises UsageError for a record that was read from a file: its texts are untrusted and must not run."""
    if not record._made_here:
        raise UsageError(
            "this record was read from a file: measuring or checking it would run code from that file; "
            "compile the program in this process"
        )


@contextmanager
def note_failures(record: Record, what: str) -> Iterator[None]:
    """Context manager that turns an exception into a note of the record: `what`, and the reason."""
    try:
        yield
    except Exception as error:
        why = str(error) if isinstance(error, CutawayError) else f"{type(error).__name__}: {error}"
        note = f"{what}: {why}"
        if note not in record.notes:
            record.notes.append(note)


def wrappers(compile_: Compile, parts: bool = False) -> Iterator[Artifact]:
    """Yields the wrappers of a compile, the texts that launch a graph's kernels; with `parts` those of its parts and
    subgraphs, too."""
    for artifact in compile_.artifacts:
        part, direction, name = place_of(artifact)
        is_wrapper = name.startswith("wrapper") and direction in ("forward", "backward")
        if artifact.language == "python" and is_wrapper and (parts or not part):
            yield artifact


def launched(compile_: Compile, wrapper: Artifact) -> Artifact:
    """Returns the text that runs: the wrapper, or the one that calls runs of its kernels."""
    name = wrapper.name.removesuffix("wrapper") + "launch"
    return next((artifact for artifact in compile_.artifacts if artifact.name == name), wrapper)


def place_of(artifact: Artifact) -> tuple[str, str, str]:
    """Returns the prefix of the name of a text (that of a part and a dot, or empty), its direction, and its kind:
    ``("part_2.", "forward", "wrapper")``."""
    found = _PLACE.fullmatch(artifact.name)
    return ("", "", "") if found is None else (found[1] or "", found[2], found[3])


_PLACE = re.compile(r"(.+?\.)??(forward|backward)\.(.+)")


def kernels_of(compile_: Compile, wrapper: Artifact) -> dict[int, Kernel]:
    """Returns the kernel that each line of a wrapper launches, by line number."""
    lines: dict[str, list[int]] = {}
    for edge in compile_.edges:
        if edge.made.startswith(f"{wrapper.id}#"):
            for source in edge.sources:
                lines.setdefault(source, []).append(int(edge.made.rpartition("#")[2]))
    kernels = {}
    for kernel in compile_.kernels:
        if kernel.item and kernel.item.startswith(f"{wrapper.id}#"):
            kernels[int(kernel.item.rpartition("#")[2])] = kernel
        elif kernel.item and kernel.item in lines:
            kernels[max(lines[kernel.item])] = kernel  # earlier lines allocate the kernel's results
    return kernels


def load(
    compile_: Compile,
    wrapper: Artifact,
    before: BeforeKernel | None = None,
    after: AfterKernel | None = None,
    pass_locals: bool = False,
) -> LoadedProgram:
    """Loads the program of a wrapper, with calls of `before` and `after` around each kernel, if they are given.

    `pass_locals`: call `after` with the program's local variables.  Raises UsageError or BuildError if the program
    cannot run on this machine.
    """
    kernels = kernels_of(compile_, wrapper) if before is not None else {}
    tree = instrument(wrapper.text, kernels, pass_locals)
    namespace: dict[str, Any] = {"__name__": wrapper.id, "_begin": before, "_end": after, "_kernels": kernels}
    if "async_compile" in wrapper.text:
        return _load_inductor(wrapper, tree, namespace)
    return _load_core(compile_, wrapper, tree, namespace)


def _load_core(compile_: Compile, wrapper: Artifact, tree: ast.Module, namespace: dict[str, Any]) -> LoadedProgram:
    part, direction, _ = place_of(wrapper)
    names = {**NAMES, "random_tensor": random_tensor}
    # If a node has the name of one of our functions, the text writes the function with an underscore.
    namespace |= names | {f"{name}_": value for name, value in names.items()}
    namespace |= launchers(sources(compile_, direction, part))
    exec(compile(tree, f"<cutaway {wrapper.id}>", "exec"), namespace)
    return LoadedProgram(namespace["random_inputs"](), namespace[f"run_{direction}"], namespace)


def sources(compile_: Compile, direction: str, part: str = "") -> dict[ir.Language, str]:
    """Returns the source text of a graph's kernels for each language that they run in; `part` as in `place_of`.

    The record may have the kernels in another language as well, printed for a target; these are left out.  Raises
    UsageError if the record lacks a text.
    """
    names: dict[ir.Language, str] = {"cpp": f"{part}{direction}.cpp", "triton": f"{part}{direction}.py"}
    items = f"{compile_.id}:{part}{direction}"
    used = {k.language for k in compile_.kernels if k.graph == direction and (k.item or items).startswith(items)}
    texts = {artifact.name: artifact.text for artifact in compile_.artifacts}
    missing = [name for language, name in names.items() if language in used and name not in texts]
    if missing:
        raise UsageError(f"compile {compile_.id} has kernels from {missing[0]}, but not its text")
    return {language: texts[name] for language, name in names.items() if language in used}


def _load_inductor(wrapper: Artifact, tree: ast.Module, namespace: dict[str, Any]) -> LoadedProgram:
    """Loads Inductor's output code; its benchmark function makes the inputs."""
    exec(compile(tree, f"<cutaway {wrapper.id}>", "exec"), namespace)
    run = namespace["call"]
    return LoadedProgram(inductor_inputs(namespace), run, namespace)


def inductor_inputs(namespace: dict[str, Any]) -> list[Any]:
    """Returns random inputs of Inductor's output code, which was executed in `namespace`."""
    if "get_args" in namespace:
        return list(namespace["get_args"]())
    inputs: list[Any] = []

    def keep_inputs(given: list[Any]) -> None:
        inputs.extend(given or inputs)
        given.clear()

    run, namespace["call"] = namespace["call"], keep_inputs
    namespace["benchmark_compiled_module"](times=1, repeat=1)
    namespace["call"] = run
    return inputs


def instrument(text: str, parts: Mapping[int, object], pass_locals: bool) -> ast.Module:
    """Parses `text` and puts calls of `_begin` and `_end` around the statements at the lines of `parts`.

    The calls get ``_kernels[line]``; `pass_locals`: `_end` also gets the local variables, else an empty dict.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                instrumented = [s for each in statements for s in _with_calls(each, parts, pass_locals)]
                setattr(node, name, instrumented)
    return ast.fix_missing_locations(tree)


def _with_calls(statement: ast.stmt, parts: Mapping[int, object], pass_locals: bool) -> list[ast.stmt]:
    if statement.lineno not in parts or isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement]
    line = f"_kernels[{statement.lineno}]"
    begin, end = ast.parse(f"_begin({line})\n_end({line}, {'locals()' if pass_locals else '{}'})").body
    return [begin, statement, end]


def is_deletion(statement: ast.stmt) -> bool:
    """Whether it is ``name = None``, which stock's graphs have after the last use of a node."""
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)


def assigned_name(statement: ast.stmt) -> str:
    """Returns the node that a line of a graph's text assigns; empty if it is not a simple assignment."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    return target.id if isinstance(target, ast.Name) else ""
