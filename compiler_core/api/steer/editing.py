"""Edits kernels and graphs by hand: gives their text, tries an edited one, and swaps it in."""

from __future__ import annotations

import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch.fx as fx

from compiler_core.api import replay
from compiler_core.api.compiled_function import record_of, region_of
from compiler_core.api.steer.graph_from_text import graph_from_text, parse_function, printed
from compiler_core.api.steer.graph_trial import try_graph
from compiler_core.api.steer.kernel_trial import Trial, text_change, try_kernel
from compiler_core.backends.kernel_edits import function_text, without_edits
from compiler_core.codegen.build import compilers
from compiler_core.config import GraphPass, KernelEdit, Options, PassPoint
from compiler_core.errors import CutawayError, GraphPassError, UsageError
from compiler_core.records import Artifact, Compile, Kernel, Record

GRAPHS = ("captured", "forward", "backward")
"""The graphs whose text can be edited; the joint graph is only there before its halves are simplified."""


@dataclass(frozen=True)
class Edit:
    """An edit that was tried: what it adds to the options of a compile, by the id of what it edits."""

    id: str
    trial: Trial
    kernel: KernelEdit | None = None
    graph: GraphPass | None = None

    def added_to(self, options: Options) -> Options:
        """Returns `options` with this edit, in the place of one of the same kernel or graph."""
        if self.kernel is not None:
            return replace(options, edits=merged(options.edits, self.kernel))
        assert self.graph is not None
        passes = [each for each in options.passes if each.name != self.graph.name]
        return replace(options, passes=(*passes, self.graph))


def merged(edits: Sequence[KernelEdit], new: KernelEdit) -> tuple[KernelEdit, ...]:
    """Returns `edits` and a new one, in the place of one of the same kernel."""
    return (*(each for each in edits if each.original != new.original), new)


def editable_text(record: Record, id: str) -> str:
    """Returns the text of a kernel or graph, to be edited.

    Args:
        record: the record of its compile.
        id: ``0/0:forward_0`` for a kernel of ours, ``0/0:captured``, ``0/0:forward`` or ``0/0:backward`` for a graph;
            without the compile, if there is only one of that name.

    Raises:
        UsageError: the record has no such kernel or graph.
    """
    found = _find(record, id)
    if isinstance(found.item, Artifact):
        return found.item.text
    return _kernel_text(_source(found, ()), found.item)


def try_edit(record: Record, id: str, text: str, edits: Sequence[KernelEdit] = ()) -> Edit:
    """Tries an edited text beside the original, on inputs like the recorded ones; nothing is swapped in.

    `Edit.trial` says whether the values are the same, and how long both take.  Kernels run in a separate process,
    where a store outside of their buffers is found.

    Args:
        record: a record of the core engine that was made in this process.
        id: as for `editable_text`.
        text: the edited text.
        edits: those that the record was made with; the kernel is compared with the generated one.

    Raises:
        UsageError: there is no such kernel or graph, or the text is not one that can take its place.
    """
    replay.check_made_here(record)
    found = _find(record, id)
    if isinstance(found.item, Artifact):
        return _try_graph(found.compile, found.item, text)
    return _try_kernel(found, text, edits)


def edit(compiled: Any, id: str, text: str, *, record: Record | None = None, force: bool = False) -> Trial:
    """Tries an edited kernel or graph, and swaps it into a compiled function if its values are the same.

    The function is compiled again at its next call, with the edited text wherever the original was.

    Args:
        compiled: what `compiler_core.compile` returned.
        id: what to edit, as for `editable_text`.
        text: the edited text.
        record: the record of its compile, if it was recorded inside ``with compiler_core.record()``.
        force: swap it in although its values differ, but not if it crashes or writes out of range.

    Returns:
        Whether the values are the same, the times of both, and the change of the text.

    Raises:
        UsageError: there is no such kernel or graph, or the text is not one that can take its place.

    Example::

        text = compiler_core.editable_text(record, "0/0:forward_0")
        print(compiler_core.edit(compiled, "0/0:forward_0", text.replace("tanhf", "fast_tanh"), record=record))
        compiled(x)                                   # runs the edited kernel
        compiler_core.revert(compiled)
    """
    region = region_of(compiled)
    tried = try_edit(record or record_of(compiled), id, text, region.options.edits)
    if tried.trial.is_right or (force and not tried.trial.fault):
        region.options = tried.added_to(region.options)
        region.forget()
    return tried.trial


def revert(compiled: Any, name: str | None = None) -> None:
    """Takes edits out of a compiled function, which compiles again at its next call.

    Args:
        compiled: what `compiler_core.compile` returned.
        name: the kernel (``forward_0``) or graph (``captured``) whose edit is taken out; None for all.
    """
    region = region_of(compiled)
    edits = [each for each in region.options.edits if name is not None and each.name != name]
    passes = [p for p in region.options.passes if not _is_edit(p) or (name is not None and not _edits(p, name))]
    region.options = replace(region.options, edits=tuple(edits), passes=tuple(passes))
    region.forget()


