"""One attempt to capture a frame: the FX graph as it grows, its inputs, guards and side effects.

An attempt is thrown away whole when the graph must break: capture starts again and stops just
before the instruction that cannot be captured, so there is never anything to roll back.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from compiler_core.capture.alias_guards import must_differ
from compiler_core.capture.dynamic_policy import Policy
from compiler_core.capture.fake_tensors import FakeMode, fake_of, left_to_eager, quiet
from compiler_core.capture.rules.torch.arguments import arguments
from compiler_core.capture.side_effects import SideEffects
from compiler_core.capture.symbolic_shapes import OPERATIONS, Symbols
from compiler_core.capture.value_builder import is_static, value_of
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.keys import ObjectKey
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.constant import NONE, ConstantValue, from_python, is_a, is_atom
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.symbols import SymbolicNumber, from_number
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.errors import Unsupported
from compiler_core.guards import GuardSpec, LibraryNames, current_gpu_guard, frozen, no_dispatch_mode_guard, state_guard
from compiler_core.guards.constants import NUMPY_NUMBERS, may_be_two
from compiler_core.guards.lifetimes import Mortal, boxed
from compiler_core.guards.sources import Attribute, Constant, FreeCell, Held, Scope, Source, root_of
from compiler_core.records import ItemId
from compiler_core.support.eager_warnings import Heard, Place, Said
from compiler_core.support.fx_graphs import graph_module, memory_of
from compiler_core.support.opaque_ops import stand_in
from compiler_core.support.silenced_warnings import every_warning, unheard
from compiler_core.support.torch_state import CHANGES, Change, gpu_by_default, grad_mode

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter, Mark
    from compiler_core.capture.values.user.generators import GeneratorValue

# kinds of which one source may have several
GUARDED_BY_VALUE = frozenset({"DICT_CONTAINS", "DICT_HAS", "NO_ATTRIBUTE", "SAME_OBJECT", "NOT_SAME_OBJECT"})
At = tuple[tuple[ItemId, ...], ItemId | None, str]
MAX_NODES = 20_000
MAX_STEPS = 500_000
MAX_ROUNDS = 10_000


class Capture:
    """What one attempt has gathered so far."""

    def __init__(self, scope: Scope, policy: Policy) -> None:
        self.scope = scope
        self.graph = fx.Graph()
        self.symbols = Symbols(policy)
        self.mode = FakeMode(shape_env=self.symbols.env, static_shapes=True)
        self.mode.heard = self._heard = Heard()
        self.inputs: list[TensorValue | SymbolicNumber] = []
        self._last_placeholder: fx.Node | None = None
        self.guards: dict[Any, GuardSpec] = {"GLOBAL_STATE": state_guard()}
        self.library = LibraryNames()
        self.effects = SideEffects()
        self.inference = torch.is_inference_mode_enabled()
        self.changes: list[Change] = []
        """Of the ambient state, those not taken back: what the frame has changed when the graph has run."""
        self.working: Any = None
        """The interpreter at work: the root's or that of an inlined call."""
        self.steps = 0
        self.stop_at: int | None = None
        """The number of the step before which to stop."""
        self._at: At = ((), None, "")
        self.hashed: dict[int, tuple[Any, Source]] = {}
        """Outside objects whose identity was a key of a dict or an element of a set."""
        self.tuple_keys: dict[int, tuple[tuple[Any, ...], Value]] = {}
        """Tuples as keys, each with the value that it was made from: taken from a dict, it is that very object."""
        self.suspended: dict[GeneratorValue, Mark] = {}
        """Generators that stand in a try or with block, and the root's instruction that made each."""
        self._input_names: dict[str, int] = {}
        self._rounds = 0
        self.seen: dict[int, tuple[Any, Value]] = {}
        """Outside objects by their id, each with the value that stands for it."""
        self.namespaces: dict[int, Held] = {}
        """The globals of the frame and of the functions that it calls, by their id."""
        self.same_cells: dict[Source, FreeCell] = {}
        """Cells of the frame's own function that were reached through another function's closure."""
        self._by_fake: dict[int, TensorValue] = {}
        self._views: set[int] = set()
        """The memory of views from outside that have no history."""
        self._history_stays = False
        self._held: dict[int, Held] = {}
        self._boxes: dict[int, tuple[Any, Constant]] = {}
        self._by_expr: dict[Any, Any] = {}

    @property
    def at(self) -> At:
        """Origin items, user line and stack trace of the instruction at work; the interpreter sets it."""
        return self._at

    @at.setter
    def at(self, at: At) -> None:
        self._at, self.symbols.env.line = at, at[1]

    # ------------------------------------------------------------ outside objects

    def wrap(self, obj: Any, source: Source | None) -> Value:
        """The value of an outside object; the same object gives the same value.  `source` None: it was
        found through something guarded and is taken not to change (a function of a class)."""
        if type(obj) in (int, float) and source is not None:
            why = self.symbols.policy.number(obj, source)
            if why is not None:
                return SymbolicNumber(self.symbols.number(obj, source, why), source)
        if is_atom(obj):
            return ConstantValue(obj, source)
        if is_static(obj):
            return self._static(obj, source)
        path = source or self.held(obj, getattr(obj, "__name__", type(obj).__name__))
        if id(obj) in self.seen:
            value = self.seen[id(obj)][1]
            if value.source is not None and value.source != path:
                self.guard("SAME_OBJECT", path, value.source)
            return value
        made = value_of(self, obj, path)
        self.seen[id(obj)] = (obj, made)
        return made

    def wrap_static(self, obj: Any) -> Value:
        return self.wrap(obj, None)

    def wrap_attribute(self, obj: Any, source: Source) -> Value:
        """An attribute of a class or a default: functions and classes there are taken not to change."""
        return self._static(obj, None) if is_static(obj) else self.wrap(obj, source)

    def _static(self, obj: Any, source: Source | None) -> Value:
        if is_a(obj, types.FunctionType):
            return FunctionValue.outside(self, obj, source)
        return StaticValue(obj, source)

    def cell(self, cell: types.CellType, source: Source) -> CellValue:
        if id(cell) not in self.seen:
            self.seen[id(cell)] = (cell, CellValue(source=source, real=cell))
        found = self.seen[id(cell)][1]
        assert isinstance(found, CellValue)
        assert found.source is not None
        if found.source != source:
            self._is_same_cell(found.source, source)
        return found

    def _is_same_cell(self, known: Source, source: Source) -> None:
        if isinstance(known, FreeCell):
            self.same_cells[source] = known
        elif isinstance(source, FreeCell):
            self.same_cells[known] = source
        elif not all(isinstance(root_of(s), Held) for s in (known, source)):
            self.guard("SAME_OBJECT", source, known)

    def held(self, obj: Any, name: str) -> Held:
        """A source for an object that generated code and guards hold themselves."""
        if id(obj) not in self._held:
            self._held[id(obj)] = Held(self.boxed(obj), name)
        return self._held[id(obj)]

    def boxed(self, obj: Any) -> Constant:
        """What generated code and guards hold of an outside object."""
        if id(obj) not in self._boxes:
            self._boxes[id(obj)] = obj, boxed(obj)
        return self._boxes[id(obj)][1]

    def mortals(self) -> list[Mortal]:
        """What generated code and guards refer to, and do not keep alive."""
        of_guards = [guard.value for guard in self.guards.values()]
        found = [*of_guards, *(box for _, box in self._boxes.values())]
        return [box for box in found if isinstance(box, Mortal)]

    def namespace(self, f_globals: dict[str, Any]) -> Held | None:
        """A source for the globals of an inlined function or of a module; None for the frame's own."""
        held = self.namespaces[id(f_globals)] = self.held(f_globals, str(f_globals.get("__name__", "globals")))
        return None if f_globals is self.scope.f_globals else held

    def check_fresh(self, namespace: Any) -> None:
        """Unsupported where `namespace` is the globals of code that has stored some."""
        held = self.namespaces.get(id(namespace))
        if held is not None and self.effects.writes_globals(None if namespace is self.scope.f_globals else held):
            raise Unsupported("unsupported call", "a look at globals by way of their dict, after some were stored")

    def key_value(self, key: Any) -> Value:
        """A dict key as a value."""
        if isinstance(key, ObjectKey):
            return key.value
        if type(key) is tuple:
            known = self.tuple_keys.get(id(key))
            return known[1] if known else TupleValue([self.key_value(k) for k in key])
        if isinstance(key, Value):
            return key
        return from_python(key) if is_atom(key) or isinstance(key, (tuple, frozenset)) else self.wrap_static(key)

    # ------------------------------------------------------------ guards and limits

    def guard(self, kind: str, source: Source, value: Any) -> None:
        key = (kind, source, value if kind in GUARDED_BY_VALUE else None)
        if key not in self.guards:
            self.guards[key] = GuardSpec(kind, source, frozen(kind, value), self.at[1])

    def looked_up(self, names: dict[str, Any], home: str, name: str) -> None:
        """`name` was looked up in the dict of a library's module: it is to stay what it is."""
        self.library.look(names, home, name, self.at[1])

    def looked_up_in_class(self, cls: type, *names: str) -> None:
        """The same of a class, and what it inherits."""
        for name in names:
            if not (isinstance(self.boxed(cls), Mortal) and self._guarded_by_name(cls, name)):
                self.library.look_in_class(cls, name, self.at[1])

    def _guarded_by_name(self, cls: type, name: str) -> bool:
        """Guard what a class that may die has as `name`: the dict of a class would keep it alive.  False if it can't
        be guarded that way."""
        found, held = getattr(cls, name, None), self.held(cls, cls.__qualname__)
        if not hasattr(cls, name):
            self.guard("NO_ATTRIBUTE", held, name)
        elif isinstance(found, types.FunctionType):
            self.guard("ID_MATCH", Attribute(held, name), found)
        else:
            return False
        return True

    def is_guarded(self, value: Value) -> bool:
        """Whether it is a constant that is sure to be this one, which programs tell by no identity."""
        if not isinstance(value, ConstantValue) or ("EQUALS_MATCH", value.source, None) not in self.guards:
            return False
        return not (isinstance(value.value, NUMPY_NUMBERS) or may_be_two(value.value, value.value))

    def all_guards(self) -> list[GuardSpec]:
        """Every guard, with those that say which objects must not be one and the same."""
        for spec in must_differ(self):
            self.guards.setdefault((spec.kind, spec.source, None), spec)
        for source, condition, line in self.symbols.conditions():
            for number in condition.numbers():
                self.guard("TYPE_MATCH", number, number.fetch(self.scope))
            self.guards[("CONDITION", condition.text)] = GuardSpec("CONDITION", source, condition, line)
        if not self.is_empty and all(guard.kind != "TENSOR_MATCH" for guard in self.guards.values()):
            self.guards["NO_DISPATCH_MODE"] = no_dispatch_mode_guard()
        if (gpu := gpu_by_default(self.graph)) is not None:
            self.guards["CURRENT_GPU"] = current_gpu_guard(gpu)
        return [*self.guards.values(), *self.library.specs()]

    def check_unroll(self, rounds: int) -> None:
        if rounds > MAX_ROUNDS:
            raise Unsupported("unroll limit", f"{rounds:,} rounds")

    def count_round(self) -> None:
        self._rounds += 1
        self.check_unroll(self._rounds)

    def count_step(self) -> int:
        self.steps += 1
        if self.steps > MAX_STEPS or len(self.graph.nodes) > MAX_NODES:
            raise Unsupported("unroll limit", f"{self.steps:,} instructions, {len(self.graph.nodes):,} nodes")
        return self.steps

    # ------------------------------------------------------------ the graph

    def fake(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        try:
            made = fake_of(self.mode, real, self.symbols.context(real, source))
        except RuntimeError as error:  # a kind that there are no fakes of; a view that autograd has lost track of
            raise Unsupported("unsupported operation", str(error)) from None
        except AssertionError:  # PyTorch finds that it is unlike `real`: another name of it was written to before
            raise Unsupported("unsupported operation", "a tensor that a write to another has given a history") from None
        self.symbols.note(made, source)
        return made

    def placeholder(self, tensor: TensorValue, fake: torch.Tensor) -> fx.Node:
        """Make an outside tensor an input of the graph."""
        assert tensor.source is not None
        self._by_fake[id(fake)] = tensor
        if tensor.real is not None and tensor.real._is_view() and not fake.requires_grad:
            self._views.add(memory_of(fake))
        return self._input(tensor, tensor.source, fake)

    def tensors_of(self, memory: int) -> list[TensorValue]:
        """The graph's inputs whose fakes lie in this storage."""
        tensors = [v for v in self.inputs if isinstance(v, TensorValue) and v._fake is not None]
        return [v for v in tensors if v._fake.untyped_storage()._cdata == memory]  # type: ignore[union-attr]

    def _input(self, value: TensorValue | SymbolicNumber, source: Source, example: Any) -> fx.Node:
        last = self._last_placeholder
        with self.graph.inserting_after(last) if last is not None else self.graph.inserting_before(_first(self.graph)):
            node = self._last_placeholder = self.graph.placeholder(self._input_name(source.text))
        self._describe(node, example)
        self.inputs.append(value)
        return node

    def number(self, number: Any) -> Any:
        """What stands in the graph for a symbolic number: an input, a node that computes it, or the number it has
        become."""
        expr = number.node.expr
        if expr.is_number:
            return number.node.pytype(expr)
        if expr not in self._by_expr:
            self._by_expr[expr] = self._number_node(expr, number)
        return self._by_expr[expr]

    def _number_node(self, expr: Any, number: Any) -> Any:
        env = self.symbols.env
        if expr.is_Symbol:
            return self._input(SymbolicNumber(number), self.symbols.sources[expr], number)
        operation = OPERATIONS.get(expr.func)
        if operation is None:
            return int(number)
        parts = [env.create_symintnode(arg, hint=None) for arg in expr.args]
        nodes = [self.number(p) if isinstance(p, torch.SymInt) else p for p in parts]
        if len(parts) == 1:
            return self._compute(operation, nodes, number)
        total, value = nodes[0], parts[0]
        for node, part in zip(nodes[1:], parts[1:], strict=True):
            value = operation(value, part)
            total = self._compute(operation, [total, node], value)
        return total

    def _compute(self, operation: Any, args: Sequence[Any], value: Any) -> fx.Node:
        node = self.graph.call_function(operation, tuple(args))
        self._describe(node, value)
        return node

    def _input_name(self, text: str) -> str:
        """A name of its own for an input: ``L['a'].b`` and ``L['a_b']`` read alike."""
        name = _identifier(text)
        count = self._input_names[name] = self._input_names.get(name, 0) + 1
        return name if count == 1 else f"{name}__{count}"

    def call_function(self, tx: Interpreter, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(fn, types.FunctionType):
            self.library.look_inside(fn, self.at[1])
        fake_args, node_args = arguments(tx, list(args))
        fake_kwargs, node_kwargs = arguments(tx, dict(kwargs))
        result, said = self._run(fn, fake_args, fake_kwargs)
        self._note_write(fake_args)
        node = self.graph.call_function(fn, tuple(node_args), node_kwargs)
        return self._result(result, node, said)

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Call method `name` of the tensor ``args[0]``."""
        fake_args, node_args = arguments(tx, list(args))
        fake_kwargs, node_kwargs = arguments(tx, dict(kwargs))
        result, said = self._run(getattr(fake_args[0], name), fake_args[1:], fake_kwargs)
        self._note_write(fake_args)
        node = self.graph.call_method(name, tuple(node_args), node_kwargs)
        return self._result(result, node, said)

    def change(self, change: Change) -> None:
        """Change the ambient state: now, for the operations to come, and in the graph."""
        if self.inference and change == grad_mode(True):
            raise Unsupported("unsupported operation", "gradients turned on in inference mode")
        try:
            change.do(*change.args)
        except TypeError as error:
            raise Unsupported("exception", f"TypeError: {error}") from None
        self._describe(self.graph.call_function(change.do, change.args), None)
        if self.changes and change.takes_back(self.changes[-1]):
            self.changes.pop()
        else:
            self.changes.append(change)

    @property
    def grad_enabled(self) -> bool:
        return torch.is_grad_enabled()

    def restore(self) -> None:
        """Take back what the capture changed of the ambient state."""
        for change in reversed(self.changes):
            change.undo(*change.undo_args)

    def _run(self, fn: Any, args: Any, kwargs: Any) -> tuple[Any, Said | None]:
        """Run an operation on fake tensors: the result, and what it warns of."""
        if self._history_stays:
            raise Unsupported("unsupported operation", "should it fail, the history of a view before it would stay")
        run = _on_fakes(fn, args, kwargs, self.mode, self.symbols)
        with unheard() as messages, every_warning():
            result = run()
        if messages and self.symbols.fix(" ".join(str(m.message) for m in messages)):
            with unheard() as messages, every_warning():
                run()
        return result, self._heard.said(fn, run, messages, self._place)

    def _place(self) -> Place:
        """The instruction at work, of the user's or a library's code."""
        tx = self.working
        return Place(tx.code.co_filename, tx.lineno, tx.f_globals)

    def _note_write(self, args: Sequence[Any]) -> None:
        """Whether a view from outside now has a history: that of other inputs can be taken back
        (`resume/eager_fallback.py`)."""
        written = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if self._views and written is not None and written._version > 0 and written.requires_grad:
            self._history_stays = memory_of(written) in self._views

    def _result(self, result: Any, node: fx.Node, said: Said | None) -> Value:
        self._describe(node, result)
        if said is not None:
            node.meta["said"] = said
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
        known = self._by_fake.get(id(fake))
        if known is None:
            # an operation in place returns its argument, which is the same object to Python
            # (a view made with gradients off still says that it is a leaf)
            if fake.requires_grad and fake.is_leaf and not fake._is_view():
                raise Unsupported("unsupported call", f"{node.target} makes a tensor that gradients are kept for")
            known = self._by_fake[id(fake)] = TensorValue(fake, node)
        return known

    def _item_result(self, item: Any, node: fx.Node, i: int) -> Value:
        if isinstance(item, torch.Tensor):
            getitem = self.graph.call_function(operator.getitem, (node, i))
            self._describe(getitem, item)
            return self._tensor_result(item, getitem)
        if isinstance(item, (tuple, list)):
            raise Unsupported("unsupported call", f"{node.target} returned nested sequences")
        return from_python(item)

    def _describe(self, node: fx.Node, value: Any) -> None:
        origin, _, trace = self.at
        node.meta.update(val=value, origin=origin, rule="capture", stack_trace=trace)
        node.meta["module"] = None if self.working is None else self.working.within

    def finish(self, outputs: dict[fx.Node, int]) -> fx.GraphModule:
        """Close the graph with these outputs; picks that nothing reads are dropped."""
        for node in reversed(self.graph.nodes):
            if node.target is operator.getitem and not node.users and node not in outputs:
                if not isinstance(node.args[1], slice) and isinstance(node.args[0], fx.Node):
                    if not isinstance(node.args[0].meta.get("val"), torch.Tensor):
                        self.graph.erase_node(node)
        for change in reversed(self.changes):  # backends differ in what they leave behind: generated code makes it so
            self._describe(self.graph.call_function(change.undo, change.undo_args), None)
        self.graph.output(tuple(outputs))
        return graph_module(torch.nn.Module(), self.graph, "Captured")

    def examples(self) -> list[Any]:
        """The graph's inputs as they come in: what the frame has done to them since is not seen."""
        self.symbols.settle()
        fresh = FakeMode(shape_env=self.symbols.env, static_shapes=True)
        return [self._example(value, fresh) for value in self.inputs]

    def _example(self, value: TensorValue | SymbolicNumber, fresh: FakeMode) -> Any:
        if isinstance(value, SymbolicNumber):
            return value.value if value.sym.node.expr.is_number else value.sym
        assert value.real is not None and value.source is not None
        return fake_of(fresh, value.real, self.symbols.context(value.real, value.source))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was computed."""
        return all(n.op == "placeholder" or n.target in CHANGES for n in self.graph.nodes)


def _on_fakes(fn: Any, args: Any, kwargs: Any, mode: FakeMode, symbols: Symbols) -> Callable[[], Any]:
    """An operation on tensors without values, to be run; it keeps nothing else of a capture alive."""

    def run() -> Any:
        with left_to_eager(fn), mode, quiet(), symbols.dispatching():
            return stand_in(fn)(*args, **kwargs)

    return run


def _first(graph: fx.Graph) -> fx.Node:
    return next(iter(graph.nodes), graph._root)


def _identifier(text: str) -> str:
    """``L['self'].fc.weight`` as the name of a placeholder."""
    kept = "".join(c if c.isalnum() else "_" for c in text.removeprefix("L[").removeprefix("G["))
    name = "_".join(filter(None, kept.split("_"))).lower()
    name = name if name.isidentifier() else f"arg_{name}".rstrip("_")  # IPython's results are called _ and _3
    return "self_" if name == "self" else name  # the graph's own name in its generated code
