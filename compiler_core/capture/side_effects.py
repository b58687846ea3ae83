"""Changes of outside objects: recorded during capture, replayed by generated code after the graph has run.

Each container, cell or object from outside is represented by one value, which has the state that Python would leave.
The replay writes each changed object once, in the order in which the program first changed them.  It loads all new
contents before it writes anything, so that a swap reads the old contents.
"""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import DequeValue, ListValue
from compiler_core.capture.values.builtin.sets import SetValue, replace_set
from compiler_core.capture.values.cached_calls import OutsideState
from compiler_core.capture.values.contexts import TokenValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import CellValue
from compiler_core.capture.values.user.object_attributes import InstanceValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, ConstantSource, FreeCellSource, Scope
from compiler_core.records.recompiles import readable

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.tools.step_recorder import StepRecorder


Call = tuple[Callable[..., None], list[Value]]


class SideEffects:
    """The changes of outside objects in one capture attempt."""

    def __init__(self, recorder: StepRecorder | None) -> None:
        self._recorder = recorder
        self._changed: dict[int, Value] = {}
        self._attributes: dict[tuple[int, str], tuple[InstanceValue | TensorValue, str]] = {}
        self._moved: set[tuple[int, str]] = set()
        """The attributes that were deleted and set again."""
        self._globals: dict[tuple[int, str], tuple[ConstantSource | None, str, Value]] = {}
        self.tokens: list[TokenValue] = []
        """The tokens of context variables that were set and not reset, in order."""
        self._calls: list[Call] = []
        """Calls of functions of ours, in order."""
        self.dropped_gradients: list[tuple[TensorValue, bool]] = []
        """The tensors whose ``.grad`` the program first sets to None, and whether it does so before the graph's first
        operation."""
        self.frozen = ""
        """If not empty, changes break the graph, with this reason."""

    def __bool__(self) -> bool:
        return bool(self._changed or self._attributes or self._globals or self.tokens or self._calls)

    def last_token(self) -> TokenValue | None:
        return self.tokens[-1] if self.tokens else None

    def note_mutation(self, value: Value) -> None:
        """Notes that the contents of an outside container or cell are about to change."""
        self._check_frozen()
        if not isinstance(value, (ListValue, DictValue, SetValue, CellValue)):
            raise Unsupported("unsupported mutation", str(value))
        self._changed.setdefault(id(value), value)
        if self._recorder is not None:
            self._recorder.note_effect("changes {}", value)

    def note_attribute(self, obj: InstanceValue | TensorValue, name: str) -> None:
        """Notes that an attribute of an outside object or of a tensor is about to be set or deleted in `obj.stored`."""
        self._check_frozen()
        key = id(obj), name
        if obj.stored.get(name) is UNBOUND:  # set again, it is the last of the attributes
            del obj.stored[name], self._attributes[key]
            self._moved.add(key)
        self._attributes.setdefault(key, (obj, name))
        if self._recorder is not None:
            self._recorder.note_effect(f"sets {{}}.{name}", obj)

    def is_moved(self, obj: InstanceValue, name: str) -> bool:
        """Whether an attribute was deleted and set again, which puts it last."""
        return (id(obj), name) in self._moved

    def note_call(self, function: Callable[..., None], args: list[Value]) -> Call:
        """Notes a change that `function`, which is given outside objects and new values, makes when the graph has
        run.  Returns what `forget_call` takes."""
        self._check_frozen()
        call = function, args
        self._calls.append(call)
        if self._recorder is not None:
            self._recorder.note_effect(f"calls {function.__name__}({', '.join(['{}'] * len(args))})", *args)
        return call

    def forget_call(self, call: Call) -> None:
        """Removes a noted call, whose change the program has undone."""
        self._check_frozen()
        self._calls = [each for each in self._calls if each is not call]

    def changes_object(self, obj: Any) -> bool:
        """Whether the contents of an outside container have changed."""
        return any(isinstance(v, ContainerValue) and v.real is obj for v in self._changed.values())

    def calls_with(self, value: Value) -> bool:
        """Whether a noted call is given this object."""
        return any(value in args for _, args in self._calls)

    def _check_frozen(self) -> None:
        if self.frozen:
            raise Unsupported("unsupported mutation", self.frozen)

    def store_global(self, module: ConstantSource | None, name: str, value: Value) -> None:
        """Sets a global of the frame, or of an inlined function's `module`; the value UNBOUND deletes it.  An attribute
        of a class is stored in the same way, with the class as `module`."""
        self._check_frozen()
        self._globals[(id(module), name)] = (module, name, value)
        if self._recorder is not None:
            place = f"{module.name}.{name}" if module and _is_class(module) else f"global {name}"
            self._recorder.note_effect(f"sets {place} to {{}}", value)

    def global_value(self, module: ConstantSource | None, name: str) -> Value | None:
        """Returns the value that a global was set to, UNBOUND if it was deleted, None if it was not changed."""
        found = self._globals.get((id(module), name))
        return found[2] if found else None

    def class_value(self, classes: Sequence[type], name: str) -> Value | None:
        """Returns what an attribute was set to in the first of some classes that has it; None if it was not changed."""
        if not self._globals:
            return None
        changed = {(id(owner.box.value), name): value for owner, name, value in self._globals.values() if owner}
        owner = next((each for each in classes if (id(each), name) in changed or name in vars(each)), None)
        return changed.get((id(owner), name))

    def changes(self, scope: Scope, writes_tensors: bool) -> OutsideState:
        """Returns what has changed so far, in the frame with these variables."""
        sources = [v.source for v in (*self._changed.values(), *(obj for obj, _ in self._attributes.values()))]
        namespaces = [(m.fetch(scope) if m else scope.f_globals, name) for m, name, _ in self._globals.values()]
        return OutsideState(
            frozenset(id(source.fetch(scope)) for source in sources if source is not None),
            frozenset((id(namespace), name) for namespace, name in namespaces),
            bool(self.tokens),
            writes_tensors,
        )

    def owners(self) -> list[Any]:
        """Returns the outside containers and objects that changed."""
        objects = [obj for obj, _ in self._attributes.values() if obj.source is not None]
        return [*objects, *(v for v in self._changed.values() if not isinstance(v, CellValue))]

    def writes_globals(self, *of: ConstantSource | None) -> bool:
        """Whether any globals were stored or, if modules are given, globals of these modules."""
        return any(not of or module in of for module, _, _ in self._globals.values())

    def writes_cells(self, own: bool = False) -> bool:
        """Whether cells of outside functions changed or, with `own`, cells of the frame's function, too."""
        cells = [v for v in self._changed.values() if isinstance(v, CellValue)]
        return any(own or not isinstance(cell.source, FreeCellSource) for cell in cells)

    def written_sources(self) -> frozenset[str]:
        """Returns the sources of the attributes and containers from outside that are written."""
        attributes = [AttrSource(obj.source, name) for obj, name in self._attributes.values() if obj.source is not None]
        containers = [changed.source for changed in self._changed.values() if changed.source is not None]
        return frozenset(source.text for source in (*attributes, *containers))

    def places(self) -> Iterator[tuple[str, list[Value]]]:
        """Yields each place that is written, as the user would write it, and the values that it gets."""
        for owner, name, value in self._globals.values():
            place = f"{owner.name}.{name}" if owner and _is_class(owner) else name
            yield place, [value] if value is not UNBOUND else []
        for obj, name in self._attributes.values():
            if obj.source is not None and obj.stored[name] is not UNBOUND:
                yield f"{readable(obj.source.text)}.{name}", [obj.stored[name]]
        for changed in self._changed.values():
            if changed.source is None:
                continue
            if isinstance(changed, CellValue):
                yield changed.source.text, [changed._contents] if changed._contents is not None else []
            elif isinstance(changed, ContainerValue):
                yield readable(changed.source.text), changed.known_values()

    def gradients(self) -> list[Value]:
        """Returns the tensors that become the ``.grad`` of others."""
        tensors = [obj for obj, name in self._attributes.values() if name == "grad" and isinstance(obj, TensorValue)]
        return [tensor.stored["grad"] for tensor in tensors if isinstance(tensor.stored["grad"], TensorValue)]

    def replay(self, emit: Emitter) -> None:
        """Emits the code of the replay: each change loads what it needs, up to its ``yield``, and later writes."""
        for token in self.tokens:
            emit.keep(token)
        changes = [_write_global(emit, *g) for g in self._globals.values()]
        changes += [_write_attribute(emit, *a, key in self._moved) for key, a in self._attributes.items()]
        changes += [_write_contents(emit, v) for v in self._changed.values()]
        changes += [_call(emit, *c) for c in self._calls]
        for change in changes:
            next(change)
        for change in changes:
            next(change, None)


