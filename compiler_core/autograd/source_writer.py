"""The writer of the source around a compiled forward and backward: its lines, and what both of its parts write."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.joint import InputMutation, ReturnedValue, ViewReplay, output_nodes
from compiler_core.autograd.partition import Partitioned
from compiler_core.autograd.trace.outputs import BASE, TensorLayout
from compiler_core.codegen.wrapper.executable import Executable, InlineBody
from compiler_core.codegen.wrapper.values import tuple_text
from compiler_core.records import Span
from compiler_core.support import fx_symbols
from compiler_core.support.fx_symbols import Origin
from compiler_core.support.node_facts import reads_any_place


class SourceWriter:
    """Lines of source that are being written, with the graph nodes behind them.

    Args:
        parts: the forward and the backward.
        executables: the executables of the graphs ("forward", "backward") that our own backends compiled.
        warns: whether the captured graph gives warnings.
    """

    def __init__(self, parts: Partitioned, executables: Mapping[str, Executable], warns: bool) -> None:
        self.parts, self.joint, self.executables, self.warns = parts, parts.joint, executables, warns
        self.spans: list[Span] = []
        self.nodes: dict[str, list[fx.Node]] = {}
        """From the key of a span to the nodes that its lines were made from."""
        self.constants: dict[str, Any] = {}
        """Objects without a literal, by the name that stands for them."""
        self._lines: list[str] = []

    @property
    def optional(self) -> dict[str, str]:
        """The tangents that kernels do not read if they are absent, and the flag that stands for each."""
        return self.executables["backward"].optional if "backward" in self.executables else {}

    @staticmethod
    def layout_text(layout: TensorLayout) -> str:
        """Returns the arguments of `new_zeros` for a tangent."""
        return f"{numbers_text(layout.shape)}, {numbers_text(layout.stride)}, {layout.dtype}, '{layout.device}'"

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def add(self, depth: int, text: str, key: str = "", nodes: Sequence[fx.Node | None] = ()) -> None:
        """Adds a line that is indented `depth` times; with a `key`, it is a span made from `nodes`."""
        self._lines.append("    " * depth + text if text else "")
        if key:
            self.span(key, nodes)

    def blank(self, count: int = 1) -> None:
        """Adds empty lines."""
        for _ in range(count):
            self.add(0, "")

    def span(self, key: str, nodes: Sequence[fx.Node | None], lines: int = 1) -> None:
        """Makes the last `lines` lines a span."""
        self.spans.append(Span(key, len(self._lines) - lines + 1, len(self._lines)))
        self.nodes[key] = [n for n in nodes if n is not None]

    def literal(self, value: Any) -> str:
        """Returns `value` as Python source, or a name for it in `constants` if it has no literal."""
        if fx_symbols.is_symbolic(value):
            return fx_symbols.text(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, (torch.dtype, torch.memory_format)):
            return str(value)
        if isinstance(value, EllipsisType):
            return "..."
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.literal, (value.start, value.stop, value.step)))})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.literal, value))}]"
        if isinstance(value, tuple):
            return tuple_text(map(self.literal, value))
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name

    # ---- running a graph: its statements if there are only a few, else a call ----------

    def inlined(self, graph: str, inputs: Sequence[str]) -> InlineBody | None:
        """Returns the statements of a graph if they can stand in the source: they are few, and name the inputs as the
        source does."""
        body = self.executables[graph].inline_body if graph in self.executables else None
        return body if body and body.inputs == list(inputs) else None

    def run_forward(self, depth: int, results: Sequence[str]) -> None:
        """Assigns the outputs of the forward graph to `results`."""
        inputs, nodes = self.joint.primals, output_nodes(self.parts.forward.graph)
        if body := self.inlined("forward", inputs):
            self.write_inlined(depth, "forward", body, results, nodes)
        else:
            call = f"{assignment(results)}forward_graph([{', '.join(inputs)}])"
            self.write_call(depth, "forward", call, nodes)

    def write_inlined(
        self, depth: int, graph: str, body: InlineBody, results: Sequence[str], nodes: Sequence[fx.Node | None]
    ) -> None:
        """Writes the statements of a graph, and assigns its results to the names `results` (``_``: unused)."""
        renamed = {new: old for new, old in zip(results, body.results, strict=True) if new not in (old, "_")}
        statements = [*body.statements]
        if renamed:
            statements.append(f"{', '.join(renamed)} = {', '.join(renamed.values())}")
        for statement in statements or ["pass"]:
            self.add(depth, statement)
        self.span(graph, nodes, max(1, len(statements)))

    def write_call(self, depth: int, graph: str, call: str, nodes: Sequence[fx.Node | None]) -> None:
        """Writes the call of a graph below autograd, so that PyTorch records neither views nor gradients."""
        if graph in self.executables and self.executables[graph].only_kernels:  # PyTorch does not see these anyway
            self.add(depth, call, graph, nodes)
            return
        state = ", without_autocast()" if self.joint.autocast else ""
        if graph == "forward" and self.warns:  # ``warn()`` gives what PyTorch's kernels warn about
            state += ", warn_always(False)"
        self.add(depth, f"with below_autograd(){state}:")
        self.add(depth + 1, call, graph, nodes)

    def read_symbols(self, depth: int, symbols: Mapping[str, Origin]) -> None:
        """Reads the values of symbols from the primals."""
        for name, origin in symbols.items():
            self.add(depth, f"{name} = {origin}")

    # ---- writing new values to mutated inputs ------------------------------------------

    def write_input(self, depth: int, mutation: InputMutation) -> None:
        """Writes the new value of one input to it."""
        target, value = self._target(mutation), self.joint.outputs[mutation.output]
        resize = f".resize_({value}.shape)" if mutation.resized else ""
        self.add(depth, f"{target}{resize}.copy_({value})")

    def write_inputs(self, depth: int, mutations: Sequence[InputMutation]) -> None:
        """Writes the new values of several inputs, those of one dtype and device in one call: a network with batch norm
        has some sixty."""
        nodes = output_nodes(self.parts.forward.graph)
        groups: dict[Any, list[InputMutation]] = {}
        for mutation in mutations:
            value = nodes[mutation.output].meta["val"]
            separate = mutation.primal if mutation.resized else None
            groups.setdefault((value.dtype, value.device, separate), []).append(mutation)
        for group in groups.values():
            if len(group) == 1:
                self.write_input(depth, group[0])
            else:
                targets = ", ".join(map(self._target, group))
                values = ", ".join(self.joint.outputs[m.output] for m in group)
                self.add(depth, f"torch._foreach_copy_([{targets}], [{values}])")

    def count_kernel_writes(self, depth: int, mutations: Sequence[InputMutation]) -> list[InputMutation]:
        """Counts the writes of the forward's kernels to inputs in their versions; returns the other mutations."""
        written = self.executables["forward"].in_place if "forward" in self.executables else []
        done = [m for m in mutations if self.joint.primals[m.primal] in written]
        if counted := [m for m in done if not m.uncounted]:
            names = tuple_text(self.joint.primals[m.primal] for m in counted)
            self.add(depth, f"torch.autograd.graph.increment_version({names})  # kernels wrote to them")
        return [m for m in mutations if m not in done]

    def _target(self, mutation: InputMutation) -> str:
        """Returns what is written to: writes to ``.data`` are not counted in the version."""
        name = self.joint.primals[mutation.primal]
        return f"{name}.data" if mutation.uncounted else name


