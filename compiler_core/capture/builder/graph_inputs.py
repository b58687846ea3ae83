"""The inputs of the graph under construction: outside tensors, and symbolic sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext

from compiler_core.capture.builder.outside_objects import OutsideObjects
from compiler_core.capture.tensors.dynamic_policy import DynamicPolicy
from compiler_core.capture.tensors.fake_tensors import FakeMode, make_fake
from compiler_core.capture.tensors.symbolic_shapes import OPERATIONS
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import SubclassTensorValue, is_subclass_of_program
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, PlainTensorSource, Scope, Source
from compiler_core.records.recompiles import readable
from compiler_core.support.tensors import storage_id
from compiler_core.support.transform_levels import is_wrapped, outside_levels


class GraphInputs(OutsideObjects):
    """The graph of one attempt and its inputs, in the order in which operations first need them."""

    def __init__(self, scope: Scope, policy: DynamicPolicy) -> None:
        super().__init__(scope, policy)
        self.graph = fx.Graph()
        self.mode = FakeMode(shape_env=self.symbols.env, static_shapes=True)
        self._example_mode: FakeMode | None = None
        self.inputs: list[TensorValue | SymbolicNumber] = []
        self.current_tx: Any = None
        """The interpreter that is running: that of the frame or of an inlined call."""
        self._last_placeholder: fx.Node | None = None
        self._input_names: dict[str, int] = {}
        self._values_by_fake: dict[int, TensorValue] = {}
        self._nodes_by_expr: dict[Any, Any] = {}
        self._views_without_history: set[int] = set()
        """The memory of outside views that have no autograd history."""

    def fake(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """Returns a fake tensor for the outside tensor at `source`, with symbolic sizes where the policy says so."""
        try:
            with outside_levels():
                fake = make_fake(self.mode, real, self._symbolic_context(real, source))
        except RuntimeError as error:  # of a kind without fake tensors, or a view that autograd does not track
            raise Unsupported("unsupported operation", str(error)) from None
        except AssertionError:  # it differs from `real`, since another alias of it was written to before
            raise Unsupported(
                "unsupported operation", "a tensor that a write to another tensor has given a history"
            ) from None
        self.symbols.note_symbols(fake, _source_of_sizes(real, source))
        return fake

    def set_value_of(self, fake: torch.Tensor, value: TensorValue) -> None:
        """Lets operations that return `fake` return `value`."""
        self._values_by_fake[id(fake)] = value

    def _symbolic_context(self, real: torch.Tensor, source: Source) -> StatefulSymbolicContext | None:
        return self.symbols.symbolic_context(real, _source_of_sizes(real, source))

    def placeholder(self, tensor: TensorValue, fake: torch.Tensor) -> fx.Node:
        """Makes an outside tensor an input of the graph."""
        assert tensor.source is not None
        self._values_by_fake[id(fake)] = tensor
        is_view = tensor.real is not None and (tensor.real._is_view() or isinstance(tensor, SubclassTensorValue))
        if is_view and not fake.requires_grad:
            self._views_without_history.add(storage_id(fake))
        node = self._input(tensor, tensor.source, fake)
        if isinstance(tensor.source, AttrSource) and tensor.source.table == "_buffers":
            node.meta["role"] = "buffer"
        return node

    def tensors_of(self, memory: int) -> list[TensorValue]:
        """Returns the graph's inputs whose fake tensors are in this storage."""
        tensors = [v for v in self.inputs if isinstance(v, TensorValue) and v._fake is not None]
        return [v for v in tensors if v._fake is not None and storage_id(v._fake) == memory]

    def _input(self, value: TensorValue | SymbolicNumber, source: Source, example: Any) -> fx.Node:
        with self._inserting_placeholder():
            node = self._last_placeholder = self.graph.placeholder(self._input_name(source.text))
        self._set_meta(node, example)
        node.meta["place"] = readable(source.text)
        self.inputs.append(value)
        return node

    def _inserting_placeholder(self) -> Any:
        """A context in which new nodes are inserted after the last placeholder."""
        if self._last_placeholder is not None:
            return self.graph.inserting_after(self._last_placeholder)
        return self.graph.inserting_before(_first_node(self.graph))

    def number_node(self, number: Any) -> Any:
        """Returns the argument of a node for a symbolic number: an input, a node that computes it, or a plain number.

        It is a plain number if the symbol has been specialised.
        """
        expr = number.node.expr
        if expr.is_number:
            return number.node.pytype(expr)
        if expr not in self._nodes_by_expr:
            self._nodes_by_expr[expr] = self._make_number_node(expr, number)
        return self._nodes_by_expr[expr]

    def _make_number_node(self, expr: Any, number: Any) -> Any:
        env = self.symbols.env
        if expr.is_Symbol:
            return self._input(SymbolicNumber(number), self.symbols.sources[expr], number)
        operation = OPERATIONS.get(expr.func)
        if operation is None:
            return int(number)
        parts = [env.create_symintnode(arg, hint=None) for arg in expr.args]
        nodes = [self.number_node(p) if isinstance(p, torch.SymInt) else p for p in parts]
        if len(parts) == 1:
            return self._compute(operation, nodes, number)
        total, value = nodes[0], parts[0]
        for node, part in zip(nodes[1:], parts[1:], strict=True):
            value = operation(value, part)
            total = self._compute(operation, [total, node], value)
        return total

    def _compute(self, operation: Any, args: Sequence[Any], value: Any) -> fx.Node:
        node = self.graph.call_function(operation, tuple(args))
        self._set_meta(node, value)
        return node

    def _input_name(self, text: str) -> str:
        """Returns a unique name for an input: ``L['a'].b`` and ``L['a_b']`` give the same identifier."""
        name = _placeholder_name(text)
        count = self._input_names[name] = self._input_names.get(name, 0) + 1
        return name if count == 1 else f"{name}__{count}"

    def example_inputs(self) -> list[Any]:
        """Returns fake inputs of the graph, as they are when the frame begins."""
        self.symbols.apply_replacements()
        fresh = self._example_mode = FakeMode(shape_env=self.symbols.env, static_shapes=True)
        return [self._example_input(value, fresh) for value in self.inputs]

    def forget_real_tensors(self) -> None:
        """Forgets which outside tensors have fake ones.  Called at the end of a compile."""
        for mode in (self.mode, self._example_mode):
            if mode is not None:
                mode.forget_real_tensors()

    def _example_input(self, value: TensorValue | SymbolicNumber, fresh: FakeMode) -> Any:
        if isinstance(value, SymbolicNumber):
            return value.value if value.sym.node.expr.is_number else value.sym
        assert value.real is not None and value.source is not None
        return make_fake(fresh, value.real, self._symbolic_context(value.real, value.source))

    def _set_meta(self, node: fx.Node, value: Any) -> None:
        location = self.location
        value = self._without_levels(value)
        node.meta.update(val=value, origin=location.items, rule="capture", stack_trace=location.stack_trace)
        node.meta["module"] = None if self.current_tx is None else self.current_tx.module_path

    def _without_levels(self, value: Any) -> Any:
        """Returns `value` with plain fake tensors of the same layout for tensors of a transform."""
        if isinstance(value, (tuple, list)) and any(map(is_wrapped, value)):
            return tuple(map(self._without_levels, value))
        if not is_wrapped(value):
            return value
        with outside_levels(), self.mode:
            layout: Any = value.shape, value.stride()
            plain = torch.empty_strided(*layout, dtype=value.dtype, device=value.device)
            return plain.requires_grad_(value.requires_grad)


def _source_of_sizes(real: torch.Tensor, source: Source) -> Source:
    return PlainTensorSource(source) if is_subclass_of_program(type(real)) else source


def _first_node(graph: fx.Graph) -> fx.Node:
    return next(iter(graph.nodes), graph._root)


def _placeholder_name(text: str) -> str:
    """Returns a placeholder's name for a source such as ``L['self'].fc.weight``."""
    kept = "".join(c if c.isalnum() else "_" for c in text.removeprefix("L[").removeprefix("G["))
    name = "_".join(filter(None, kept.split("_"))).lower()
    name = name if name.isidentifier() else f"arg_{name}".rstrip("_")  # IPython's results are called _ and _3
    return "self_" if name == "self" else name  # the graph's own name in its generated code