def _call(emit: Emitter, function: Callable[..., None], args: list[Value]) -> Iterator[None]:
    for arg in args:
        emit.keep_unless_fixed(arg)
    yield
    emit.call_loaded(function, [partial(emit.load_kept, arg) for arg in args])
    emit.pop()


def _write_global(emit: Emitter, module: ConstantSource | None, name: str, value: Value) -> Iterator[None]:
    if value is not UNBOUND:
        emit.keep_unless_fixed(value)
    yield
    if value is UNBOUND:  # the global may have been created in this frame, and a delete needs it to exist
        emit.constant(None)
        emit.store_global(name)
        emit.delete_global(name)
        return
    emit.load_kept(value)
    if module is None:
        emit.store_global(name)
    elif _is_class(module):
        emit.source(module)
        emit.store_attr(name)
    else:
        emit.source(module)
        emit.constant(name)
        emit.store_subscript()


def _write_attribute(emit: Emitter, obj: InstanceValue | TensorValue, name: str, is_moved: bool) -> Iterator[None]:
    owner, value = emit.keep(obj), obj.stored[name]
    if value is not UNBOUND:
        emit.keep_unless_fixed(value)
    yield
    loads = [partial(emit.load_temp, owner), partial(emit.constant, name)]
    if value is UNBOUND or is_moved:
        emit.call_loaded(delete_attribute, loads)
        emit.pop()
    if value is UNBOUND:
        return
    if isinstance(obj, InstanceValue) and obj.bypasses_setattr:
        emit.call_loaded(object.__setattr__, [*loads, partial(emit.load_kept, value)])
        emit.pop()
    else:
        emit.load_kept(value)
        emit.load_temp(owner)
        emit.store_attr(name)


