"""The Python around a compiled forward and backward: autograd, writes to inputs, views of outputs.

It is generated as source for each graph, so that a call does only what that graph needs and a
reader of the record sees exactly what runs.
"""

from __future__ import annotations

import itertools
import linecache
import operator
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch
import torch.fx as fx

from compiler_core import symbols
from compiler_core.codegen.recipe import BadIndex, NotDrawn
from compiler_core.create_graph import Again, Inputs, Rules
from compiler_core.functional import Layout, Mutation, Return, View
from compiler_core.joint import output_nodes
from compiler_core.partition import Partitioned
from compiler_core.record import Compile, Span
from compiler_core.simplify import view_base

Boxed = Callable[[list[Any]], Sequence[Any]]
"""A forward or backward graph as code: flat list of tensors in (it may be emptied), flat sequence out."""

Call = Callable[..., tuple[torch.Tensor, ...]]

_numbers = itertools.count()


@dataclass(frozen=True)
class Glue:
    """The source, and what it is bound to, as plain data."""

    text: str
    views: dict[str, str]
    """For each name of an eager operator, a captured node that calls it."""
    tangents: int
    again: Rules


def written(
    parts: Partitioned, forward: Boxed, backward: Boxed | None, captured: fx.GraphModule, compile_: Compile
) -> tuple[Glue, dict[str, Any]]:
    """The source for these graphs, which goes into the record, and the objects that it names and no text can hold."""
    rules = Rules.of(captured, parts.joint)
    writer = _Writer(parts, rules.refused, getattr(forward, "may_raise", False), _only_kernels(forward, backward))
    text, spans = writer.source()
    artifact = compile_.artifact("wrapper", "autograd", "python", text, spans)
    for key, nodes in writer.sources.items():
        compile_.link(artifact.item(key), [n.meta["item"] for n in nodes if "item" in n.meta], "autograd")
    return Glue(text, writer.views, len(parts.joint.tangents), rules), writer.constants


def bound(
    glue: Glue,
    constants: Mapping[str, Any],
    forward: Boxed,
    backward: Boxed | None,
    backward_graph: Callable[..., Any] | None,
    captured: fx.GraphModule,
    compile_: Compile,
) -> Call:
    """The callable that `glue` is the source of.

    `captured` runs instead when the graph writes to an input that shares memory with another, and once more where
    the gradients are to be differentiated; `backward_graph` where `backward` cannot take what it is given.
    """
    targets = {node.name: node.target for node in captured.graph.nodes}
    scope = {name: targets[node] for name, node in glue.views.items()} | {
        **constants,
        "torch": torch,
        "below_autograd": torch._C._AutoDispatchBelowADInplaceOrView,
        "without_autocast": torch._C._DisableAutocast,
        "transforms_are_active": torch._C._are_functorch_transforms_active,
        "share_memory": share_memory,
        "laid_out": laid_out,
        "Inputs": Inputs,
        "again": Again(captured, glue.again, compile_),
        "Kept": Kept,
        "forward_ad": torch.autograd.forward_ad,
        "forward_graph": forward,
        "backward_graph": backward and backward_graph and _unless_batched(backward, backward_graph, glue.tangents),
        "run_eagerly": captured.forward,
        "BadIndex": BadIndex,
        "NotDrawn": NotDrawn,
        "as_eager_says": as_eager_says,
    }
    filename = f"<cutaway {compile_.id}:autograd {next(_numbers)}>"
    exec(compile(glue.text, filename, "exec"), scope)
    call: Call = scope["call"]
    # so that a traceback shows the lines, for as long as they can run
    linecache.cache[filename] = (len(glue.text), None, glue.text.splitlines(keepends=True), filename)
    weakref.finalize(call, linecache.cache.pop, filename, None)
    return call


def _only_kernels(forward: Boxed, backward: Boxed | None) -> frozenset[str]:
    """Those of the two graphs that call nothing that autograd would notice."""
    graphs = {"forward": forward, "backward": backward}
    return frozenset(name for name, graph in graphs.items() if getattr(graph, "only_kernels", False))


def _unless_batched(backward: Boxed, graph: Callable[..., Any], count: int) -> Boxed:
    """`backward`; the graph itself where vmap (``is_grads_batched``) hands in tangents without memory of their own."""
    return lambda inputs: graph(*inputs) if any(map(_is_batched, inputs[-count:])) else backward(inputs)


def _is_batched(tangent: torch.Tensor) -> bool:
    of_vmap = torch._C._functorch
    return of_vmap.is_legacy_batchedtensor(tangent) or of_vmap.is_functorch_wrapped_tensor(tangent)


