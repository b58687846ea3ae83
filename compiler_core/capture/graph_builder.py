"""The FX graph under construction: outside tensors and sizes as its inputs, operations, and changes of global state."""

from __future__ import annotations

import keyword
import operator
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import sympy
import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext, free_unbacked_symbols

from compiler_core.capture.guard_collector import GuardCollector
from compiler_core.capture.rules.python.operators import BINARY, UNARY
from compiler_core.capture.rules.torch.functions import split_arguments
from compiler_core.capture.tensors.fake_tensors import (
    FakeMode,
    batch_norm,
    errors_break_graph,
    make_fake,
    muted_fake_log,
)
from compiler_core.capture.tensors.symbolic_shapes import (
    OPERATIONS,
    Measured,
    Symbols,
    is_unbacked,
    python_text,
)
from compiler_core.capture.values.base import Args, Kwargs, Value, lookup_in_mro
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, is_atom
from compiler_core.capture.values.builtin.sequences import ListValue, SequenceValue, TupleValue
from compiler_core.capture.values.builtin.static import StaticValue, from_python
from compiler_core.capture.values.builtin.symbols import (
    NEVER_RAISE,
    ReadValue,
    SymbolicNumber,
    arithmetic,
    from_number,
    symbolic_extreme,
)
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import (
    RaggedSizeValue,
    SubclassTensorValue,
    TraceableWrapperValue,
    is_subclass_of_program,
)
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, Source, plain_tensor
from compiler_core.guards.value_guards import NUMPY_NUMBERS
from compiler_core.records.recompiles import readable
from compiler_core.support import fx_symbols
from compiler_core.support import transform_levels as levels
from compiler_core.support.eager_warnings import (
    CallSite,
    OperationWarnings,
    WarningCollector,
    silence_warnings,
    warn_always,
)
from compiler_core.support.fx_graphs import graph_module
from compiler_core.support.fx_symbols import ASSUMPTION_FAILED, check_condition
from compiler_core.support.node_facts import Checkpoint, custom_operator
from compiler_core.support.opaque_ops import fake_implementation
from compiler_core.support.tensors import (
    HALF_TYPES,
    compute_gradients,
    fake_wrapper,
    history,
    is_freed,
    is_wrapper,
    storage_id,
    tensors_in,
)
from compiler_core.support.torch_state import (
    STATE_CHANGING_FUNCTIONS,
    StateChange,
    grad_mode_change,
    has_ranks,
)
from compiler_core.support.transform_levels import is_wrapped, outside_levels
from compiler_core.torch_private import (
    OpOverload,
    OpOverloadPacket,
    fused_adagrad,
    fused_adam,
    fused_adamw,
    fused_sgd,
    tree_leaves,
)

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.records.capture import BreakReason
    from compiler_core.tools.step_recorder import StepRecorder


@dataclass(frozen=True)
class Region:
    """The nodes of the function of a ``torch.utils.checkpoint``, and of the checkpoints in it; or of the function of an
    operator such as ``torch.cond``."""

    number: int
    """From 1, for ``meta["checkpoint"]`` of the nodes of a checkpoint.  0: it is no checkpoint."""
    versions: dict[int, int]
    """The ``_version`` of each tensor from outside the region, by the id of its fake tensor."""


