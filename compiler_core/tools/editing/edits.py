"""Edits kernels, loops, wrappers and graphs by hand: gives their text, tries an edited one, and swaps it in."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.fx as fx

from compiler_core.api.compile import compile as compile_function
from compiler_core.api.compiled import record_of, region_of
from compiler_core.codegen.build import compilers
from compiler_core.config import CodeEdit, GraphPass, Options, PassPoint
from compiler_core.errors import CutawayError, GraphPassError, UsageError
from compiler_core.records import Artifact, Compile, Kernel, Record
from compiler_core.tools import replay
from compiler_core.tools.changes.edited_texts import function_text, without_edits
from compiler_core.tools.editing import stock_edits
from compiler_core.tools.editing.graph_from_text import graph_from_text, parse_function, printed
from compiler_core.tools.editing.graph_trial import try_graph
from compiler_core.tools.editing.kernel_trial import Trial, text_change, try_kernel, try_loops, try_schedule
from compiler_core.tools.editing.wrapper_trial import is_inductor, try_wrapper
from compiler_core.tools.stock.inductor_passes import stock_passes

GRAPHS = ("captured", "forward", "backward")
"""The graphs whose text can be edited; the joint graph is only there before its halves are simplified."""

STOCK_GRAPHS: dict[str, PassPoint] = {
    "captured": "captured", "forward.post_grad": "forward", "backward.post_grad": "backward"
}  # fmt: skip
"""The graphs of stock `torch.compile` whose text can be edited, with the point at which the edit runs."""


@dataclass(frozen=True)
class Edit:
    """An edit that was tried: what it adds to the options of a compile, by the id of what it edits."""

    id: str
    trial: Trial
    code: CodeEdit | None = None
    graph: GraphPass | None = None

    def added_to(self, options: Options) -> Options:
        """Returns `options` with this edit, in place of one of the same kernel or graph."""
        if self.code is not None:
            return replace(options, edits=merged(options.edits, self.code))
        assert self.graph is not None
        passes = [each for each in options.passes if each.name != self.graph.name]
        return replace(options, passes=(*passes, self.graph))


def merged(edits: Sequence[CodeEdit], new: CodeEdit) -> tuple[CodeEdit, ...]:
    """Returns `edits` and a new one, in place of one of the same text."""
    return (*(each for each in edits if (each.kind, each.original) != (new.kind, new.original)), new)


def editable_text(record: Record, id: str) -> str:
    """Returns the text of a kernel, loop nest, wrapper or graph, to be edited.

    Args:
        record: the record of its compile.
        id: ``0/0:forward_0`` for a kernel, ``0/0:forward_0.loops`` for its loops, ``0/0:forward_0.schedule`` for the
            rewrites of its loop nest, ``0/0:forward.wrapper`` for the function that calls the kernels,
            ``0/0:captured``, ``0/0:forward`` or ``0/0:backward`` for a graph; without the compile, if there is only
            one of that name.  A record of stock `torch.compile` has kernels, and as wrappers Inductor's output code.

    Returns:
        The text as `edit` and `try_edit` take it.

    Raises:
        UsageError: the record has nothing of that id.

    Example::

        print(compiler_core.editable_text(record, "0/0:forward_0"))
    """
    return _shown_text(_find(record, id))


def try_edit(record: Record, id: str, text: str, edits: Sequence[CodeEdit] = ()) -> Edit:
    """Tries an edited text beside the original, on inputs like the recorded ones; nothing is swapped in.

    `Edit.trial` says whether the values are the same, and how long both take.  Kernels run in a separate process,
    where a store outside of their buffers is found.

    Args:
        record: a record that was made in this process.
        id: as for `editable_text`.
        text: the edited text.
        edits: those that the record was made with; the kernel is compared with the generated one.

    Returns:
        The edit with its trial.  `compile` takes `Edit.code` in `edits`; `stock_edited` takes edits of stock's records.

    Raises:
        UsageError: there is nothing of that id, or the text is not one that can take its place.
    """
    replay.check_made_here(record)
    found = _find(record, id)
    if found.kind == "graph":
        return _try_graph(found, text)
    if found.kind == "loops":
        return _try_loops(found, text, edits)
    if found.kind == "schedule":
        return _try_schedule(found, text)
    return (
        _try_wrapper(found, text, edits)
        if found.kind == "wrapper" or _is_stock(found)
        else _try_kernel(found, text, edits)
    )


def edit(compiled: Any, id: str, text: str, *, record: Record | None = None, force: bool = False) -> Trial:
    """Tries an edited text, and swaps it into a compiled function if its values are the same.

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
        UsageError: there is nothing of that id, or the text is not one that can take its place.

    Example::

        text = compiler_core.editable_text(record, "0/0:forward_0")
        print(compiler_core.edit(compiled, "0/0:forward_0", text.replace("tanhf", "fast_tanh"), record=record))
        compiled(x)                                   # runs the edited kernel
        compiler_core.revert(compiled)
    """
    if record is not None and record.engine == "torch":
        raise UsageError(
            "a function of stock torch.compile gets edits inside `with compiler_core.stock_edited([edit])`"
        )
    region = region_of(compiled)
    tried = try_edit(record or record_of(compiled), id, text, region.options.edits)
    if tried.trial.is_right or (force and not tried.trial.fault):
        region.options = tried.added_to(region.options)
        region.forget()
    return tried.trial


def revert(compiled: Any, name: str | None = None) -> None:
    """Removes edits from a compiled function, which compiles again at its next call.

    Args:
        compiled: what `compiler_core.compile` returned.
        name: the kernel (``forward_0``) or graph (``captured``) whose edit is removed; None for all.

    Raises:
        UsageError: `compiled` is something else.
    """
    region = region_of(compiled)
    edits = [each for each in region.options.edits if name is not None and each.name != name]
    passes = [p for p in region.options.passes if not isinstance(p.function, _GraphEdit) or name not in (None, p.at)]
    region.options = replace(region.options, edits=tuple(edits), passes=tuple(passes))
    region.forget()


# ---------------------------------------------------------------- what is edited


@dataclass(frozen=True)
class _Found:
    compile: Compile
    name: str
    kind: Literal["kernel", "loops", "schedule", "wrapper", "graph"]
    item: Kernel | Artifact


def _find(record: Record, id: str) -> _Found:
    compile_id, _, name = id.rpartition(":")
    compiles = [compile_.id for compile_ in record.compiles]
    if compile_id not in ("", *compiles):
        raise UsageError(f"there is no compile {compile_id}; there are {', '.join(compiles) or 'none'}")
    items = [
        each for compile_ in record.compiles if compile_id in ("", compile_.id) for each in _editable(record, compile_)
    ]
    found = [each for each in items if each.name == name]
    if len(found) == 1:
        return found[0]
    if name == "joint":
        raise UsageError(
            "the joint graph is changed by a pass (%%graph_pass NAME --at joint); edit forward or backward"
        )
    if found:
        raise UsageError(f"say which: {', '.join(f'{each.compile.id}:{name}' for each in found)}")
    ours = [each for compile_ in record.compiles for each in compile_.kernels if each.language in ("cpp", "triton")]
    of_parts = [each.name for each in ours if "." in each.name]
    if any(name == each or name.startswith(f"{each}.") for each in of_parts):
        raise UsageError(
            f"{name} is of a part of a graph that runs in parts, or of the function of an operator: only kernels of "
            "whole graphs can be edited"
        )
    kernel, _, what = name.rpartition(".")
    if what == "schedule" and (reason := _unscheduled(record, compile_id, kernel)):
        raise UsageError(reason)
    names = [f"{each.compile.id}:{each.name}" for each in items]
    if what == "schedule":
        named = ", ".join(each.removesuffix(".schedule") for each in names if each.endswith(".schedule"))
        raise UsageError(
            f"there is no kernel {id.removesuffix('.schedule')!r}; kernels with schedules: {named or 'none'}"
        )
    raise UsageError(f"there is nothing {id!r} to edit; there are {', '.join(names) or 'none'}")


def _editable(record: Record, compile_: Compile) -> Iterator[_Found]:
    """Yields what can be edited of a compile."""
    kernels = [each for each in compile_.kernels if each.language in ("cpp", "triton") and "." not in each.name]
    for kernel in kernels:
        yield _Found(compile_, kernel.name, "kernel", kernel)
    if record.engine != "torch":
        for kernel in kernels:
            yield _Found(compile_, f"{kernel.name}.loops", "loops", kernel)
    scheduled = {each.kernel for each in compile_.schedules}
    for kernel in kernels:
        if kernel.name in scheduled:
            yield _Found(compile_, f"{kernel.name}.schedule", "schedule", kernel)
    for wrapper in replay.wrappers(compile_):
        yield _Found(compile_, wrapper.name, "wrapper", wrapper)
    for artifact in compile_.artifacts:
        if artifact.graph and artifact.name in (STOCK_GRAPHS if record.engine == "torch" else GRAPHS):
            yield _Found(compile_, artifact.name, "graph", artifact)


def _unscheduled(record: Record, compile_id: str, name: str) -> str:
    """Returns why a kernel has no schedule in the record; empty if there is no kernel of that name."""
    compiles = [each for each in record.compiles if compile_id in ("", each.id)]
    kernels = [each for compile_ in compiles for each in compile_.kernels if each.name == name]
    if not kernels:
        return ""
    if kernels[0].language == "extern":
        return f"{name} is a kernel of PyTorch, which is called as it is: there is no loop nest of it to schedule"
    whose = "stock torch.compile made it" if record.engine == "torch" else f"it is in {kernels[0].language}"
    scheduled = ", ".join(f"{c.id}:{each.kernel}" for c in compiles for each in c.schedules) or "none"
    return f"the record has no schedule of {name}: {whose}; kernels with schedules are: {scheduled}"


def _shown_text(found: _Found) -> str:
    """Returns the text of what is found, as it is in the record."""
    if isinstance(found.item, Artifact):
        is_stock_graph = found.kind == "graph" and found.item.text.startswith("class ")
        return stock_edits.graph_text(found.item.text) if is_stock_graph else found.item.text
    kernel = found.item
    if found.kind == "loops":
        return _loops_text(found.compile.find(f"{kernel.graph}.loops").text, kernel.name)
    if found.kind == "schedule":
        return _schedule_text(found.compile, kernel.name)
    if _is_stock(found):
        return stock_edits.kernel_text(found.compile, kernel)
    return _kernel_text(_source(found, ()), kernel)


def _loops_text(text: str, name: str) -> str:
    nest = re.search(rf"^{name}: for .*(?:\n    .*)*$", text, re.MULTILINE)
    if nest is None:
        raise UsageError(f"the record has no loops of {name}")
    return nest[0] + "\n"


def _schedule_text(compile_: Compile, name: str) -> str:
    """Returns the rewrites of a kernel's schedule, a line each, with the reasons as comments."""
    made = {each.kernel: each for each in compile_.schedules}
    rewrites = made[name].rewrites[1:]
    return "".join(f"{each.text}  # {each.reason}\n" if each.reason else f"{each.text}\n" for each in rewrites)