def share_memory(written: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor in `written` lies in the same storage as another one in either list."""
    storages = {t.untyped_storage()._cdata for t in written}
    return len(storages) < len(written) or any(t.untyped_storage()._cdata in storages for t in others)


def laid_out(
    tangent: torch.Tensor | None, shape: Sequence[int], stride: tuple[int, ...], dtype: torch.dtype, device: str
) -> torch.Tensor:
    """The gradient of an output, which has other strides, with those that the backward was compiled for; zeros where
    there is none."""
    if tangent is None:
        return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
    if _is_batched(tangent):
        order = sorted(range(len(stride)), key=lambda d: -stride[d])
        return tangent.permute(order).contiguous().permute([order.index(d) for d in range(len(stride))])
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(tangent)


def as_eager_says(run: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """What eager PyTorch does where a kernel met an index that is out of range: it raises, and says which.  Or where
    no kernel of ours may draw random numbers: it draws them."""
    try:
        return run(*inputs)
    except Exception as error:
        error.__context__ = None
        raise


class Kept:
    """What a graph with several differentiable outputs saved, for backwards that go through them one by one.

    Eager PyTorch has nodes of its own behind each output; here one node is behind all of them, and
    PyTorch frees what it saved after the first backward.  `needed`: for each output the places of
    the saved values that its gradient reads, which must not have been written to since.
    """

    def __init__(self, saved: Sequence[torch.Tensor], needed: Sequence[Sequence[int]]) -> None:
        self._saved: Sequence[torch.Tensor] | None = saved
        self._versions = [t._version for t in saved]
        self._needed = needed
        self._through = [False] * len(needed)

    def again(self, absent: Sequence[bool], error: RuntimeError) -> Sequence[torch.Tensor]:
        """The saved values, where PyTorch gave `error` instead, for the outputs that are not `absent`."""
        given = [i for i, is_absent in enumerate(absent) if not is_absent]
        if self._saved is None or any(self._through[i] for i in given):
            raise error
        for at in {at for i in given for at in self._needed[i]}:
            if self._saved[at]._version != self._versions[at]:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation"
                ) from error
        return self._saved

    def passed(self, absent: Sequence[bool]) -> None:
        """PyTorch's own saved values served the outputs that are not `absent`; after the last, let go.

        Those served by `again` are not noted: whether the caller retains the graph cannot be seen there.
        """
        self._through = [t or not a for t, a in zip(self._through, absent, strict=True)]
        if all(self._through):
            self._saved = None


class _Writer:
    """Writes the source; `views` are the operators that it names, by captured nodes that call them, `constants` the
    other objects, `sources` the nodes behind its lines."""

    def __init__(self, parts: Partitioned, not_again: str, may_raise: bool, only_kernels: frozenset[str]) -> None:
        self.parts, self.joint, self._not_again, self._may_raise = parts, parts.joint, not_again, may_raise
        self._only_kernels = only_kernels
        self.views: dict[str, str] = {}
        self.constants: dict[str, Any] = {}
        self._operators: dict[str, Any] = {}
        self.sources: dict[str, list[fx.Node]] = {}
        self._lines: list[str] = []
        self._spans: list[Span] = []

    def source(self) -> tuple[str, list[Span]]:
        if self.parts.backward is not None:
            self._function_class()
        self._call()
        return "\n".join(self._lines) + "\n", self._spans

    def _line(self, depth: int, text: str, key: str = "", nodes: Sequence[fx.Node | None] = ()) -> None:
        self._lines.append("    " * depth + text if text else "")
        if key:
            self._spans.append(Span(key, len(self._lines), len(self._lines)))
            self.sources[key] = [n for n in nodes if n is not None]

    def _run(self, depth: int, graph: str, results: Sequence[str], inputs: Sequence[str], nodes: Sequence[Any]) -> None:
        """The call of a compiled graph; below autograd, so that PyTorch notes neither views nor gradients."""
        call = f"{_targets(results)}{graph}_graph([{', '.join(inputs)}])"
        if graph in self._only_kernels:  # which PyTorch does not see anyway
            self._line(depth, call, graph, nodes)
            return
        self._line(depth, f"with below_autograd(){', without_autocast()' if self.joint.autocast else ''}:")
        self._line(depth + 1, call, graph, nodes)

    # ---- the autograd function ---------------------------------------------------------

    def _function_class(self) -> None:
        saved = self.parts.saved
        count = f"{len(saved)} tensor{'' if len(saved) == 1 else 's'}"
        self._line(0, "class Compiled(torch.autograd.Function):")
        self._line(1, f'"""Saves {count}, {self.parts.saved_bytes:,} bytes: {", ".join(saved) or "none"}."""')
        self._line(0, "")
        self._forward()
        self._line(0, "")
        self._backward()
        self._line(0, "")
        self._line(0, "")
        self._line(0, "apply = super(torch.autograd.Function, Compiled).apply  # without what functorch alone needs")
        self._line(0, "Compiled._backward_cls.apply = Compiled.backward  # without a choice between it and a vjp")
        self._line(0, "")
        self._line(0, "")

    def _forward(self) -> None:
        joint, nodes = self.joint, output_nodes(self.parts.forward.graph)
        self._line(1, "@staticmethod")
        self._line(1, f"def forward(ctx, {', '.join(joint.primals)}):")
        written = {m.primal for m in joint.mutations}
        kept_inputs = [n for i, n in enumerate(joint.primals) if i not in written]
        self._line(2, f"ctx.inputs = Inputs({_tuple(kept_inputs)})")
        if self.parts.symbols:
            self._read_symbols(2, self.parts.symbols)
            self._line(2, f"ctx.symbols = {_tuple(self.parts.symbols)}")
        self._run(2, "forward", [*joint.outputs, *self.parts.saved], joint.primals, nodes)
        saved = nodes[len(joint.outputs) :]
        self._early_writes()
        self._tie_versions()
        self._line(2, f"ctx.save_for_backward({', '.join(self.parts.saved)})", "saved", saved)
        if self._one_by_one:
            # the node must not hold its own outputs; a detached one shares their version counter
            kept = [f"{n}.detach()" if n in joint.outputs else n for n in self.parts.saved]
            self._line(2, f"ctx.kept = Kept({_tuple(kept)}, {self._needed()})")
        plain = [n for n, d in zip(joint.outputs, joint.differentiable, strict=True) if not d]
        if plain:
            self._line(2, f"ctx.mark_non_differentiable({', '.join(plain)})")
        self._line(2, "ctx.set_materialize_grads(False)")
        self._line(2, f"return {_tuple(joint.outputs)}")

    def _early_writes(self) -> None:
        """Writes to inputs that have no gradient come before values are saved: there, the second run of a checkpoint
        ends, and eager PyTorch has written by then."""
        early = [m for m in self.joint.mutations if not self.joint.differentiable[m.output]]
        self._write_together(2, [m for m in early if m.under_no_grad])
        if visible := [m for m in early if not m.under_no_grad]:
            self._line(2, "with torch.enable_grad():")
            self._write_together(3, visible)

    def _tie_versions(self) -> None:
        """Where an output is a view of a saved value, save a view of that output in its place: then
        PyTorch notices when somebody writes to the output before the backward."""
        for output in output_nodes(self.parts.forward.graph)[: len(self.joint.outputs)]:
            base = view_base(output)
            if base is not output and base.name in self.parts.saved:
                at = Layout.of(base.meta["val"])
                window = f"{_numbers_text(at.shape)}, {_numbers_text(at.stride)}, {base.name}.storage_offset()"
                self._line(2, f"{base.name} = {output.name}.detach().as_strided({window})")

    def _backward(self) -> None:
        joint, backward = self.joint, self.parts.backward
        assert backward is not None
        tangents = iter(joint.tangents)
        received = [next(tangents) if d else f"_{n}" for n, d in zip(joint.outputs, joint.differentiable, strict=True)]
        self._line(1, "@staticmethod")
        self._line(1, f"def backward(ctx, {', '.join(received)}):")
        self._line(2, f"if {' and '.join(f'{t} is None' for t in joint.tangents)}:")
        self._line(3, f"return {_tuple(['None'] * len(joint.primals))}")
        if not self._not_again:
            self._line(2, "if torch.is_grad_enabled() and ctx.inputs.unchanged():  # the caller said create_graph=True")
            self._line(3, f"return again.gradients(ctx, {_tuple(joint.tangents)})")
        absent = self._absent_gradients()
        flags = [f"no_{t}" for t in joint.tangents]
        if absent or self._one_by_one:
            self._line(2, f"{_targets(flags)}{_tuple(f'{t} is None' for t in joint.tangents)}")
        if self.parts.symbols:
            self._line(2, f"{_targets(self.parts.symbols)}ctx.symbols")
        for name, at in zip(joint.tangents, joint.layouts, strict=True):
            shape, stride = _numbers_text(at.shape), _numbers_text(at.stride)
            self._line(2, f"if {name} is None or {name}.stride() != {stride}:")
            self._line(3, f"{name} = laid_out({name}, {shape}, {stride}, {at.dtype}, '{at.device}')")
        self._read_saved(flags)
        nodes = output_nodes(backward.graph)
        results = [f"gradient_{i}" if n is not None else "_" for i, n in enumerate(nodes, 1)]
        self._run(2, "backward", results, [*self.parts.saved, *self.parts.symbols, *joint.tangents], nodes)
        for line in absent:
            self._line(2, line)
        gradients = ["None" if r == "_" else r for r in results]
        self._line(2, f"if torch.is_grad_enabled():  # {self._not_again or 'an input was written to'}")
        self._line(3, f"return again.once(ctx, {_tuple(gradients)})")
        self._line(2, "ctx.inputs.let_go()")
        self._line(2, f"return {_tuple(gradients)}")

    @property
    def _one_by_one(self) -> bool:
        """Whether a backward may go through one output and a later one through another."""
        return len(self.joint.tangents) > 1 and bool(self.parts.saved)

    def _read_saved(self, flags: Sequence[str]) -> None:
        targets = _targets(self.parts.saved)
        if not self._one_by_one:
            if self.parts.saved:
                self._line(2, f"{targets}ctx.saved_tensors")
            return
        self._line(2, "try:")
        self._line(3, f"{targets}ctx.saved_tensors")
        self._line(2, "except RuntimeError as error:  # an earlier backward went through other outputs")
        self._line(3, f"{targets}ctx.kept.again({_tuple(flags)}, error)")
        self._line(2, "else:")
        self._line(3, f"ctx.kept.passed({_tuple(flags)})")

    def _needed(self) -> tuple[tuple[int, ...], ...]:
        """For each tangent, the places of the saved values that meet it in the backward graph."""
        assert self.parts.backward is not None
        graph, saved = self.parts.backward.graph, self.parts.saved
        tangents = _behind(graph, set(self.joint.tangents))
        values = _behind(graph, set(saved))
        met: dict[str, set[str]] = {t: set() for t in self.joint.tangents}
        for node in graph.nodes:
            for tangent in tangents[node]:
                met[tangent].update(*(values[n] for n in node.all_input_nodes if not tangents[n]))
        return tuple(tuple(i for i, s in enumerate(saved) if s in met[t]) for t in self.joint.tangents)

    def _absent_gradients(self) -> list[str]:
        """Statements that drop the gradients which eager PyTorch would not have made, because none
        of the outputs that reach them got a gradient."""
        lines = []
        for i, node in enumerate(self.joint.gradients):
            makers = [t for t, reached in zip(self.joint.tangents, self.joint.reaches, strict=True) if i in reached]
            if node is not None and len(makers) < len(self.joint.tangents):
                condition = " and ".join(f"no_{t}" for t in makers)
                lines.append(f"gradient_{i + 1} = None if {condition} else gradient_{i + 1}")
        return lines

    # ---- the call ----------------------------------------------------------------------

    def _call(self) -> None:
        joint = self.joint
        self._line(0, f"def call({', '.join(joint.primals)}):")
        self._line(1, "if forward_ad._current_level >= 0:  # tangents go along with the values, which no kernel sees")
        self._line(2, f"return run_eagerly({', '.join(joint.primals)})")
        if joint.mutations:
            self._memory_check()
        views = [v for r in joint.returns for v in r.views]
        self._read_symbols(1, symbols.names(n for v in views for n in _leaves((v.args, v.kwargs))))
        if self._may_raise:
            self._line(1, "try:")
        depth = 2 if self._may_raise else 1
        if self.parts.backward is not None:
            applied = "(Compiled.apply if transforms_are_active() else apply)"
            self._line(depth, f"{_targets(joint.outputs)}{applied}({', '.join(joint.primals)})", "call")
        else:
            self._run(depth, "forward", joint.outputs, joint.primals, output_nodes(self.parts.forward.graph))
        if self._may_raise:
            self._line(1, "except (BadIndex, NotDrawn):")
            self._line(2, f"return as_eager_says(run_eagerly, {_tuple(joint.primals)})")
        late = [m for m in joint.mutations if joint.differentiable[m.output] or self.parts.backward is None]
        for mutation in late:
            if mutation.under_no_grad:
                self._line(1, "with torch.no_grad():")
            self._write(2 if mutation.under_no_grad else 1, mutation)
        results = [self._returned(i, r) for i, r in enumerate(joint.returns, 1)]
        self._line(1, f"return {_tuple(results)}")

    def _write(self, depth: int, mutation: Mutation) -> None:
        self._line(depth, f"{self.joint.primals[mutation.primal]}.copy_({self.joint.outputs[mutation.output]})")

    def _write_together(self, depth: int, mutations: Sequence[Mutation]) -> None:
        """Writes to tensors of one kind in one call: a net with batch norm has some sixty."""
        kinds: dict[Any, list[Mutation]] = {}
        nodes = output_nodes(self.parts.forward.graph)
        for mutation in mutations:
            value = nodes[mutation.output].meta["val"]
            kinds.setdefault((value.dtype, value.device), []).append(mutation)
        for alike in kinds.values():
            if len(alike) == 1:
                self._write(depth, alike[0])
            else:
                targets = ", ".join(self.joint.primals[m.primal] for m in alike)
                values = ", ".join(self.joint.outputs[m.output] for m in alike)
                self._line(depth, f"torch._foreach_copy_([{targets}], [{values}])")

    def _read_symbols(self, depth: int, names: Iterable[str]) -> None:
        for name, origin in self.joint.origins(names).items():
            self._line(depth, f"{name} = {origin}")

    def _memory_check(self) -> None:
        written = [m.primal for m in self.joint.mutations]
        others = [n for i, n in enumerate(self.joint.primals) if i not in written and i not in self.joint.numbers]
        names = [self.joint.primals[i] for i in written]
        self._line(1, f"if share_memory({_tuple(names)}, {_tuple(others)}):")
        self._line(2, f"return run_eagerly({', '.join(self.joint.primals)})")

    def _returned(self, number: int, returned: Return) -> str:
        bases = self.joint.primals if returned.base == "primal" else self.joint.outputs
        name = bases[returned.index]
        for view in returned.views:
            made = f"returned_{number}"
            depth = 1
            if view.grad != torch.is_grad_enabled():
                self._line(1, f"with torch.set_grad_enabled({view.grad}):")
                depth = 2
            self._line(depth, f"{made} = {self._view(view, name)}", f"{made}.{view.node.name}", [view.node])
            name = made
        return name

    def _view(self, view: View, base: str) -> str:
        node = view.node
        rest = [self._literal(a) for a in view.args] + [f"{k}={self._literal(v)}" for k, v in view.kwargs.items()]
        if node.target is operator.getitem:
            return f"{base}[{rest[0]}]"
        if node.op == "call_method":
            return f"{base}.{node.target}({', '.join(rest)})"
        return f"{self._name(node)}({', '.join([base, *rest])})"

    def _name(self, node: fx.Node) -> str:
        """A name for the eager operator that `node` calls, unlike that of any node."""
        name = "eager_" + getattr(node.target, "__name__", "view").strip("_").replace(".", "_")
        while name in self._operators and self._operators[name] is not node.target:
            name += "_"
        self._operators[name] = node.target
        self.views[name] = node.name
        return name

    def _literal(self, value: Any) -> str:
        """`value` as Python source; what has none gets a name."""
        if symbols.is_symbolic(value):
            return symbols.text(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, EllipsisType):
            return "..."
        if isinstance(value, slice):
            return f"slice({', '.join(map(self._literal, (value.start, value.stop, value.step)))})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._literal, value))}]"
        if isinstance(value, tuple):
            return _tuple(map(self._literal, value))
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name


def _tuple(names: Any) -> str:
    items = list(names)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _numbers_text(numbers: Sequence[Any]) -> str:
    return _tuple(map(symbols.text, numbers))


def _leaves(value: Any) -> list[Any]:
    """What stands in nested arguments."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, slice):
        value = [value.start, value.stop, value.step]
    return [leaf for v in value for leaf in _leaves(v)] if isinstance(value, (list, tuple)) else [value]


def _targets(names: Sequence[str]) -> str:
    """The left side of an assignment that unpacks `names`; nothing where there are none."""
    return f"{', '.join(names)}{',' if len(names) == 1 else ''} = " if names else ""


def _behind(graph: fx.Graph, names: set[str]) -> dict[fx.Node, set[str]]:
    """For each node, those of the nodes called `names` that it depends on, itself included."""
    behind: dict[fx.Node, set[str]] = {}
    for node in graph.nodes:
        behind[node] = {node.name} if node.name in names else set()
        behind[node].update(*(behind[n] for n in node.all_input_nodes))
    return behind
