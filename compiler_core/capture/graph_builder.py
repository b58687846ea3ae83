"""One attempt to capture a frame: the FX graph under construction, and the state changes in it.

`Capture` adds operations to the inputs, outside objects and guards of the attempt (`builder/`).
If the graph must break, the attempt is discarded as a whole: capture starts again and stops just before the instruction
that cannot be captured, so nothing ever has to be rolled back.
"""

from __future__ import annotations

import keyword
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from compiler_core.capture.alias_guards import distinct_object_guards
from compiler_core.capture.builder.graph_inputs import GraphInputs
from compiler_core.capture.builder.guard_collector import Location
from compiler_core.capture.rules.python.reachable import state_read
from compiler_core.capture.rules.torch.arguments import split_arguments
from compiler_core.capture.tensors.dynamic_policy import DynamicPolicy
from compiler_core.capture.tensors.fake_tensors import FakeMode, errors_break_graph, muted_fake_log
from compiler_core.capture.tensors.symbolic_shapes import Symbols
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, from_python, is_atom
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.symbols import from_number
from compiler_core.capture.values.cached_calls import CacheChanges, CallLog, OutsideState
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import Overrides, SubclassTensorValue, is_subclass_of_program
from compiler_core.errors import Unsupported
from compiler_core.guards import GuardSpec, all_hold, current_gpu_guard, no_dispatch_mode_guard
from compiler_core.guards.sources import ConstantSource, Scope
from compiler_core.support import fx_symbols
from compiler_core.support import transform_levels as levels
from compiler_core.support.eager_warnings import CallSite, OperationWarnings, WarningCollector
from compiler_core.support.fx_graphs import graph_module
from compiler_core.support.opaque_ops import fake_implementation
from compiler_core.support.silenced_warnings import silence_warnings, warn_always
from compiler_core.support.tensors import storage_id
from compiler_core.support.torch_state import (
    STATE_CHANGING_FUNCTIONS,
    StateChange,
    grad_mode_change,
    index_of_current_gpu,
)

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.stop_points import StopPoint
    from compiler_core.capture.values.user.generators import GeneratorValue

MAX_NODES = 20_000
"""Nodes in one graph."""
_STEPS_PER_LOOK = 64
"""After how many instructions the nodes are counted."""
MAX_STEPS = 500_000
"""Instructions in one attempt."""
MAX_ITERATIONS = 10_000
"""Loop iterations unrolled in one attempt."""