def _generated(shown: str, edits: Sequence[CodeEdit], kind: str) -> str:
    """Returns the generated text of what is edited; the record's text may be that of an earlier edit."""
    return next((each.original for each in edits if each.kind == kind and each.text == shown), shown)


def _source(found: _Found, edits: Sequence[CodeEdit]) -> str:
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


def _try_kernel(found: _Found, text: str, edits: Sequence[CodeEdit]) -> Edit:
    kernel, source = found.item, _source(found, edits)
    assert isinstance(kernel, Kernel)
    shown = _kernel_text(source, kernel)
    original = function_text(source, kernel.name) or ""
    text = text.strip("\n") + "\n"
    _check_signature(kernel, original, text)
    made = CodeEdit(kernel.name, original, text)
    with _not_built(kernel.name):
        trial = try_kernel(found.compile, kernel, source, made)
    trial.change = text_change(shown, text)
    return Edit(f"{found.compile.id}:{kernel.name}", trial, code=made)


@contextmanager
def _not_built(name: str) -> Iterator[None]:
    try:
        yield
    except CutawayError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"the edited {name} cannot be built: {error}") from None


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


def _try_loops(found: _Found, text: str, edits: Sequence[CodeEdit]) -> Edit:
    assert isinstance(found.item, Kernel)
    original = _generated(_shown_text(found), edits, "loops")
    with _not_built(found.name):
        loops, trial = try_loops(found.compile, found.item, original, text)
    trial.name, trial.change = found.name, text_change(original, loops.text())
    return Edit(f"{found.compile.id}:{found.name}", trial, code=CodeEdit(found.name, original, loops.text(), "loops"))