def _write_contents(emit: Emitter, changed: Value) -> Iterator[None]:
    source = changed.source
    assert source is not None
    if isinstance(changed, CellValue):
        contents = changed._contents
        assert contents is not None
        emit.keep_unless_fixed(contents)
        yield
        if isinstance(source, FreeCellSource):
            emit.load_kept(contents)
            emit.store_cell(source.name)
        else:
            emit.call_loaded(fill_cell, [partial(emit.source, source), partial(emit.load_kept, contents)])
            emit.pop()
        return
    owner = emit.keep(changed)
    assert isinstance(changed, ContainerValue)
    kept = emit.keep_pushed(partial(changed.reconstruct_contents, emit))
    replace = _replace_function(changed)
    yield
    emit.call_loaded(replace, [partial(emit.load_temp, owner), partial(emit.load_temp, kept)])
    emit.pop()


def _is_class(owner: ConstantSource) -> bool:
    """Whether names are stored in a class, not in the globals of a module."""
    return isinstance(owner.box.value, type)


def _replace_function(value: ContainerValue) -> Any:
    """Returns the function that gives an outside container its new contents."""
    if isinstance(value, ListValue) and value._values is None:
        return value.cls.extend
    if isinstance(value, DequeValue):
        return replace_deque
    if isinstance(value, ListValue):
        return replace_list
    return replace_dict if isinstance(value, DictValue) else replace_set


def replace_deque(target: deque[Any], contents: list[Any]) -> None:
    """Replaces the contents of a deque; generated code calls it."""
    target.clear()
    target.extend(contents)


def replace_list(target: list[Any], contents: list[Any]) -> None:
    """Replaces the contents of a list; generated code calls it."""
    list.__setitem__(target, slice(None), contents)


def replace_dict(target: dict[Any, Any], contents: dict[Any, Any]) -> None:
    """Replaces the contents of a dict; generated code calls it."""
    base = OrderedDict if isinstance(target, OrderedDict) else dict
    base.clear(target)
    for key, value in contents.items():
        base.__setitem__(target, key, value)


def delete_attribute(owner: Any, name: str) -> None:
    """Deletes an attribute, which may have existed only within the frame; generated code calls it."""
    with contextlib.suppress(AttributeError):
        object.__delattr__(owner, name)


def fill_cell(cell: types.CellType, contents: Any) -> None:
    """Sets the contents of a cell; generated code calls it."""
    cell.cell_contents = contents