class Capture(GraphInputs):
    """Everything that one attempt has captured so far.

    Args:
        scope: the variables of the frame.
        policy: which sizes and numbers are symbolic.
    """

    def __init__(self, scope: Scope, policy: DynamicPolicy) -> None:
        super().__init__(scope, policy)
        self.mode.warnings = self.warnings = WarningCollector()
        self.inference_mode = torch.is_inference_mode_enabled()
        self._gradients_on_in_inference = self.inference_mode and torch.is_grad_enabled()
        """Whether the program has turned gradients on in inference mode; they are off while the frame is captured."""
        self.state_changes: list[StateChange] = []
        """Changes of PyTorch's global state (such as the grad mode) that the frame has made and not undone."""
        self.overrides = Overrides()
        self.steps = 0
        self.stop_at: int | None = None
        """The number of the step before which to stop."""
        self.open_generators: dict[GeneratorValue, StopPoint] = {}
        """Generators suspended in a try or with block, each with the root's instruction that made it."""
        self.pending_works: dict[Value, StopPoint] = {}
        """Collectives that the frame has not waited for, each with the root's instruction that started it."""
        self.cached_calls = CallLog([], CacheChanges())
        self.awaited: list[ConstantSource] = []
        """Functions that tell whether what the graph broke for is there: once it is, the frame is captured again."""
        self._iterations = 0
        self._view_gained_history = False

    # ------------------------------------------------------------ guards and limits

    def all_guards(self) -> list[GuardSpec]:
        """Returns every guard, including conditions on sizes and those on which objects must be distinct."""
        for spec in distinct_object_guards(self):
            self.guards.setdefault((spec.kind, spec.source, None), spec)
        for source, condition, line in self.symbols.conditions():
            for number in condition.number_sources():
                self.guard("TYPE_MATCH", number, number.fetch(self.scope))
            self.guards[("CONDITION", condition.text)] = GuardSpec("CONDITION", source, condition, line)
        if not self.is_empty and all(guard.kind != "TENSOR_MATCH" for guard in self.guards.values()):
            self.guards["NO_DISPATCH_MODE"] = no_dispatch_mode_guard()
        if (gpu := index_of_current_gpu(self.graph)) is not None:
            self.guards["CURRENT_GPU"] = current_gpu_guard(gpu)
        return [*self.guards.values(), *self.library.guards()]

    def guards_hold(self) -> bool:
        """Whether everything that capture has looked at is as it was, except for what the frame changed."""
        guards = [guard for guard in self.guards.values() if guard.kind != "GLOBAL_STATE"]
        return all_hold(guards, self.scope)

    def changes(self) -> OutsideState:
        """Returns what the frame has changed outside of it so far, which a real call would not see."""
        tensors = [v._fake for v in self.inputs if isinstance(v, TensorValue) and v._fake is not None]
        return self.effects.changes(self.scope, any(fake._version for fake in tensors))

    def reads(self) -> OutsideState:
        """Returns what the frame has read outside of it so far, but for functions, classes and modules."""
        return state_read(self.guards.values(), self.scope, any(isinstance(v, TensorValue) for v in self.inputs))

    def check_unroll(self, iterations: int) -> None:
        """Raises Unsupported if unrolling this many iterations is too much."""
        if iterations > MAX_ITERATIONS:
            raise Unsupported("unroll limit", f"{iterations:,} rounds")

    def count_iteration(self) -> None:
        """Counts an iteration of an unrolled loop."""
        self._iterations += 1
        self.check_unroll(self._iterations)

    def count_step(self) -> int:
        """Counts an instruction and returns its number."""
        self.steps += 1
        looks_at_nodes = self.steps % _STEPS_PER_LOOK == 0
        if self.steps > MAX_STEPS or (looks_at_nodes and len(self.graph.nodes) > MAX_NODES):
            raise Unsupported("unroll limit", f"{self.steps:,} instructions, {len(self.graph.nodes):,} nodes")
        return self.steps

    # ------------------------------------------------------------ operations

    def call_function(self, tx: Interpreter, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Adds a call of `fn` to the graph, runs it on fake tensors, and returns the value of its result.

        Raises Unsupported if the call cannot be run on fake tensors.
        """
        if (overridden := tx.override(fn, args, kwargs)) is not None:
            return overridden
        if isinstance(fn, types.FunctionType):
            self.library.add_lookups_of(fn, self.location.line)
        self._before(tx, getattr(fn, "__name__", ""), args, kwargs)
        fake_args, node_args = split_arguments(tx, list(args))
        _check_names(kwargs)
        fake_kwargs, node_kwargs = split_arguments(tx, dict(kwargs))
        result, warnings = self._run(fn, fake_args, fake_kwargs)
        self._check_view_history(fake_args)
        node = self.graph.call_function(fn, tuple(node_args), node_kwargs)
        return self._wrap_result(result, node, warnings)

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Adds a call of method `name` of the tensor ``args[0]`` to the graph, like `call_function`."""
        self._before(tx, name, args, kwargs)
        fake_args, node_args = split_arguments(tx, list(args))
        _check_names(kwargs)
        fake_kwargs, node_kwargs = split_arguments(tx, dict(kwargs))
        result, warnings = self._run(getattr(fake_args[0], name), fake_args[1:], fake_kwargs)
        self._check_view_history(fake_args)
        node = self.graph.call_method(name, tuple(node_args), node_kwargs)
        return self._wrap_result(result, node, warnings)

    def _before(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> None:
        """Adds what an operator needs that PyTorch's fake tensors leave out."""
        _guard_place(tx, name, args, kwargs)
        if name in ("quantile", "nanquantile"):
            self._check_quantiles(tx, args[1] if len(args) > 1 else kwargs.get("q"))

    def _check_quantiles(self, tx: Interpreter, q: Value | None) -> None:
        """Adds the check of the quantiles that eager makes on the CPU."""
        if isinstance(q, TensorValue) and q.fake(tx).device.type == "cpu":
            above, below = (self.call_method(tx, n, [q, ConstantValue(at)], {}) for n, at in (("ge", 0), ("le", 1)))
            inside = self.call_method(tx, "all", [self.call_method(tx, "logical_and", [above, below], {})], {})
            message = ConstantValue("quantile() q values must be in the range [0, 1]")
            self.call_function(tx, torch._assert_async, [inside, message], {})

    def subclass_tensor(self, tx: Interpreter, origin: TensorValue, cls: type) -> SubclassTensorValue:
        """``origin.as_subclass(cls)``, which is another tensor object over the same memory."""
        if levels.depth():
            raise Unsupported("transform", f"with a {cls.__name__}")
        with errors_break_graph(torch.Tensor.as_subclass), self.mode:
            fake = torch.ops.aten.alias.default(origin.fake(tx))
        found = self._values_by_fake[id(fake)] = SubclassTensorValue(cls, origin, fake)
        return found

    def change_state(self, change: StateChange) -> None:
        """Changes PyTorch's global state, now for the following operations, and in the graph."""
        if self.inference_mode and (self._gradients_on_in_inference or change == grad_mode_change(True)):
            raise Unsupported("unsupported operation", "gradients turned on in inference mode")
        try:
            change.do(*change.args)
        except TypeError as error:
            raise Unsupported("exception", f"TypeError: {error}") from None
        self._change_node(change.do, change.args)
        if self.state_changes and change.undoes(self.state_changes[-1]):
            self.state_changes.pop()
        else:
            self.state_changes.append(change)

    def _change_node(self, change: Callable[..., Any], args: Sequence[Any]) -> None:
        nodes = tuple(self.number_node(a) if isinstance(a, torch.SymInt) else a for a in args)
        self._set_meta(self.graph.call_function(change, nodes), None)

    def last_change(self, do: Callable[..., Any]) -> StateChange:
        """Returns the latest change, which `do` made; raises Unsupported if a later one was not undone."""
        if self.state_changes[-1].do is not do:
            raise Unsupported("transform", "a function leaves PyTorch's global state changed")
        return self.state_changes[-1]

    @property
    def grad_enabled(self) -> bool:
        """Whether gradients are on at this point of the frame."""
        return self._gradients_on_in_inference or torch.is_grad_enabled()

    def restore_state(self) -> None:
        """Undoes the changes that this attempt made to PyTorch's global state."""
        for change in reversed(self.state_changes):
            change.undo(*change.undo_args)

    def _run(self, fn: Any, args: Any, kwargs: Any) -> tuple[Any, OperationWarnings | None]:
        """Runs an operation on fake tensors; returns the result and the warnings that it gives."""
        if self._view_gained_history:
            raise Unsupported("unsupported operation", "if it failed, the new history of a view could not be undone")
        run = _fake_execution(fn, args, kwargs, self.mode, self.symbols)
        if levels.depth():
            return self._run_in_transform(run), None
        with silence_warnings() as messages, warn_always():
            result = run()
        if messages and self.symbols.specialize_named(" ".join(str(m.message) for m in messages)):
            with silence_warnings() as messages, warn_always():
                run()
        return result, self.warnings.finish(fn, run, messages, self._python_place)

    def _run_in_transform(self, run: Callable[[], Any]) -> Any:
        """Runs an operation within a transform, which may neither warn nor write to a tensor from outside."""
        outside = [v._fake for v in self.inputs if isinstance(v, TensorValue) and v._fake is not None]
        versions = [fake._version for fake in outside]
        with silence_warnings() as messages, warn_always():
            result = run()
        if messages or self.warnings.take_programs():
            raise Unsupported("transform", "an operation within it warns")
        if [fake._version for fake in outside] != versions:
            raise Unsupported("transform", "it writes to a tensor from outside")
        return result

    def _python_place(self) -> CallSite:
        """Returns the file and line of the current instruction, in the user's or a library's code."""
        tx = self.current_tx
        return CallSite(tx.code.co_filename, tx.lineno, tx.f_globals)

    def _check_view_history(self, args: Sequence[Any]) -> None:
        """Notes that an outside view has gained an autograd history by a write to it.

        The history that other inputs gain can be undone if the graph fails (`resume/eager_fallback.py`).
        """
        written = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if self._views_without_history and written is not None and written._version > 0 and written.requires_grad:
            self._view_gained_history = storage_id(written) in self._views_without_history

    def _wrap_result(self, result: Any, node: fx.Node, warnings: OperationWarnings | None) -> Value:
        self._set_meta(node, result)
        if warnings is not None:
            node.meta["warnings"] = warnings
        if isinstance(result, torch.Tensor):
            return self._tensor_result(result, node)
        if result is None:
            return NONE
        if isinstance(result, (tuple, list)):
            values = [self._item_result(v, node, i) for i, v in enumerate(result)]
            return ListValue(values) if isinstance(result, list) else TupleValue(values, type(result))
        if is_atom(result) or isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.graph.erase_node(node)
            return from_number(result)
        raise Unsupported("unsupported call", f"{node.target} returned a {type(result).__name__}")

    def _tensor_result(self, fake: torch.Tensor, node: fx.Node) -> TensorValue:
        known = self._values_by_fake.get(id(fake))
        if known is None:
            if is_subclass_of_program(type(fake)):
                name = getattr(node.target, "__name__", node.target)
                raise Unsupported("unsupported call", f"{name} makes a {type(fake).__name__}, a tensor subclass")
            # an in-place operation returns its argument, which has a value already
            # (a view made with gradients off has is_leaf set, too)
            if fake.requires_grad and fake.is_leaf and not (fake._is_view() or levels.is_wrapped(fake)):
                raise Unsupported("unsupported call", f"{node.target} makes a leaf tensor that requires gradients")
            known = self._values_by_fake[id(fake)] = TensorValue(fake, node)
        return known

    def _item_result(self, item: Any, node: fx.Node, i: int) -> Value:
        if isinstance(item, torch.Tensor):
            getitem = self.graph.call_function(operator.getitem, (node, i))
            self._set_meta(getitem, item)
            return self._tensor_result(item, getitem)
        if isinstance(item, (tuple, list)):
            raise Unsupported("unsupported call", f"{node.target} returned nested sequences")
        return from_python(item)

    def finish(self, outputs: dict[fx.Node, int]) -> fx.GraphModule:
        """Ends the graph with these outputs and returns it; unused items of multiple results are removed."""
        for node in reversed(self.graph.nodes):
            if _is_item_of_results(node) and not node.users and node not in outputs:
                self.graph.erase_node(node)
        # backends differ in the state that they leave behind, so the graph undoes it and generated code makes it again
        for change in reversed(self.state_changes):
            self._change_node(change.undo, change.undo_args)
        self.graph.output(tuple(outputs))
        return graph_module(torch.nn.Module(), self.graph, "Captured")

    @property
    def is_empty(self) -> bool:
        """Whether the graph computes nothing."""
        return all(n.op == "placeholder" or n.target in STATE_CHANGING_FUNCTIONS for n in self.graph.nodes)


def _fake_execution(fn: Any, args: Any, kwargs: Any, mode: FakeMode, symbols: Symbols) -> Callable[[], Any]:
    """Returns a function that runs an operation on fake tensors, and keeps nothing else of the capture alive."""

    def run() -> Any:
        in_python = fx_symbols.python_decompositions(bool(symbols.sources))
        checked = errors_break_graph(fn, args, kwargs)
        with checked, mode, muted_fake_log(), in_python, fx_symbols.as_in_eager(fn):
            return fake_implementation(fn)(*args, **kwargs)

    return run


_OFFSETS = {"as_strided": 3, "as_strided_copy": 3, "as_strided_scatter": 4}
"""Operators that take a place in memory, with the position of that argument."""


def _guard_place(tx: Interpreter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> None:
    """Guards where outside tensors lie in their memory if an operator counts from the start of it."""
    offset = _OFFSETS.get(name.partition(".")[0])
    if offset is not None and (len(args) > offset or "storage_offset" in kwargs) and isinstance(args[0], TensorValue):
        args[0].guard_offset(tx)


def _check_names(kwargs: Mapping[str, Any]) -> None:
    """Raises Unsupported for a keyword argument that a call in the text of a graph cannot have, such as ``from``."""
    for name in kwargs:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise Unsupported("unsupported call", f"a keyword argument named {name!r}, which only ** can pass")


def _is_item_of_results(node: fx.Node) -> bool:
    """Whether a node is one of several results of an operation, and not a part of a tensor."""
    if node.target is not operator.getitem or isinstance(node.args[1], slice) or not isinstance(node.args[0], fx.Node):
        return False
    return not isinstance(node.args[0].meta.get("val"), torch.Tensor)


__all__ = ["Capture", "Location"]
