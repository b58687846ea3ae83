"""One attempt to capture a frame: the graph, the guards, the objects from outside and their changes.

If the graph must break, the attempt is discarded as a whole: capture starts again and stops just before the instruction
that cannot be captured, so nothing ever has to be rolled back.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compiler_core.capture.graph_builder import GraphBuilder, Region
from compiler_core.capture.guard_collector import GuardCollector
from compiler_core.capture.made_state import MadeState, StateMaker
from compiler_core.capture.outside_objects import OutsideObjects
from compiler_core.capture.rules.python.cached import state_read
from compiler_core.capture.side_effects import SideEffects
from compiler_core.capture.tensors.symbolic_shapes import DynamicPolicy
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.cached_calls import CacheChanges, CallLog, OutsideState
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import Overrides
from compiler_core.capture.values.user.functions import CellValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards import GuardSpec, all_hold, current_gpu_guard, no_dispatch_mode_guard
from compiler_core.guards.sources import FreeCellSource, InstanceDictSource, Scope, Source
from compiler_core.support.torch_state import index_of_current_gpu

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import StopPoint
    from compiler_core.capture.values.user.generators import GeneratorValue
    from compiler_core.tools.step_recorder import StepRecorder

MAX_NODES = 20_000
"""Nodes in one graph."""
_STEPS_PER_LOOK = 64
"""After how many instructions the nodes are counted."""
MAX_STEPS = 500_000
"""Instructions in one attempt."""
MAX_ITERATIONS = 10_000
"""Loop iterations unrolled in one attempt."""


class Capture:
    """Everything that one attempt has captured so far.

    Args:
        scope: the variables of the frame.
        policy: which sizes and numbers are symbolic.
        recorder: records what each step adds.
    """

    def __init__(self, scope: Scope, policy: DynamicPolicy, recorder: StepRecorder | None = None) -> None:
        self.recorder = recorder
        self.guards = GuardCollector(scope, policy, recorder)
        self.effects = SideEffects(recorder)
        self.outside = OutsideObjects(self.guards, self.effects)
        self.graph = GraphBuilder(self.guards, recorder)
        self.overrides = Overrides()
        self.steps = 0
        self.stop_at: int | None = None
        """The number of the step before which to stop."""
        self.open_generators: dict[GeneratorValue, StopPoint] = {}
        """Generators suspended in a try or with block, each with the root's instruction that made it."""
        self.pending_works: dict[Value, StopPoint] = {}
        """Collectives that the frame has not waited for, each with the root's instruction that started it."""
        self.cached_calls = CallLog([], CacheChanges())
        self.awaited: list[tuple[str, Source, Any]] = []
        """Guards of a frame that breaks: they hold while what the graph breaks for is not there, and once it is, the
        frame is captured again."""
        self.asked_if_compiling = False
        """Whether the program asked if it is compiled, and the answer was yes."""
        self.made_state = MadeState()
        self.state_makers: list[StateMaker] = []
        self._iterations = 0

    def make_state(self, source: Source | None, obj: Any, make: Callable[[Any, MadeState], None]) -> None:
        """Makes the state of an outside object now, and notes how, for further objects at its source."""
        make(obj, self.made_state)
        if source is not None:
            self.state_makers.append(StateMaker(source, make))

    @property
    def unfinished(self) -> list[StopPoint]:
        """What made the open generators and started the pending collectives: Python must do that if capture stops."""
        return [*self.open_generators.values(), *self.pending_works.values()]

    @contextmanager
    def inside(self, region: Region | None, why: str) -> Iterator[None]:
        """Within the block, nodes are of `region`, and changes of outside objects break the graph, with this reason."""
        before = self.graph.region, self.effects.frozen
        self.graph.region, self.effects.frozen = region, why
        try:
            yield
        finally:
            self.graph.region, self.effects.frozen = before

    # ------------------------------------------------------------ guards and limits

    def all_guards(self) -> list[GuardSpec]:
        """Returns every guard, including conditions on sizes and those on which objects must be distinct."""
        for spec in distinct_object_guards(self.outside):
            self.guards.specs.setdefault((spec.kind, spec.source, None), spec)
        for source, condition, line in self.guards.symbols.conditions():
            for number in condition.number_sources():
                self.guards.add("TYPE_MATCH", number, number.fetch(self.guards.scope))
            self.guards.specs[("CONDITION", condition.text)] = GuardSpec("CONDITION", source, condition, line)
        if not self.graph.is_empty and all(guard.kind != "TENSOR_MATCH" for guard in self.guards.specs.values()):
            self.guards.specs["NO_DISPATCH_MODE"] = no_dispatch_mode_guard()
        if (gpu := index_of_current_gpu(self.graph.fx_graph)) is not None:
            self.guards.specs["CURRENT_GPU"] = current_gpu_guard(gpu)
        # a module may have led to a parameter after its guard was added
        named = [(spec, self.guards.name_of(spec.source)) for spec in self.guards.specs.values()]
        specs = [replace(spec, name=name) if name else spec for spec, name in named]
        return [*specs, *self.guards.library.guards()]

    def guards_hold(self) -> bool:
        """Whether everything that capture has looked at is as it was, except for what the frame changed."""
        guards = [guard for guard in self.guards.specs.values() if guard.kind != "GLOBAL_STATE"]
        return all_hold(guards, self.guards.scope)

    def changes(self) -> OutsideState:
        """Returns what the frame has changed outside of it so far, which a real call would not see."""
        tensors = [v._fake for v in self.graph.inputs if isinstance(v, TensorValue) and v._fake is not None]
        return self.effects.changes(self.guards.scope, any(fake._version for fake in tensors))

    def reads(self) -> OutsideState:
        """Returns what the frame has read outside of it so far, but for functions, classes and modules."""
        tensors = any(isinstance(v, TensorValue) for v in self.graph.inputs)
        return state_read(self.guards.specs.values(), self.guards.scope, tensors)

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
        if self.steps > MAX_STEPS or (looks_at_nodes and len(self.graph.fx_graph.nodes) > MAX_NODES):
            raise Unsupported("unroll limit", f"{self.steps:,} instructions, {len(self.graph.fx_graph.nodes):,} nodes")
        return self.steps