def _try_schedule(found: _Found, text: str) -> Edit:
    kernel = found.item
    assert isinstance(kernel, Kernel)
    original = _loops_text(found.compile.find(f"{kernel.graph}.loops").text, kernel.name)
    with _not_built(found.name):
        trial = try_schedule(found.compile, kernel, original, text)
    trial.name, trial.change = found.name, text_change(_shown_text(found), text)
    return Edit(f"{found.compile.id}:{found.name}", trial, code=CodeEdit(found.name, original, text, "schedule"))


def _try_wrapper(found: _Found, text: str, edits: Sequence[CodeEdit]) -> Edit:
    wrapper = found.item if isinstance(found.item, Artifact) else _wrapper_of(found)
    original = _generated(wrapper.text, edits, "wrapper")
    text = text.strip("\n") + "\n"
    if isinstance(found.item, Kernel):
        text = stock_edits.with_kernel(original, found.item, _shown_text(found), text)
    trial = try_wrapper(found.compile, wrapper, original, text)
    trial.name = found.name
    return Edit(f"{found.compile.id}:{found.name}", trial, code=CodeEdit(found.name, original, text, "wrapper"))


def _is_stock(found: _Found) -> bool:
    """Whether it is a kernel in Inductor's output code."""
    if not isinstance(found.item, Kernel):
        return False
    wrappers = [each for each in replay.wrappers(found.compile) if each.name == f"{found.item.graph}.wrapper"]
    return any(is_inductor(each.text) for each in wrappers)