class GraphBuilder:
    """The graph of one attempt: its inputs, in the order in which operations first need them, and its operations."""

    def __init__(self, guards: GuardCollector, recorder: StepRecorder | None) -> None:
        self.guards = guards
        self.symbols = guards.symbols
        self._recorder = recorder
        self.fx_graph = fx.Graph()
        self.mode = FakeMode(shape_env=self.symbols.env, static_shapes=True)
        self.mode.warnings = self.warnings = WarningCollector()
        self._example_mode: FakeMode | None = None
        self.inputs: list[TensorValue | SymbolicNumber] = []
        self.current_tx: Any = None
        """The interpreter that is running: that of the frame or of an inlined call."""
        self._noted = (0, 0)
        """How much memory was written, and how many inputs there were, when writes were counted last."""
        self._has_wrappers = False
        """Whether an operation has taken or made a tensor of a wrapper subclass."""
        self._last_placeholder: fx.Node | None = None
        self._input_names: dict[str, int] = {}
        self._values_by_fake: dict[int, TensorValue] = {}
        self._nodes_by_expr: dict[Any, Any] = {}
        self._read_numbers: dict[ReadValue, Value] = {}
        self._checked: set[Any] = set()
        """The conditions on numbers that data decide that the graph has checks of."""
        self.replaced: list[torch.Tensor] = []
        """Tensors in place of others whose ``.data`` was set; writes to them or views of them are not the others'."""
        self._views_without_history: set[int] = set()
        """The memory of outside views that have no autograd history."""
        self._view_gained_history = False
        self.inference_mode = torch.is_inference_mode_enabled()
        self._gradients_on_in_inference = self.inference_mode and torch.is_grad_enabled()
        """Whether the program has turned gradients on in inference mode; they are off while the frame is captured."""
        self.state_changes: list[StateChange] = []
        """Changes of PyTorch's global state (such as the grad mode) that the frame has made and not undone."""
        self.region: Region | None = None
        """The checkpoint whose function is running, the outermost if there are several, or another function."""
        self._regions = 0
        self.modules = torch.nn.Module()
        """The graphs of the functions of operators such as ``torch.cond``, as submodules."""
        self.count_of_subgraphs = 0
        self.is_trial = False
        """Whether the nodes that are added now will be removed again."""
        self.captures_backward = False
        """Whether the program's backwards are operations of the graph."""
        self.may_make_leaves = True
        """Whether a tensor made in the frame may require gradients, if backwards are captured (`add_leaf`)."""
        self.new_leaves: list[torch.Tensor] = []
        """Tensors made in the frame that the program has set to require gradients."""
        self.frees_history = False
        """Whether the graph computes gradients and frees what autograd saved for them."""
        self.waits = False
        """Whether an operation waits for what others have computed: its result has a size that data decide."""
        self.must_be_whole = ""
        """What an operation does that such a graph, which runs in parts, cannot have."""

    # ------------------------------------------------------------ inputs

    def fake(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """Returns a fake tensor for the outside tensor at `source`, with symbolic sizes where the policy says so."""
        own = next((name for name in _ASKED_FOR_LAYOUT if _has_own(real, name)), None)
        if own is not None:
            raise Unsupported("unsupported attribute", f"{type(real).__name__}.{own}, which the program defines")
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
        if self.region is not None:
            self.region.versions[id(fake)] = fake._version
        is_view = tensor.real is not None and (tensor.real._is_view() or isinstance(tensor, SubclassTensorValue))
        if is_view and not fake.requires_grad:
            self._views_without_history.add(storage_id(fake))
        node = self._input(tensor, tensor.source, fake)
        if isinstance(tensor.source, AttrSource) and tensor.source.table == "_buffers":
            node.meta["role"] = "buffer"
        return node

    def _input_fakes(self) -> list[torch.Tensor]:
        return [v._fake for v in self.inputs if isinstance(v, TensorValue) and v._fake is not None]

    def written_memory(self) -> frozenset[int]:
        """Returns the memory of the graph's inputs that operations have written to so far."""
        return frozenset(storage_id(fake) for fake in self._input_fakes() if fake._version)

    def tensors_of(self, memory: int) -> list[TensorValue]:
        """Returns the graph's inputs whose fake tensors are in this storage."""
        tensors = [v for v in self.inputs if isinstance(v, TensorValue) and v._fake is not None]
        return [v for v in tensors if v._fake is not None and storage_id(v._fake) == memory]

    def _input(self, value: TensorValue | SymbolicNumber, source: Source, example: Any) -> fx.Node:
        known = self.guards.parameters
        text = _OF_OPTIMIZER.sub(lambda found: known[found[0]].text if found[0] in known else found[0], source.text)
        name = _placeholder_name(text)
        # ``L['a'].b`` and ``L['a_b']`` give the same identifier
        count = self._input_names[name] = self._input_names.get(name, 0) + 1
        graph, last = self.fx_graph, self._last_placeholder
        first = next(iter(graph.nodes), graph._root)
        with graph.inserting_after(last) if last is not None else graph.inserting_before(first):
            node = self._last_placeholder = graph.placeholder(name if count == 1 else f"{name}__{count}")
        self._set_meta(node, example)
        node.meta["place"] = readable(text)
        self.inputs.append(value)
        return node

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
        if expr.is_Symbol and (measured := env.measured.get(expr)):
            return self._measure(measured, number)
        if expr.is_Symbol and expr in self.symbols.sources:
            return self._input(SymbolicNumber(number), self.symbols.sources[expr], number)
        if expr.is_Symbol:
            raise Unsupported("tensor value read")
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

    def _measure(self, measured: Measured, number: Any) -> fx.Node:
        """Adds a node that reads a number that data decide."""
        tensor = measured.tensor._node
        target, args = ("item", (tensor,)) if measured.dim is None else ("size", (tensor, measured.dim))
        node = self.fx_graph.call_method(target, args)
        self._set_meta(node, number)
        node.meta["waits"] = tuple(self.state_changes) if measured.dim is None else None
        return node

    def ragged_size_node(self, tx: Interpreter, value: RaggedSizeValue) -> fx.Node:
        """Adds a node that reads the size of a ragged dimension, which runs as it is."""
        node = self.fx_graph.call_method("size", (value.tensor.node(tx), value.dim))
        self._set_meta(node, value.size)
        node.meta["waits"] = tuple(self.state_changes)
        return node

    def number_of(self, tx: Interpreter, read: ReadValue) -> Value:
        """Returns a number that is read from a tensor of the graph, as an argument of its operations."""
        if read not in self._read_numbers:
            self._read_numbers[read] = self._number_of(tx, read)
        return self._read_numbers[read]

    def _number_of(self, tx: Interpreter, read: ReadValue) -> Value:
        self._check_can_wait()
        if read.cls is int and not isinstance(read.args[0], TensorValue):
            operands = [self.number_of(tx, each) if isinstance(each, ReadValue) else each for each in read.args]
            result = symbolic_extreme(read.function, tx, operands) if read.function in (min, max) else None
            if read.function in BINARY or read.function in UNARY:
                result = arithmetic(read.function, tx, operands)
            if isinstance(result, ConstantValue):
                return result
        elif read.cls in (int, float):
            tensor, env = self._read_tensor(tx, read, read.cls), self.symbols.env
            number = env.create_unbacked_symint() if read.cls is int else env.create_unbacked_symfloat()
            env.pending_fresh_unbacked_symbols.clear()
            env.measured[number.node.expr] = Measured(tensor, None)
            return SymbolicNumber(number)
        raise Unsupported("tensor value read", f"{read} as argument of a tensor operation")

    def _read_tensor(self, tx: Interpreter, read: ReadValue, cls: type) -> Any:
        """Returns a tensor of one element that has the number, of 64 bits: with these it computes as Python."""
        tensor, dtype = read.args[0], torch.int64 if cls is int else torch.float64
        if isinstance(tensor, TensorValue):
            if tensor.fake(tx).dtype != dtype:
                tensor = self.call_method(tx, "to", [tensor, ConstantValue(dtype)])
            return tensor
        if read.function not in _SAME_AS_PYTHON:
            raise Unsupported("tensor value read", f"{read} as argument of a tensor operation")
        operands = [self._read_tensor(tx, each, cls) if isinstance(each, ReadValue) else each for each in read.args]
        return self.call_function(tx, read.function, operands)

    def _check_can_wait(self, reason: BreakReason = "tensor value read") -> None:
        """Checks that the graph can have an operation that waits for what others have computed: it runs in parts.

        A condition on sizes that data decide may not hold, and the frame runs again, which others may not see.
        """
        what = self.must_be_whole
        if levels.depth() or self.is_trial or self.region is not None:
            what = "in a transform, a checkpoint or a function of an operator"
        elif has_ranks():
            what = "beside other ranks"
        if what:
            raise Unsupported(reason, f"the graph would run in parts {what}")
        self.waits = True

    def keep_whole(self, what: str) -> None:
        """Notes that the graph has an operation that cannot be in a graph in parts."""
        if self.waits:
            raise Unsupported("tensor value read", f"the graph runs in parts {what}")
        self.must_be_whole = what

    def _compute(self, operation: Any, args: Sequence[Any], value: Any) -> fx.Node:
        node = self.fx_graph.call_function(operation, tuple(args))
        self._set_meta(node, value)
        return node

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
        return self._example_tensor(value.real, value.source, fresh)

    def _example_tensor(self, real: torch.Tensor, source: Source, fresh: FakeMode) -> torch.Tensor:
        if is_wrapper(real):
            example = lambda name: self._example_tensor(getattr(real, name), AttrSource(source, name), fresh)  # noqa: E731
            return fake_wrapper(real, example, fresh)
        return make_fake(fresh, real, self._symbolic_context(real, source))

    def _set_meta(self, node: fx.Node, value: Any) -> None:
        location = self.guards.location
        value = self._without_levels(value)
        node.meta.update(val=value, origin=location.items, rule="capture", stack_trace=location.stack_trace)
        node.meta["module"] = None if self.current_tx is None else self.current_tx.module_path
        if self.region is not None and self.region.number:
            node.meta["checkpoint"] = Checkpoint(self.region.number)
        if self._recorder is not None:
            self._recorder.note_node(node)

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

    # ------------------------------------------------------------ operations

    def call_function(self, tx: Interpreter, fn: Any, args: Args, kwargs: Kwargs | None = None) -> Value:
        """Adds a call of `fn` to the graph, runs it on fake tensors, and returns the value of its result.

        Raises Unsupported if the call cannot be run on fake tensors.
        """
        if (overridden := tx.override(fn, args, kwargs or {})) is not None:
            return overridden
        if isinstance(fn, types.FunctionType):
            self.guards.library.add_lookups_of(fn, self.guards.location.line)
        return self._call(tx, "call_function", fn, args, kwargs or {})

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs | None = None) -> Value:
        """Adds a call of method `name` of the tensor ``args[0]`` to the graph, like `call_function`."""
        return self._call(tx, "call_method", name, args, kwargs or {})

    def _call(
        self,
        tx: Interpreter,
        op: Literal["call_function", "call_method"],
        target: Any,
        args: Sequence[Value],
        kwargs: dict[str, Value],
    ) -> Value:
        name = target if op == "call_method" else getattr(target, "__name__", "")
        scale = "value" if name.startswith("addc") else "alpha"  # the number by which it multiplies an operand
        if kwargs.keys() == {scale} and isinstance(number := kwargs[scale], TensorValue):
            return self._scaled(tx, name, args, number)
        if name in _POWERS and self._may_be_differentiated(tx, args):
            # the formula of its gradient compares the exponent, which PyTorch cannot do with one that is symbolic
            symbolic = [isinstance(each, SymbolicNumber) and each.python_type() is int for each in args]
            args = [ConstantValue(v.constant(tx)) if is_ else v for v, is_ in zip(args, symbolic, strict=True)]
        if not isinstance(target, (OpOverload, OpOverloadPacket)) and name != "type":  # these take no class for a dtype
            args, kwargs = [_class_as_dtype(each) for each in args], {k: _class_as_dtype(v) for k, v in kwargs.items()}
        # what an operator needs that PyTorch's fake tensors leave out
        _guard_place(tx, name, args, kwargs)
        if name == "split" and any(issubclass(each.python_type(), NUMPY_NUMBERS) for each in args[1:2]):
            raise Unsupported("exception", "split() by a number of NumPy, for which PyTorch asks whether it is an int")
        if name in ("quantile", "nanquantile"):
            self._check_quantiles(tx, args[1] if len(args) > 1 else kwargs.get("q"))
        fake_args, node_args = split_arguments(tx, list(args))
        for each in kwargs:
            if not each.isidentifier() or keyword.iskeyword(each):  # the text of a graph cannot have it
                raise Unsupported("unsupported call", f"a keyword argument named {each!r}, which only ** can pass")
        fake_kwargs, node_kwargs = split_arguments(tx, dict(kwargs))
        if op == "call_method":
            result, warnings = self._run(getattr(fake_args[0], name), fake_args[1:], fake_kwargs)
        else:
            result, warnings = self._run(target, fake_args, fake_kwargs)
        self._check_view_history(fake_args)
        wrappers = list(filter(is_wrapper, tensors_in([*fake_args, *fake_kwargs.values(), result])))
        self._has_wrappers |= bool(wrappers)
        seen = len(self.mode.written), len(self.inputs)
        if self._has_wrappers and self.mode.written and seen != self._noted:
            self._noted = seen
            self._note_writes(tx)
        if waits := self.mode.waits or bool(wrappers):
            self._check_can_wait("tensor subclass" if wrappers else "tensor value read")
        self.add_conditions()
        node = self.fx_graph.create_node(op, target, tuple(node_args), node_kwargs)
        if waits:
            node.meta["waits"] = tuple(self.state_changes)
        value = self._wrap_result(result, node, warnings)
        self._note_measured(value)
        return value

    def _note_writes(self, tx: Interpreter) -> None:
        """Counts the writes that classes of wrappers have made to the memory of inputs, below autograd."""
        for value in list(self.inputs):
            if isinstance(value, TraceableWrapperValue):
                value.note_writes(tx)
        for fake in self._input_fakes():
            is_plain = fake.layout is torch.strided and not is_wrapper(fake)  # a sparse tensor has no storage
            if is_plain and not fake._version and storage_id(fake) in self.mode.written:
                torch.autograd.graph.increment_version(fake)

    def _may_be_differentiated(self, tx: Interpreter, args: Sequence[Value]) -> bool:
        """Whether gradients through an operation may be computed while it is captured: in a step or a transform."""
        if levels.depth() > 1:
            return True
        tracked = (each.fake(tx).requires_grad for each in args if isinstance(each, TensorValue))
        return (self.captures_backward or levels.depth() > 0) and any(tracked)

    def _note_measured(self, value: Value) -> None:
        """Notes the sizes of a result that data decide."""
        known = self.symbols.env.measured
        for tensor in value.known_values() if isinstance(value, SequenceValue) else [value]:
            if isinstance(tensor, TraceableWrapperValue):
                continue
            if isinstance(tensor, TensorValue) and tensor._fake is not None and tensor.source is None:
                for dim, size in enumerate(tensor._fake.shape):
                    if isinstance(size, torch.SymInt) and is_unbacked(size.node._expr):
                        same = TensorValue(tensor._fake, tensor._node)  # operations in place may give the value another
                        known.setdefault(size.node._expr, Measured(same, dim))

    def add_conditions(self, of_program: bool = False) -> None:
        """Adds checks of what operations, or the program, take for granted about numbers that data decide.  If one does
        not hold, the frame runs as plain Python.

        Operations check themselves that their sizes are not negative.
        """
        env = self.symbols.env
        new = {each.expr for all_ in env.deferred_runtime_asserts.values() for each in all_} - self._checked
        self._checked |= new
        fresh = set(env.pending_fresh_unbacked_symbols)  # what is said about them is true of the result
        env.pending_fresh_unbacked_symbols.clear()
        for condition in sorted((each for each in new if not each.free_symbols & fresh), key=str):
            if not of_program and isinstance(condition, sympy.Le) and condition.lhs == 0 and condition.rhs.is_Symbol:
                continue
            symbols, nodes = sorted(condition.free_symbols, key=str), []
            for symbol in symbols:
                if symbol not in self._nodes_by_expr:
                    number = env.create_symintnode(symbol, hint=None)
                    self._nodes_by_expr[symbol] = self._make_number_node(symbol, number)
                nodes.append(self._nodes_by_expr[symbol])
            text = f"lambda {', '.join(map(str, symbols))}: {python_text(condition)}"
            node = self._compute(check_condition, [text, *nodes], None)
            node.meta["waits"] = tuple(self.state_changes)

    def _scaled(self, tx: Interpreter, name: str, args: Sequence[Value], scale: TensorValue) -> Value:
        """``torch.addcdiv(a, b, c, value=scale)`` and its kin, of whose scale, a tensor, PyTorch reads the value.

        Like PyTorch's kernels, it rounds a number of 16 bits once, at the end.
        """
        operands, kind = [arg for arg in args if isinstance(arg, TensorValue)], name.removesuffix("_")
        is_number = not scale.fake(tx).dim() and not scale.fake(tx).requires_grad
        if len(operands) != len(args) or not is_number or not (kind in ("add", "sub") or kind.startswith("addc")):
            raise Unsupported("tensor value read", f"{name}() with a tensor as scale")

        def call(name: str, *args: Value) -> Value:
            return self.call_method(tx, name, args)

        dtype = torch.result_type(*(each.fake(tx) for each in operands[:2]))
        first, *others = [call("float", each) for each in operands] if dtype in HALF_TYPES else operands
        other = others[0] if len(others) == 1 else call("div" if kind == "addcdiv" else "mul", *others)
        result = call("sub" if kind == "sub" else "add", first, call("mul", other, scale))
        return call("copy_", args[0], result) if name.endswith("_") else call("to", result, ConstantValue(dtype))

    def _check_quantiles(self, tx: Interpreter, q: Value | None) -> None:
        """Adds the check of the quantiles that eager makes on the CPU."""
        if isinstance(q, TensorValue) and q.fake(tx).device.type == "cpu":
            above, below = (self.call_method(tx, n, [q, ConstantValue(at)]) for n, at in (("ge", 0), ("le", 1)))
            inside = self.call_method(tx, "all", [self.call_method(tx, "logical_and", [above, below])])
            message = ConstantValue("quantile() q values must be in the range [0, 1]")
            self.call_function(tx, torch._assert_async, [inside, message])

    def assume(self, tx: Interpreter, condition: TensorValue, truth: bool) -> bool:
        """Adds a check that a tensor has this truth, without which the frame runs as plain Python.

        Returns False, and adds nothing, where the graph cannot have the check: on a GPU it would wait for the result,
        and a frame that has communicated with other ranks cannot run again.
        """
        fake = condition.fake(tx)
        is_one_flag = type(condition) is TensorValue and fake.device.type == "cpu" and fake.numel() == 1
        if not is_one_flag or self.is_trial or levels.depth() or has_ranks():
            return False
        condition.check_methods(tx, "__bool__")
        holds = condition if truth else self.call_function(tx, torch.logical_not, [condition])
        self.call_function(tx, torch._assert_async, [holds, ConstantValue(ASSUMPTION_FAILED)])
        return True

    def subclass_tensor(self, tx: Interpreter, origin: TensorValue, cls: type) -> SubclassTensorValue:
        """``origin.as_subclass(cls)``, which is another tensor object over the same memory."""
        if levels.depth():
            raise Unsupported("transform", f"with a {cls.__name__}")
        with errors_break_graph(torch.Tensor.as_subclass), self.mode:
            fake = torch.ops.aten.alias.default(origin.fake(tx))
        found = self._values_by_fake[id(fake)] = SubclassTensorValue(cls, origin, fake)
        return found

    def new_region(self, marked: bool = True) -> Region:
        """Returns the region of a checkpoint that begins here, or with ``marked=False`` of another function."""
        self._regions += marked
        versions = {key: value._fake._version for key, value in self._values_by_fake.items() if value._fake is not None}
        return Region(self._regions if marked else 0, versions)

    def keep_results(self, region: Region, operators: Iterable[Any]) -> None:
        """Marks what the backward does not compute again in a checkpoint: the results of these operators."""
        mark = Checkpoint(region.number, tuple(sorted(map(str, operators))))
        for node in self.fx_graph.nodes:
            if node.meta.get("checkpoint") == Checkpoint(region.number):
                node.meta["checkpoint"] = mark

    def known_memory(self) -> set[int]:
        """Returns the memory of all tensors of the graph so far."""
        return {storage_id(v._fake) for v in self._values_by_fake.values() if v._fake is not None}

    def spent_outputs(self, outputs: Sequence[fx.Node]) -> list[int]:
        """Returns the positions of the outputs whose history a backward in the graph has freed."""
        fakes = [node.meta["val"] for node in outputs] if self.frees_history else []
        return [i for i, fake in enumerate(fakes) if fake.requires_grad and any(map(is_freed, history(fake)))]

    def add_leaf(self, fake: torch.Tensor, made_by: str = "") -> None:
        """Notes that a tensor made in the frame requires gradients; raises Unsupported where a graph cannot have it."""
        can_have = self.captures_backward and self.may_make_leaves
        if not can_have or levels.depth() or self.is_trial or self.region is not None:
            raise Unsupported("requires_grad", made_by)
        self.new_leaves.append(fake)

    def loses_leaf(self, outputs: Iterable[fx.Node]) -> bool:
        """Returns whether an output, or an input that was written to, is a new leaf or has a history that leads to new
        leaves only.

        Such a history ends with the graph: autograd sees the graph's inputs alone.
        """
        for fake in tensors_in([*self._input_fakes(), *(node.meta["val"] for node in outputs)]):
            if not fake.requires_grad:
                continue
            found = [getattr(step, "variable", None) for step in history(fake)]
            leaves = [fake] if fake.is_leaf else [leaf for leaf in found if leaf is not None]
            if all(any(leaf is new for new in self.new_leaves) for leaf in leaves):
                return True
        return False

    def written_outside(self, region: Region) -> list[TensorValue]:
        """Returns the tensors from outside a region that have been written to since the region began."""
        values = ((self._values_by_fake[key], version) for key, version in region.versions.items())
        return [value for value, version in values if value._fake is not None and value._fake._version != version]

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
        self._set_meta(self.fx_graph.call_function(change, nodes), None)

    def last_change(self, do: Callable[..., Any]) -> StateChange:
        """Returns the latest change, which `do` made; raises Unsupported if a later one was not undone."""
        if self.state_changes[-1].do is not do:
            raise Unsupported("transform", "a function leaves PyTorch's global state changed")
        return self.state_changes[-1]

    @property
    def grad_enabled(self) -> bool:
        """Whether gradients are on at this point of the frame."""
        return self._gradients_on_in_inference or torch.is_grad_enabled()

    def is_inference_mode(self, guards: GuardCollector) -> bool:
        """Returns, with a guard, whether the frame was entered in inference mode: capture itself never is in it."""
        query = guards.held(torch.is_inference_mode_enabled, "torch.is_inference_mode_enabled")
        guards.add("RETURNS", query, self.inference_mode)
        return self.inference_mode

    def restore_state(self) -> None:
        """Undoes the changes that this attempt made to PyTorch's global state."""
        for change in reversed(self.state_changes):
            change.undo(*change.undo_args)

    def _run(self, fn: Any, args: Any, kwargs: Any) -> tuple[Any, OperationWarnings | None]:
        """Runs an operation on fake tensors; returns the result and the warnings that it gives."""
        if self._view_gained_history:
            raise Unsupported("unsupported operation", "if it failed, the new history of a view could not be undone")
        run = fake_execution(fn, args, kwargs, self.mode, self.symbols)
        self.mode.waits = False
        if levels.depth():
            return self._run_in_transform(run), None
        self.symbols.env.in_operation = True
        try:
            with silence_warnings() as messages, warn_always():
                result = run()
        finally:
            self.symbols.env.in_operation = False
        self._check_replaced(fn, args, result)
        if custom_operator(fn) is not None:
            self._check_backward(str(fn), (args, kwargs), result)
        if messages and self.symbols.specialize_named(" ".join(str(m.message) for m in messages)):
            with silence_warnings() as messages, warn_always():
                run()
        return result, self.warnings.finish(fn, run, messages, self._python_place)

    def _check_backward(self, operator_name: str, arguments: Any, result: Any) -> None:
        """Raises Unsupported for a custom operator whose backward, a function of Python, cannot be traced."""
        outputs = [t for t in tensors_in(result) if t.requires_grad]
        inputs = [t for t in tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not outputs or not inputs:
            return
        fresh = self.symbols.env.pending_fresh_unbacked_symbols
        known, problem = len(fresh), ""
        try:
            with torch.autograd.set_multithreading_enabled(False), silence_warnings(), self.mode:
                tangents = list(map(torch.empty_like, outputs))
                torch.autograd.grad(outputs, inputs, tangents, retain_graph=True, allow_unused=True)
        except Exception as error:
            problem = str(error)
        if problem or len(fresh) > known:
            del fresh[known:]
            raise Unsupported("custom operator", f"{operator_name}: {problem or 'tensor value read'}")

    def _check_replaced(self, fn: Any, args: Sequence[Any], result: Any) -> None:
        """Raises Unsupported if an operation wrote to a tensor in `replaced`, or made a view of one."""
        if any(fake._version for fake in self.replaced):
            raise Unsupported("unsupported mutation", "a tensor is written to whose .data was set")
        of_replaced = fn is not getattr and any(arg is fake for arg in args for fake in self.replaced)
        if of_replaced and not {storage_id(t) for t in tensors_in(result)}.isdisjoint(map(storage_id, self.replaced)):
            raise Unsupported("unsupported mutation", "a view of a tensor whose .data was set")

    def _run_in_transform(self, run: Callable[[], Any]) -> Any:
        """Runs an operation within a transform, which may neither warn nor write to a tensor from outside."""
        outside = self._input_fakes()
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
        if isinstance(result, str):
            raise Unsupported("unsupported operation", f"{node.target} makes text, which may show the fake tensor")
        if is_atom(result) or isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.fx_graph.erase_node(node)
            return self._known_number(result)
        raise Unsupported("unsupported call", f"{node.target} returned a {type(result).__name__}")

    def _tensor_result(self, fake: torch.Tensor, node: fx.Node) -> TensorValue:
        known = self._values_by_fake.get(id(fake))
        if known is None:
            if is_subclass_of_program(type(fake)) and not is_wrapper(fake):
                name = getattr(node.target, "__name__", node.target)
                raise Unsupported("unsupported call", f"{name} makes a {type(fake).__name__}, a tensor subclass")
            # an in-place operation returns its argument, which has a value already
            # (a view made with gradients off has is_leaf set, too)
            is_leaf = fake.requires_grad and fake.is_leaf and not (fake._is_view() or levels.is_wrapped(fake))
            if is_leaf and not is_wrapper(fake):  # what makes a wrapper runs as it is
                self.add_leaf(fake, f"{getattr(node.target, '__name__', node.target)}(..., requires_grad=True)")
            made = TraceableWrapperValue if is_wrapper(fake) else TensorValue
            known = self._values_by_fake[id(fake)] = made(fake, node)
        return known

    def _item_result(self, item: Any, node: fx.Node, i: int) -> Value:
        if isinstance(item, torch.Tensor):
            getitem = self.fx_graph.call_function(operator.getitem, (node, i))
            self._set_meta(getitem, item)
            getitem.meta["waits"] = node.meta.get("waits")
            return self._tensor_result(item, getitem)
        if isinstance(item, (tuple, list)):
            raise Unsupported("unsupported call", f"{node.target} returned nested sequences")
        return self._known_number(item) if fx_symbols.is_symbolic(item) else from_python(item)

    def _known_number(self, number: Any) -> Value:
        """Returns the value of a number that an operation has made; Unsupported if only its call knows it."""
        symbols = number.node.expr.free_symbols if fx_symbols.is_symbolic(number) else ()
        if any(is_unbacked(symbol) and symbol not in self.symbols.env.measured for symbol in symbols):
            raise Unsupported("tensor value read", "an operation returns a number that data decide")
        return from_number(number)

    def finish(self, outputs: dict[fx.Node, int], spent: Sequence[int]) -> fx.GraphModule:
        """Ends the graph with these outputs and returns it; unused items of multiple results are removed.

        The outputs at the positions `spent` (`spent_outputs`) leave it without their history.
        """
        for node in reversed(self.fx_graph.nodes):
            if _is_item_of_results(node) and not node.users and node not in outputs:
                self.fx_graph.erase_node(node)
        # backends differ in the state that they leave behind, so the graph undoes it and generated code makes it again
        for change in reversed(self.state_changes):
            self._change_node(change.undo, change.undo_args)
        returned = list(outputs)
        for i in spent:
            returned[i] = self._compute(torch.Tensor.detach, [returned[i]], returned[i].meta["val"].detach())
        self.fx_graph.output(tuple(returned))
        return graph_module(self.modules, self.fx_graph, "Captured")

    @property
    def is_empty(self) -> bool:
        """Whether the graph computes nothing."""
        return all(n.op == "placeholder" or n.target in STATE_CHANGING_FUNCTIONS for n in self.fx_graph.nodes)

    @property
    def only_reads(self) -> bool:
        """Whether the graph only copies numbers of its inputs, which Python reads."""
        return all(n.op in ("placeholder", "output") or "read" in n.meta for n in self.fx_graph.nodes)


def _source_of_sizes(real: torch.Tensor, source: Source) -> Source:
    return plain_tensor(source) if is_subclass_of_program(type(real)) else source


_POWERS = frozenset({"pow", "pow_", "__pow__", "__ipow__", "__rpow__", "ipow", "float_power", "float_power_"})
_ROOT = re.compile(r"\b[LG]\[(?='\w+'\])")
_OF_OPTIMIZER = re.compile(r"\b[LG]\['\w+'\](?:\.\w+|\['\w+'\]|\[\d+\])*?\.param_groups\[\d+\]\['params'\]\[\d+\]")
"""The path to a parameter in a group of an optimizer."""


def _placeholder_name(text: str) -> str:
    """Returns a placeholder's name for a source such as ``L['self'].fc.weight``."""
    kept = "".join(c if c.isalnum() else "_" for c in _ROOT.sub("", text))
    name = "_".join(filter(None, kept.split("_"))).lower()
    name = name if name.isidentifier() else f"arg_{name}".rstrip("_")  # IPython's results are called _ and _3
    return "self_" if name == "self" else name  # the graph's own name in its generated code


def fake_execution(fn: Any, args: Any, kwargs: Any, mode: FakeMode, symbols: Symbols) -> Callable[[], Any]:
    """Returns a function that runs an operation on fake tensors, and keeps nothing else of the capture alive."""

    def run() -> Any:
        in_python = fx_symbols.python_decompositions(bool(symbols.sources or symbols.env.measured))
        checked = errors_break_graph(fn, args, kwargs)
        with checked, mode, muted_fake_log(), in_python, fx_symbols.as_in_eager(fn):
            return _FAKE.get(fn, fake_implementation(fn))(*args, **kwargs)

    return run


def _write_lists(*lists: Sequence[torch.Tensor], **_: Any) -> None:
    """Counts the writes of a fused optimizer.  Its numbers may be symbolic, which PyTorch's kernels make constants."""
    torch.autograd.graph.increment_version([tensor for tensors in lists for tensor in tensors])


def _item(tensor: Any, key: Any) -> Any:
    """``tensor[key]``, also where numbers that data decide are among several indices, which PyTorch refuses."""
    if not isinstance(tensor, torch.Tensor) or not _has_unknown_number(key):
        return operator.getitem(tensor, key)
    view = tensor[tuple(slice(None) if isinstance(each, torch.SymInt) else each for each in key)]
    used = sum(each is not None and each is not Ellipsis for each in key)
    dim, selected = 0, []
    for each in key:
        selected += [(dim, each)] if isinstance(each, torch.SymInt) else []
        dim += tensor.dim() - used if each is Ellipsis else type(each) is not int
    for at, index in reversed(selected):
        view = view.select(at, index)
    return view


def _set_item(tensor: Any, key: Any, value: Any) -> None:
    """``tensor[key] = value``, as `_item`."""
    if isinstance(tensor, torch.Tensor) and _has_unknown_number(key):
        tensor, key = _item(tensor, key), Ellipsis
    operator.setitem(tensor, key, value)


def _has_unknown_number(key: Any) -> bool:
    """Whether an index is several basic ones, with a number among them that data decide."""
    is_basic = isinstance(key, tuple) and all(
        each is None or each is Ellipsis or type(each) in (int, slice, torch.SymInt) for each in key
    )
    return is_basic and any(isinstance(each, torch.SymInt) and free_unbacked_symbols(each) for each in key)


_FAKE: dict[Any, Callable[..., Any]] = {
    operator.getitem: _item,
    operator.setitem: _set_item,
    torch.nn.functional.batch_norm: batch_norm,
    torch.autograd.grad: compute_gradients,
    **dict.fromkeys((fused_adagrad, fused_adam, fused_adamw, fused_sgd), _write_lists),
}
"""What runs on fake tensors instead of a function."""

_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def _class_as_dtype(value: Value) -> Value:
    """Returns the dtype for a class of Python's numbers, which PyTorch takes in its place."""
    if isinstance(value, StaticValue) and isinstance(value.obj, type) and value.obj in _DTYPES:
        return ConstantValue(_DTYPES[value.obj])
    return value


_ASKED_FOR_LAYOUT = ("dim", "size", "storage_offset", "stride")
"""The methods by which PyTorch asks a tensor what a fake one like it has to be."""


def _has_own(real: torch.Tensor, name: str) -> bool:
    """Whether the class of a tensor, or the tensor itself, has another attribute of this name than tensors have."""
    return name in getattr(real, "__dict__", {}) or lookup_in_mro(type(real), name) is not getattr(torch.Tensor, name)


_OFFSETS = {"as_strided": 3, "as_strided_copy": 3, "as_strided_scatter": 4}
"""Operators that take a place in memory, with the position of that argument."""


def _guard_place(tx: Interpreter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> None:
    """Guards where outside tensors lie in their memory if an operator counts from the start of it."""
    offset = _OFFSETS.get(name.partition(".")[0])
    if offset is not None and (len(args) > offset or "storage_offset" in kwargs) and isinstance(args[0], TensorValue):
        args[0].guard_offset(tx)


_SAME_AS_PYTHON = NEVER_RAISE | {operator.truediv}
"""The arithmetic of floats of which tensors of float64 have the same results."""


def _is_item_of_results(node: fx.Node) -> bool:
    """Whether a node is one of several results of an operation, and not a part of a tensor."""
    if node.target is not operator.getitem or isinstance(node.args[1], slice) or not isinstance(node.args[0], fx.Node):
        return False
    return not isinstance(node.args[0].meta.get("val"), torch.Tensor)