# ------------------------------------------------------------ objects that must be distinct
#
# Capture did not apply a change of one to the others.


def distinct_object_guards(outside: OutsideObjects) -> Iterator[GuardSpec]:
    """Yields a guard for each type if one object of it was changed and others were read or changed."""
    by_type: dict[type, dict[Source, None]] = {}
    for obj, source in outside.identity_keys.values():
        by_type.setdefault(type(obj), {})[source] = None
    owners = outside.effects.owners()
    _check_instance_dicts(outside, owners)
    for value in [*owners, *_guarded_objects(outside, {type(v.real) for v in owners})]:
        by_type.setdefault(type(value.real), {})[value.source] = None
    _add_instance_dicts(outside, owners, by_type)
    _add_namespaces(outside, owners, by_type)
    yield from _namespace_identities(outside, by_type.get(dict, {}))
    if outside.effects.writes_cells():
        by_type.setdefault(types.CellType, {}).update(dict.fromkeys(_cells(outside)))
    for first, *rest in by_type.values():
        if rest:
            yield GuardSpec("ALL_DIFFERENT", first, tuple(rest), None)


def cell_identities(outside: OutsideObjects) -> Iterator[tuple[FreeCellSource, Source, bool]]:
    """Yields a cell of the frame's own function, a cell reached in another way, and whether they must be the same.

    Generated code checks it, because functions with different cells share a code object and guards do not see cells.
    """
    for other, own in outside.same_cells.items():
        yield own, other, True
    if outside.effects.writes_cells(own=True):
        read = [v.source for _, v in outside.values_by_id.values() if isinstance(v, CellValue) and v.is_read]
        for own in [source for source in read if isinstance(source, FreeCellSource)]:
            yield from ((own, other, False) for other in _cells(outside) if other not in outside.same_cells)