def numbers_text(numbers: Sequence[Any]) -> str:
    """Returns a tuple of plain and symbolic numbers as source."""
    return tuple_text(map(fx_symbols.text, numbers))


def assignment(names: Sequence[str]) -> str:
    """Returns the left side of an assignment that unpacks a sequence to `names`; an empty string if there are none."""
    if not names:
        return ""
    comma = "," if len(names) == 1 else ""
    return f"{', '.join(names)}{comma} = "


# ---------------------------------------------------------------- the function that runs a compiled graph


class CallFunction:
    """Writes ``call``."""

    def __init__(self, writer: SourceWriter) -> None:
        self._writer, self._parts, self._joint = writer, writer.parts, writer.joint
        self.operator_nodes: dict[str, str] = {}
        """From the name of each eager operator in the source to a captured node that calls it."""
        self._operators: dict[str, Any] = {}

    def write(self) -> None:
        joint, primals = self._joint, ", ".join(self._joint.primals)
        self._writer.add(0, f"def call({primals}):")
        self._writer.add(1, "if forward_ad._current_level >= 0:  # kernels do not compute forward-mode tangents")
        self._writer.add(2, f"return run_eagerly({primals})")
        if joint.mutations:
            self._check_shared_memory()
        if self._writer.warns:
            self._writer.add(1, "warn()")
        views = [view for returned in joint.returns for view in returned.views]
        numbers: list[Any] = []
        fx.node.map_aggregate([(view.args, view.kwargs) for view in views], numbers.append)
        self._writer.read_symbols(1, joint.origins(fx_symbols.symbol_names(numbers)))
        results = {i: self._returned(i, r) for i, r in enumerate(joint.returns, 1) if r.before_writes}
        self._run()
        # the autograd function writes to the other inputs itself
        late = [m for m in joint.mutations if joint.differentiable[m.output] or self._parts.backward is None]
        for mutation in self._writer.count_kernel_writes(1, late):
            self._write(mutation)
        results |= {i: self._returned(i, r) for i, r in enumerate(joint.returns, 1) if not r.before_writes}
        self._writer.add(1, f"return {tuple_text(results[i] for i in sorted(results))}")

    def _check_shared_memory(self) -> None:
        """Runs the graph eagerly if an input that it writes to shares memory with another one."""
        joint = self._joint
        written = [m.primal for m in joint.mutations]
        others = [n for i, n in enumerate(joint.primals) if i not in written and i not in joint.numbers]
        names = [joint.primals[i] for i in written]
        anywhere = any(map(reads_any_place, joint.gm.graph.nodes)) or any(m.resized for m in joint.mutations)
        how = "share_storage" if anywhere else "share_memory" if joint.tangents else "share_elements"
        self._writer.add(1, f"if {how}({tuple_text(names)}, {tuple_text(others)}):")
        self._writer.add(2, f"return run_eagerly({', '.join(joint.primals)})")

    def _run(self) -> None:
        """Applies the autograd function, or runs the forward graph if there is no backward."""
        joint, forward = self._joint, self._writer.executables.get("forward")
        may_raise, updates = forward is not None and forward.may_raise, forward is not None and forward.updates
        if may_raise or updates:
            self._writer.add(1, "try:")
        depth = 2 if may_raise or updates else 1
        if self._parts.backward is not None:
            function = "(Compiled.apply if transforms_are_active() else apply)"
            names = [name for name, _ in joint.function_outputs]
            if not torch.is_grad_enabled():  # the graph turns gradients on, which inference mode ignores
                self._writer.add(depth, "with torch.set_grad_enabled(not torch.is_inference_mode_enabled()):")
                depth += 1
            # else the engine would run what made them with no gradient, and free what it has saved
            arguments = [f"{n}.detach()" if i in joint.unreached_primals else n for i, n in enumerate(joint.primals)]
            self._writer.add(depth, f"{assignment(names)}{function}({', '.join(arguments)})", "call")
        else:
            self._writer.run_forward(depth, joint.outputs)
        if may_raise:
            self._writer.add(1, "except (IndexOutOfRange, CannotDraw):")
            self._writer.add(2, f"return rerun_eagerly(run_eagerly, {tuple_text(joint.primals)})")
        if updates:
            self._writer.add(1, "except Exception as error:")
            self._writer.add(2, "raise unrepeatable(error)  # inputs may have their new values already")

    def _write(self, mutation: InputMutation) -> None:
        depth = 1
        if mutation.under_no_grad or not torch.is_grad_enabled():
            self._writer.add(1, "with torch.no_grad():" if mutation.under_no_grad else "with torch.enable_grad():")
            depth = 2
        self._writer.write_input(depth, mutation)

    # ---- what is returned --------------------------------------------------------------

    def _returned(self, number: int, returned: ReturnedValue) -> str:
        """Writes the views that lead to a returned value; returns its name."""
        bases = self._joint.primals if returned.base == "primal" else self._joint.outputs
        name = bases[returned.index]
        for view in returned.views:
            result = f"returned_{number}"
            depth = 1
            if view.grad != torch.is_grad_enabled():
                self._writer.add(1, f"with torch.set_grad_enabled({view.grad}):")
                depth = 2
            if "warnings" in view.node.meta:  # ``warn()`` gives them
                self._writer.add(depth, "with silence_warnings():")
                depth += 1
            text = f"{result} = {self._view(view, name)}"
            self._writer.add(depth, text, f"{result}.{view.node.name}", [view.node])
            name = result
        return name

    def _view(self, view: ViewReplay, base: str) -> str:
        """Returns the expression of a view of `base`."""
        node, literal = view.node, self._writer.literal
        if view.step is not None:
            return view.step.text(base, literal)
        rest = [base if a is BASE else literal(a) for a in view.args]
        rest += [f"{k}={base if v is BASE else literal(v)}" for k, v in view.kwargs.items()]
        if node.target is operator.getitem:
            return f"{base}[{rest[0]}]"
        if node.op == "call_method":
            return f"{base}.{node.target}({', '.join(rest)})"
        return f"{self._operator_name(node)}({', '.join([base, *rest])})"

    def _operator_name(self, node: fx.Node) -> str:
        """Returns a name for the eager operator that `node` calls, different from all node names."""
        name = "eager_" + getattr(node.target, "__name__", "view").strip("_").replace(".", "_")
        while self._operators.get(name, node.target) is not node.target:
            name += "_"
        self._operators[name] = node.target
        self.operator_nodes[name] = node.name
        return name
