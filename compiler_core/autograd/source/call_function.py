"""Source of ``call``, the function that runs a compiled graph: the autograd function, writes to inputs, views."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.joint import InputMutation, ReturnedValue, ViewReplay
from compiler_core.autograd.source.writer import SourceWriter, assignment
from compiler_core.autograd.trace.outputs import BASE
from compiler_core.codegen.wrapper.values import tuple_text
from compiler_core.support import fx_symbols


class CallFunction:
    """Writes ``call``.  `warns`: the graph gives warnings."""

    def __init__(self, writer: SourceWriter, warns: bool) -> None:
        self._writer, self._parts, self._joint, self._warns = writer, writer.parts, writer.joint, warns
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
        if self._warns:
            self._writer.add(1, "warn()")
        views = [view for returned in joint.returns for view in returned.views]
        numbers = [number for view in views for number in _leaves((view.args, view.kwargs))]
        self._writer.read_symbols(1, joint.origins(fx_symbols.symbol_names(numbers)))
        results = {i: self._returned(i, r) for i, r in enumerate(joint.returns, 1) if r.before_writes}
        self._run()
        self._write_late()
        results |= {i: self._returned(i, r) for i, r in enumerate(joint.returns, 1) if not r.before_writes}
        self._writer.add(1, f"return {tuple_text(results[i] for i in sorted(results))}")

    def _check_shared_memory(self) -> None:
        """Runs the graph eagerly if an input that it writes to shares memory with another one."""
        joint = self._joint
        written = [m.primal for m in joint.mutations]
        others = [n for i, n in enumerate(joint.primals) if i not in written and i not in joint.numbers]
        names = [joint.primals[i] for i in written]
        self._writer.add(1, f"if share_memory({tuple_text(names)}, {tuple_text(others)}):")
        self._writer.add(2, f"return run_eagerly({', '.join(joint.primals)})")

    def _run(self) -> None:
        """Applies the autograd function, or runs the forward graph if there is no backward."""
        joint, may_raise = self._joint, self._writer.forward_may_raise
        if may_raise:
            self._writer.add(1, "try:")
        depth = 2 if may_raise else 1
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

    def _write_late(self) -> None:
        """Writes to the inputs that the autograd function has not written to."""
        joint = self._joint
        late = [m for m in joint.mutations if joint.differentiable[m.output] or self._parts.backward is None]
        for mutation in self._writer.count_kernel_writes(1, late):
            self._write(mutation)

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


def _leaves(value: Any) -> list[Any]:
    """Returns the values in nested arguments."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, slice):
        value = [value.start, value.stop, value.step]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]