def _is_edit(graph_pass: GraphPass) -> bool:
    return isinstance(graph_pass.function, _GraphEdit)


def _edits(graph_pass: GraphPass, name: str) -> bool:
    return graph_pass.at == name


# ---------------------------------------------------------------- what is edited


@dataclass(frozen=True)
class _Found:
    compile: Compile
    item: Kernel | Artifact


def _find(record: Record, id: str) -> _Found:
    if record.engine == "torch":
        raise UsageError("kernels and graphs of stock torch.compile cannot be edited; compile with the core engine")
    compile_id, _, name = id.rpartition(":")
    found: list[_Found] = []
    names: list[str] = []
    for compile_ in record.compiles:
        if compile_id not in ("", compile_.id):
            continue
        items: list[Kernel | Artifact] = [k for k in compile_.kernels if k.language in ("cpp", "triton")]
        items += [a for a in compile_.artifacts if a.name in GRAPHS and a.graph]
        names += [f"{compile_.id}:{each.name}" for each in items]
        found += [_Found(compile_, each) for each in items if each.name == name]
    if len(found) == 1:
        return found[0]
    if name == "joint":
        raise UsageError(
            "the joint graph is changed by a pass (%%graph_pass NAME --at joint); edit forward or backward"
        )
    if found:
        raise UsageError(f"say which: {', '.join(f'{each.compile.id}:{name}' for each in found)}")
    raise UsageError(f"there is no kernel or graph {id!r} to edit; there are {', '.join(names) or 'none'}")


def _source(found: _Found, edits: Sequence[KernelEdit]) -> str:
    """Returns the generated text of all kernels of the graph that a kernel is in."""
    kernel = found.item
    assert isinstance(kernel, Kernel)
    language: Any = kernel.language
    return without_edits(replay.sources(found.compile, kernel.graph)[language], edits)


def _kernel_text(source: str, kernel: Kernel) -> str:
    """Returns the text of a kernel, for Triton with the line that sets its launch."""
    text = function_text(source, kernel.name)
    if text is None:
        raise UsageError(f"the record has no text of the kernel {kernel.name}")
    launches = re.findall(rf'^(?:    "{kernel.name}": |LAUNCHES\["{kernel.name}"\] = )(.*?),?$', source, re.MULTILINE)
    return text + (f'\nLAUNCHES["{kernel.name}"] = {launches[-1]}\n' if launches else "")


def _try_kernel(found: _Found, text: str, edits: Sequence[KernelEdit]) -> Edit:
    kernel, source = found.item, _source(found, edits)
    assert isinstance(kernel, Kernel)
    shown = _kernel_text(source, kernel)
    original = function_text(source, kernel.name) or ""
    text = text.strip("\n") + "\n"
    _check_signature(kernel, original, text)
    made = KernelEdit(kernel.name, original, text)
    try:
        trial = try_kernel(found.compile, kernel, source, made)
    except CutawayError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"the edited {kernel.name} cannot be built: {error}") from None
    trial.change = text_change(shown, text)
    return Edit(f"{found.compile.id}:{kernel.name}", trial, kernel=made)


def _check_signature(kernel: Kernel, original: str, text: str) -> None:
    """Checks that the text defines the kernel with the parameters that its caller passes."""
    if kernel.language == "cpp":
        (wanted,) = compilers.signatures(original)
        if wanted not in compilers.signatures(text):
            head = original.partition("{")[0].strip()
            raise UsageError(f"the text must define the kernel with the parameters that it has:\n{head} {{ ... }}")
        return
    heads = [re.findall(rf"def {kernel.name}\(([^)]*)\)", each) for each in (original, text)]
    counts = [[p for p in head[0].split(",") if p.strip() and "constexpr" not in p] if head else [] for head in heads]
    if len(counts[0]) != len(counts[1]):
        raise UsageError(
            f"the text must define {kernel.name} with the parameters{''.join(counts[0])} and its constants"
        )


def _try_graph(compile_: Compile, artifact: Artifact, text: str) -> Edit:
    try:
        parse_function(text)
    except GraphPassError as error:
        raise UsageError(f"the edited {artifact.name} cannot be read: {error}") from None
    at = typing.cast(PassPoint, artifact.name)
    name = f"edit_{compile_.id.replace('/', '_')}_{artifact.name}"
    made = GraphPass(_GraphEdit(artifact.text, text, artifact.name), at, name)
    return Edit(f"{compile_.id}:{artifact.name}", try_graph(artifact, text, _backend(compile_)), graph=made)


def _backend(compile_: Compile) -> str | None:
    """Returns the backend of a compile; None for the default and for the user's own."""
    return compile_.backend if compile_.backend in ("cpp", "triton", "aot_eager", "eager") else None


@dataclass(frozen=True)
class _GraphEdit:
    """The function of a pass that takes an edited text for each graph whose text is `original`."""

    original: str
    text: str
    name: str

    def __call__(self, gm: fx.GraphModule) -> fx.GraphModule | None:
        return graph_from_text(self.text, gm) if printed(gm, self.name) == self.original else None