def _wrapper_of(found: _Found) -> Artifact:
    """Returns Inductor's output code, which has the kernel in its text."""
    assert isinstance(found.item, Kernel)
    return found.compile.find(f"{found.item.graph}.wrapper")


def _try_graph(found: _Found, text: str) -> Edit:
    compile_, artifact = found.compile, found.item
    assert isinstance(artifact, Artifact)
    try:
        parse_function(text)
    except GraphPassError as error:
        raise UsageError(f"the edited {artifact.name} cannot be read: {error}") from None
    name = f"edit_{compile_.id.replace('/', '_')}_{artifact.name.replace('.', '_')}"
    original = _shown_text(found)
    if original != artifact.text:
        made = GraphPass(stock_edits.StockGraphEdit(original, text), STOCK_GRAPHS[artifact.name], name)
        trial = try_graph(replace(artifact, text=original), text, torch.compile)
    else:
        at = typing.cast(PassPoint, artifact.name)
        made = GraphPass(_GraphEdit(original, text, artifact.name), at, name)
        trial = try_graph(artifact, text, functools.partial(compile_function, backend=_backend(compile_)))
    return Edit(f"{compile_.id}:{artifact.name}", trial, graph=made)


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


@contextmanager
def stock_edited(edits: Sequence[Edit]) -> Iterator[None]:
    """Within the block, what stock `torch.compile` compiles by Inductor gets edits that were tried (`try_edit`).

    They apply to functions that are compiled in the block; Inductor's caches are off meanwhile.

    Args:
        edits: what `try_edit` returned for a record of stock.

    Raises:
        UsageError: this version of PyTorch has no place for it.

    Example::

        edit = compiler_core.try_edit(record, "0/0:forward.wrapper", text)
        torch.compiler.reset()
        with compiler_core.stock_edited([edit]):
            torch.compile(f)(x)
    """
    passes = [each.graph for each in edits if each.graph is not None]
    codes = [each.code for each in edits if each.code is not None]
    with stock_passes(passes), stock_edits.with_output_code(codes):
        yield