def _check_instance_dicts(outside: OutsideObjects, owners: list[Any]) -> None:
    """Raises Unsupported if an object was changed and its ``__dict__`` was reached as a dict, or the reverse."""
    if not owners:
        return
    dicts = {id(obj): value for obj, value in outside.values_by_id.values() if type(obj) is dict}
    if not dicts:
        return
    changed = {id(owner) for owner in owners}
    for obj, value in outside.values_by_id.values():
        own = dicts.get(id(getattr(obj, "__dict__", None))) if isinstance(value, ObjectValue) else None
        if own is not None and (id(own) in changed or id(value) in changed):
            raise Unsupported("unsupported mutation", f"{value} beside its own __dict__")


def _add_instance_dicts(outside: OutsideObjects, owners: list[Any], by_type: dict[type, dict[Source, None]]) -> None:
    """Adds the ``__dict__`` of objects, which may be an outside dict in another call.

    It matters if one of the two was changed and the other was read.
    """
    if any(type(v.real) is dict for v in owners):
        objects = [
            v for _, v in outside.values_by_id.values() if isinstance(v, ObjectValue) and _is_guarded(outside, v)
        ]
    else:
        objects = [v for v in owners if isinstance(v, ObjectValue)] if _guarded_objects(outside, {dict}) else []
    own = [InstanceDictSource(v.source) for v in objects if v.source is not None and hasattr(v.real, "__dict__")]
    if own:
        dicts = by_type.setdefault(dict, {})
        dicts.update(dict.fromkeys([v.source for v in _guarded_objects(outside, {dict})] + own))


def _add_namespaces(outside: OutsideObjects, owners: list[Any], by_type: dict[type, dict[Source, None]]) -> None:
    """Adds the globals of functions, which may be an outside dict in another call.

    It matters if one of the two was changed and the other was read.
    """
    changed = [v for v in owners if type(v.real) is dict]
    for value in changed:
        if id(value.real) in outside.namespaces:
            raise Unsupported("unsupported mutation", f"{value}, which is the globals")
    dicts = _guarded_objects(outside, {dict}) if outside.effects.writes_globals() else changed
    others = [v.source for v in dicts if id(v.real) not in outside.namespaces]
    if others:
        by_type.setdefault(dict, {}).update(dict.fromkeys([*others, *outside.namespaces.values()]))


def _namespace_identities(outside: OutsideObjects, dicts: dict[Source, None]) -> Iterator[GuardSpec]:
    """Yields a guard for each of `dicts` that is the globals of a function, and removes it where those are listed."""
    for value in _guarded_objects(outside, {dict}):
        namespace = outside.namespaces.get(id(value.real))
        if namespace is not None and {namespace, value.source} <= dicts.keys() and namespace != value.source:
            del dicts[value.source]
            yield GuardSpec("SAME_OBJECT", namespace, value.source, None)


def _guarded_objects(outside: OutsideObjects, classes: set[type]) -> list[Any]:
    """Returns the outside objects of exactly these types that are guarded, because something depends on them."""
    return [v for obj, v in outside.values_by_id.values() if type(obj) in classes and _is_guarded(outside, v)]


def _is_guarded(outside: OutsideObjects, value: Value) -> bool:
    kinds = ("TYPE_MATCH", "TENSOR_MATCH")
    return value.source is not None and any((kind, value.source, None) in outside.guards.specs for kind in kinds)


def _cells(outside: OutsideObjects) -> list[Source]:
    """Returns the cells of outside functions that were read or written."""
    found = [v for _, v in outside.values_by_id.values() if isinstance(v, CellValue) and v.is_read]
    return [v.source for v in found if v.source is not None and not isinstance(v.source, FreeCellSource)]
