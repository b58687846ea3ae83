"""The Python around a compiled forward and backward, as source text.

It is written for each graph, so that a call does only what that graph needs and a reader of the record sees exactly
what runs; `autograd` says what its names mean.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.joint import output_nodes
from compiler_core.autograd.partition import Partitioned
from compiler_core.autograd.trace.functionalize import BASE, Layout, Mutation, Return, View
from compiler_core.codegen.wrapper.executable import Recipe, Short
from compiler_core.codegen.wrapper.writer import tuple_text
from compiler_core.records import Span
from compiler_core.support import fx_symbols
from compiler_core.support.operator_facts import view_base
from compiler_core.support.size_expr import are_contiguous


class Writer:
    """Writes the source; `views` are the operators that it names, by captured nodes that call them, `constants` the
    other objects, `sources` the nodes behind its lines."""

    def __init__(self, parts: Partitioned, not_again: str, recipes: Mapping[str, Recipe], warns: bool) -> None:
        self.parts, self.joint, self._not_again, self._recipes = parts, parts.joint, not_again, recipes
        self._may_raise = "forward" in recipes and recipes["forward"].may_raise
        self._in_place = recipes["forward"].in_place if "forward" in recipes else []
        self._warns = warns
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
            self._span(key, nodes)

    def _span(self, key: str, nodes: Sequence[fx.Node | None], lines: int = 1) -> None:
        """What the last so many lines are."""
        self._spans.append(Span(key, len(self._lines) - lines + 1, len(self._lines)))
        self.sources[key] = [n for n in nodes if n is not None]

    # ---- the compiled graphs -----------------------------------------------------------

    def _run_forward(self, depth: int, results: Sequence[str]) -> None:
        inputs, nodes = self.joint.primals, output_nodes(self.parts.forward.graph)
        if short := self._short("forward", inputs):
            self._written_out(depth, "forward", short, results, nodes)
        else:
            self._below_autograd(depth, "forward", f"{_targets(results)}forward_graph([{', '.join(inputs)}])", nodes)

    def _run_backward(self, results: Sequence[str], nodes: Sequence[fx.Node | None], flags: Sequence[str]) -> None:
        inputs = [*self.parts.saved, *self.parts.tapes, *self.parts.symbols, *self.joint.tangents]
        short = self._short("backward", inputs)
        saved, part = self.parts.saved, f"[:{len(self.parts.saved)}]" if self.parts.watched else ""
        read = f"{_targets(saved)}{{}}{part if saved else ''}"
        if not short:
            taken = [f"*{{}}{part}"] if self._saves else []
            read = f"inputs = [{', '.join(taken + inputs[len(saved) :])}]"
        if self._saves or not short:
            self._read_saved(read, flags)
        self._line(2, "if not (create_graph or graph_is_retained()):  # what was saved is freed as it goes on")
        self._line(3, "ctx.maybe_clear_saved_tensors()")
        self._line(3, "ctx.primals = None")
        if self._one_by_one:
            self._line(3, f"ctx.kept.passed({tuple_text(flags)})")
        self._let_go_of_tapes()
        if not short:
            kernels_can = self._kernels_can(f"inputs[:{len(saved)}]")
            self._line(2, f"run = backward_graph if {kernels_can} else plain_backward")
            self._below_autograd(2, "backward", f"{_targets(results)}run(inputs)", nodes)
            return
        kernels_can = self._kernels_can(tuple_text(saved))
        self._line(2, f"if {kernels_can}:")
        self._written_out(3, "backward", short, results, nodes)
        self._line(2, "else:")
        self._line(3, f"{_targets(results)}plain_backward([{', '.join(inputs)}])")

    def _read_tapes(self, flags: Sequence[str]) -> None:
        if self.parts.tapes:
            if self._one_by_one:
                self._line(2, f"ctx.kept.check({tuple_text(flags)})")
            self._line(2, f"{_targets(self.parts.tapes)}ctx.tapes or freed()")

    def _let_go_of_tapes(self) -> None:
        """Where no backward follows; what autograd keeps on them goes as they are used."""
        depth = 3
        if self.parts.tapes and self._one_by_one:
            self._line(3, "if ctx.kept.is_over:")
            depth = 4
        for tape in self.parts.tapes:
            self._line(depth, f"{tape}.is_last = True")
        if self.parts.tapes:
            self._line(depth, "ctx.tapes = None")

    def _short(self, graph: str, inputs: Sequence[str]) -> Short | None:
        """A compiled graph whose statements may stand here, where its inputs have the names that it has for them."""
        short = self._recipes[graph].short if graph in self._recipes else None
        return short if short and short.inputs == list(inputs) else None

    def _written_out(
        self, depth: int, graph: str, short: Short, results: Sequence[str], nodes: Sequence[fx.Node | None]
    ) -> None:
        renamed = {new: old for new, old in zip(results, short.results, strict=True) if new not in (old, "_")}
        lines = [*short.statements]
        if renamed:
            lines.append(f"{', '.join(renamed)} = {', '.join(renamed.values())}")
        for line in lines or ["pass"]:
            self._line(depth, line)
        self._span(graph, nodes, max(1, len(lines)))

    def _below_autograd(self, depth: int, graph: str, call: str, nodes: Sequence[fx.Node | None]) -> None:
        """The call of a compiled graph; below autograd, so that PyTorch notes neither views nor gradients."""
        if graph in self._recipes and self._recipes[graph].only_kernels:  # which PyTorch does not see anyway
            self._line(depth, call, graph, nodes)
            return
        self._line(depth, f"with below_autograd(){', without_autocast()' if self.joint.autocast else ''}:")
        self._line(depth + 1, call, graph, nodes)

    def _kernels_can(self, saved: str) -> str:
        """Whether the compiled backward can take the tangents, which have no memory of their own where vmap hands them
        in, and what was `saved`, which may have come back as other kinds of tensors."""
        names = self.joint.tangents
        memory = f"has_memory({names[0]})" if len(names) == 1 else f"all(map(has_memory, {tuple_text(names)}))"
        if not self.parts.saved:
            return memory
        self._line(2, f"same_kinds = ctx.kinds is None or ctx.kinds == kinds({saved})")
        return f"same_kinds and {memory}"

    # ---- the autograd function; it sets what PyTorch's methods for that set, which are in Python -------------------

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
        self._node_class()
        self._line(0, "")
        self._line(0, "")

    def _node_class(self) -> None:
        """The class of what PyTorch makes in each call; places of its own are quicker than a dict."""
        places = ["primals"] + ["versions"] * (not self._not_again)
        places += ["symbols"] * bool(self.parts.symbols) + ["kept"] * self._one_by_one
        places += ["tapes"] * bool(self.parts.tapes) + ["kinds"] * bool(self.parts.saved)
        self._line(0, "")
        self._line(0, "")
        self._line(0, "class CompiledBackward(Compiled._backward_cls):")
        self._line(1, f"__slots__ = {places!r}")
        self._line(1, "apply = Compiled.backward  # without a choice between it and a vjp")
        self._line(0, "")
        self._line(0, "")
        self._line(0, "Compiled._backward_cls = CompiledBackward")

    def _forward(self) -> None:
        joint = self.joint
        self._line(1, "@staticmethod")
        self._line(1, f"def forward(ctx, {', '.join(joint.primals)}):")
        self._inputs_kept()
        if self.parts.symbols:
            self._read_symbols(2, self.parts.symbols)
            self._line(2, f"ctx.symbols = {tuple_text(self.parts.symbols)}")
        self._run_forward(2, [*joint.outputs, *self.parts.saved, *self.parts.tapes])
        saved = output_nodes(self.parts.forward.graph)[len(joint.outputs) :][: len(self.parts.saved)]
        if self.parts.tapes:
            self._line(2, f"ctx.tapes = {tuple_text(self.parts.tapes)}")
        self._early_writes()
        self._tie_versions()
        if saved or self.parts.watched:
            self._line(2, f"ctx.to_save = {tuple_text((*self.parts.saved, *self.parts.watched))}", "saved", saved)
        if saved:  # hooks may give the backward other tensors
            self._line(2, f"ctx.kinds = kinds({tuple_text(self.parts.saved)}) if saved_tensors_hooks(True) else None")
        if self._one_by_one:
            # the node must not hold its own outputs; a detached one shares their version counter
            names = (*self.parts.saved, *self.parts.watched)
            kept = [f"{n}.detach()" if n in joint.outputs else n for n in names]
            self._line(2, f"ctx.kept = Kept({tuple_text(kept)}, {self._needed()}, {self.joint.shared})")
        plain = [n for n, d in zip(joint.outputs, joint.differentiable, strict=True) if not d]
        if plain:
            self._line(2, f"ctx.non_differentiable = {tuple_text(plain)}")
        self._line(2, "ctx.materialize_grads = False")
        self._line(2, f"return {tuple_text(joint.outputs)}")

    def _inputs_kept(self) -> None:
        """For gradients that are differentiated themselves; but the inputs that the graph writes to."""
        written = {m.primal for m in self.joint.mutations}
        kept = [i for i in range(len(self.joint.primals)) if i not in written]
        self._line(2, f"ctx.primals = {tuple_text(self.joint.primals[i] for i in kept)}")
        if not self._not_again:
            tensors = [self.joint.primals[i] for i in kept if i not in self.joint.numbers]
            self._line(2, "try:")
            self._line(3, f"ctx.versions = {tuple_text(f'{t}._version' for t in tensors)}")
            self._line(2, "except RuntimeError:  # of inference tensors nobody knows")
            self._line(3, "ctx.versions = ()")

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
        self._line(3, f"return {tuple_text(['None'] * len(joint.primals))}")
        self._line(2, "create_graph = is_grad_enabled()")
        if not self._not_again:
            self._line(2, "if create_graph and unchanged(ctx):")
            self._line(3, f"return again.gradients(ctx, {tuple_text(joint.tangents)})")
            self._line(2, "if is_anomaly_enabled() and unchanged(ctx):")
            self._line(3, f"return again.checked(ctx, {tuple_text(joint.tangents)})")
        absent = self._absent_gradients()
        flags = [f"no_{t}" for t in joint.tangents]
        if absent or self._one_by_one:
            self._line(2, f"{_targets(flags)}{tuple_text(f'{t} is None' for t in joint.tangents)}")
        if self.parts.symbols:
            self._line(2, f"{_targets(self.parts.symbols)}ctx.symbols")
        self._tangents_laid_out()
        nodes = output_nodes(backward.graph)
        results = [f"gradient_{i}" if n is not None else "_" for i, n in enumerate(nodes, 1)]
        self._check_freed(flags)
        self._read_tapes(flags)
        self._run_backward(results, nodes, flags)
        for line in (*self._views_apart(results), *absent):
            self._line(2, line)
        gradients = ["None" if r == "_" else r for r in results]
        self._line(2, f"if create_graph:  # {self._not_again or 'an input was written to'}")
        self._line(3, f"return again.once(ctx, {tuple_text(gradients)})")
        self._line(2, f"return {tuple_text(gradients)}")

    def _tangents_laid_out(self) -> None:
        """Give the tangents the strides that the backward was compiled for."""
        joint = self.joint
        if joint.views:
            self._line(2, "laid_out_anew = False")
        self._line(2, "try:")
        anew = []
        for name, at in zip(joint.tangents, joint.layouts, strict=True):
            shape, stride = _numbers_text(at.shape), _numbers_text(at.stride)
            absent_too = f"{name} is None or " if len(joint.tangents) > 1 else ""
            differs = f"{name}.stride() != {stride}"
            if are_contiguous(at.shape, at.stride):
                differs = f"not {name}.is_contiguous()"
            rest = f"{shape}, {stride}, {at.dtype}, '{at.device}')"
            anew.append(f"{name} = laid_out(dense({name}), {rest}")
            self._line(3, f"if {absent_too}{differs}:")
            self._line(4, f"{name} = laid_out({name}, {rest}")
            if joint.views:
                self._line(4, "laid_out_anew = True")
        self._line(2, "except RuntimeError:  # sparse tensors have no strides")
        self._line(3, f"if (made := again.of_sparse(ctx, {tuple_text(joint.tangents)})) is not None:")
        self._line(4, "return made")
        for line in [*anew, "laid_out_anew = True"] if joint.views else anew:
            self._line(3, line)

    def _views_apart(self, results: Sequence[str]) -> Iterator[str]:
        """Statements that copy gradients which are views of one value, where eager's AccumulateGrad copies them."""
        for at in self.joint.views:
            if results[at] != "_":
                yield f"if laid_out_anew: {results[at]} = {results[at]}.clone()"

    @property
    def _one_by_one(self) -> bool:
        """Whether a backward may go through one output and a later one through another."""
        return len(self.joint.tangents) > 1 and bool(self._saves or self.parts.tapes or any(self.joint.shared))

    @property
    def _saves(self) -> bool:
        return bool(self.parts.saved or self.parts.watched)

    def _check_freed(self, flags: Sequence[str]) -> None:
        """Where nothing is saved of which autograd would say so: raise where eager PyTorch has freed what it saved."""
        if self._saves or self.parts.tapes or not any(self.joint.shared):
            return
        check = f"ctx.kept.check({tuple_text(flags)})" if self._one_by_one else "freed()"
        self._line(2, "if ctx.primals is None:")
        self._line(3, check)

    def _read_saved(self, line: str, flags: Sequence[str]) -> None:
        """In a list that the graph empties, or by names that it deletes: nothing else holds what was saved."""
        if not self._one_by_one:
            self._line(2, line.format("ctx.saved_tensors"))
            return
        self._line(2, "try:")
        self._line(3, line.format("ctx.saved_tensors"))
        self._line(2, "except RuntimeError as error:  # an earlier backward went through other outputs")
        self._line(3, line.format(f"ctx.kept.again({tuple_text(flags)}, error)"))

    def _needed(self) -> tuple[tuple[int, ...], ...]:
        """For each tangent, the places of the saved values that meet it in the backward graph."""
        met: dict[str, set[str]] = {t: set() for t in self.joint.tangents}
        for tangents, saved in self._meetings():
            for tangent in tangents:
                met[tangent] |= saved
        for name in self.parts.watched:
            for at in self.joint.guarded[name]:
                met[self.joint.tangents[at]].add(name)
        names = (*self.parts.saved, *self.parts.watched)
        return tuple(tuple(i for i, s in enumerate(names) if s in met[t]) for t in self.joint.tangents)

    def _meetings(self) -> Iterator[tuple[set[str], set[str]]]:
        """For each node of the backward, the tangents behind it and the saved values behind what it reads beside."""
        assert self.parts.backward is not None
        graph = self.parts.backward.graph
        kept = {*self.parts.saved, *self.parts.tapes}
        tangents, saved = _behind(graph, set(self.joint.tangents)), _behind(graph, kept)
        for node in graph.nodes:
            yield tangents[node], set().union(*(saved[n] for n in node.all_input_nodes if not tangents[n]))

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
        if self._warns:
            self._line(1, "warn()")
        views = [v for r in joint.returns for v in r.views]
        self._read_symbols(1, fx_symbols.names(n for v in views for n in _leaves((v.args, v.kwargs))))
        if self._may_raise:
            self._line(1, "try:")
        depth = 2 if self._may_raise else 1
        if self.parts.backward is not None:
            applied = "(Compiled.apply if transforms_are_active() else apply)"
            self._line(depth, f"{_targets(joint.outputs)}{applied}({', '.join(joint.primals)})", "call")
        else:
            self._run_forward(depth, joint.outputs)
        if self._may_raise:
            self._line(1, "except (BadIndex, NotDrawn):")
            self._line(2, f"return as_eager_says(run_eagerly, {tuple_text(joint.primals)})")
        late = [m for m in joint.mutations if joint.differentiable[m.output] or self.parts.backward is None]
        if done := [m for m in late if joint.primals[m.primal] in self._in_place]:
            names = tuple_text(joint.primals[m.primal] for m in done)
            self._line(1, f"torch.autograd.graph.increment_version({names})  # kernels wrote to them")
        for mutation in (m for m in late if m not in done):
            if mutation.under_no_grad:
                self._line(1, "with torch.no_grad():")
            self._write(2 if mutation.under_no_grad else 1, mutation)
        results = [self._returned(i, r) for i, r in enumerate(joint.returns, 1)]
        self._line(1, f"return {tuple_text(results)}")

    def _write(self, depth: int, mutation: Mutation) -> None:
        target, value = self.joint.primals[mutation.primal], self.joint.outputs[mutation.output]
        resized = f".resize_({value}.shape)" if mutation.resized else ""
        self._line(depth, f"{target}{resized}.copy_({value})")

    def _write_together(self, depth: int, mutations: Sequence[Mutation]) -> None:
        """Writes to tensors of one kind in one call: a net with batch norm has some sixty."""
        kinds: dict[Any, list[Mutation]] = {}
        nodes = output_nodes(self.parts.forward.graph)
        for mutation in mutations:
            value = nodes[mutation.output].meta["val"]
            alone = mutation.primal if mutation.resized else None
            kinds.setdefault((value.dtype, value.device, alone), []).append(mutation)
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
        self._line(1, f"if share_memory({tuple_text(names)}, {tuple_text(others)}):")
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
            if "said" in view.node.meta:  # its warnings were given
                self._line(depth, "with unheard():")
                depth += 1
            self._line(depth, f"{made} = {self._view(view, name)}", f"{made}.{view.node.name}", [view.node])
            name = made
        return name

    def _view(self, view: View, base: str) -> str:
        node = view.node
        if view.step is not None:
            return view.step.text(base, self._literal)
        rest = [base if a is BASE else self._literal(a) for a in view.args]
        rest += [f"{k}={base if v is BASE else self._literal(v)}" for k, v in view.kwargs.items()]
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
        if fx_symbols.is_symbolic(value):
            return fx_symbols.text(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, (torch.dtype, torch.memory_format)):
            return str(value)
        if isinstance(value, EllipsisType):
            return "..."
        if isinstance(value, slice):
            return f"slice({', '.join(map(self._literal, (value.start, value.stop, value.step)))})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._literal, value))}]"
        if isinstance(value, tuple):
            return tuple_text(map(self._literal, value))
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name


def _numbers_text(numbers: Sequence[Any]) -> str:
    return tuple_text(map(fx_symbols.text, numbers))


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
