"""Sources: where a value comes from, as a path from the frame: a local or global name, then attributes and items.

A source has five members: `text` (for readers), `shown` (as the user would write it), `fetch` (its value in a frame),
`load` (emits bytecode that pushes the value, with `capture/bytecode_emitter.py`) and `manager` (its node in the C++
guard tree).  First come those without a base, then those that read a part of another object, and at the end those that
compute something.  The names are those of ``torch/_dynamo/source.py``.
"""

from __future__ import annotations

import ast
import contextvars
import functools
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.records.recompiles import EXCEPTION, INTERMEDIATE, MESSAGE, owner_of_method
from compiler_core.support.tensors import without_class
from compiler_core.support.texts import safe_repr

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.guards.tree import GuardTree


# The C++ tree skips a guard on a number in a dict while the dict's version is the same.  In CPython 3.13.0 storing an
# attribute of an object does not change the version of its __dict__ (python/cpython#125608).
VERSIONS_ARE_STALE = (3, 13) <= sys.version_info < (3, 13, 1)


@dataclass(frozen=True)
class Scope:
    """The names that a frame can read at its entry."""

    f_locals: dict[str, Any]
    f_globals: dict[str, Any]
    closure: dict[str, types.CellType]
    """Free variables of the frame's function, by name."""


class Source:
    """Base class of sources, which are frozen dataclasses.  Sources with the same path are equal."""

    loads_new_object = False
    """Whether each load makes a new object."""
    _hash: int

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Source.__hash__  # type: ignore[method-assign]  # `dataclass` would define one that is not stored

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:  # stored, because hashing a long path takes many calls
            found = self.__dict__["_hash"] = hash((type(self), *vars(self).values()))
            return found

    @property
    def text(self) -> str:
        """The path as a Python expression."""
        raise NotImplementedError

    @property
    def shown(self) -> str:
        """The path as the user would write it."""
        return self.text

    def fetch(self, scope: Scope) -> Any:
        """Returns the value at the source in a frame; raises what Python raises if there is none."""
        raise NotImplementedError

    def load(self, emit: Emitter) -> None:
        """Emits bytecode that pushes the value."""
        raise NotImplementedError

    def manager(self, tree: GuardTree) -> Any:
        """Makes the guard manager of the source in the C++ tree."""
        raise NotImplementedError


def path(source: Source | None) -> Iterator[Source]:
    """Yields a source, what it is read from, and so on to a local, a global or a constant."""
    while source is not None:
        yield source
        source = getattr(source, "base", None)


def root_source(source: Source) -> Source:
    """Returns the source at which the path starts: a local, a global or a constant."""
    *_, root = path(source)
    return root


# ---------------------------------------------------------------- names of the frame, and constants


@dataclass(frozen=True)
class LocalSource(Source):
    """An argument of the compiled frame, or the contents of one of its free variables."""

    name: str
    expression: str = field(default="", compare=False)
    """What the user wrote, if the name is that of a parameter of a resume function."""
    parameters: tuple[str, ...] | None = field(default=None, compare=False)
    """For ``*args`` or ``**kwargs`` of a function around another: the parameters of that, which its items are."""

    @property
    def text(self) -> str:
        return f"L[{self.name!r}]"

    @property
    def shown(self) -> str:
        # a parameter that a resume function has for a value of the stack has no name in the user's code
        if self.name == "__error":
            return EXCEPTION
        is_of_stack = self.name.startswith(("__stack", "__callee"))
        return self.expression or (INTERMEDIATE if is_of_stack else self.name)

    def fetch(self, scope: Scope) -> Any:
        return scope.f_locals[self.name]

    def load(self, emit: Emitter) -> None:
        emit.load_local(self.name)

    def manager(self, tree: GuardTree) -> Any:
        return tree.local_manager(self)


@dataclass(frozen=True)
class FreeCellSource(Source):
    """The cell of a free variable.  (Its contents are the `LocalSource` of that name.)"""

    name: str

    @property
    def text(self) -> str:
        return f"cell({self.name!r})"

    @property
    def shown(self) -> str:
        return self.name

    def fetch(self, scope: Scope) -> Any:
        return scope.closure[self.name]

    def load(self, emit: Emitter) -> None:
        emit.load_cell(self.name)

    def manager(self, tree: GuardTree) -> Any:
        raise NotImplementedError("a frame's own cells are fixed by its function")


@dataclass(frozen=True, eq=False)
class Box:
    """A hashable reference to an object.  Code objects must be hashable, whatever their constants are."""

    value: Any

    @property
    def address(self) -> int:
        return id(self.value)

    @property
    def name(self) -> str:
        return str(self.value.__qualname__)


@dataclass(frozen=True)
class ConstantSource(Source):
    """An object that the generated code holds as a constant, such as the globals of an inlined function."""

    box: Box
    name: str

    @property
    def text(self) -> str:
        return self.name

    def fetch(self, scope: Scope) -> Any:
        return self.box.value

    def load(self, emit: Emitter) -> None:
        emit.constant(self.box)
        emit.load_attr("value")

    def manager(self, tree: GuardTree) -> Any:
        return tree.constant_manager(self)


@dataclass(frozen=True)
class GlobalSource(Source):
    """A global of the frame, or, with `module`, of the module of an inlined function."""

    name: str
    module: ConstantSource | None = None

    @property
    def text(self) -> str:
        return f"G[{self.name!r}]" if self.module is None else f"{self.module.text}.{self.name}"

    @property
    def shown(self) -> str:
        if self.module is None or self.module.shown == "__main__":  # a script or a cell
            return self.name
        return f"{self.module.shown}.{self.name}"

    def fetch(self, scope: Scope) -> Any:
        return (scope.f_globals if self.module is None else self.module.fetch(scope))[self.name]

    def load(self, emit: Emitter) -> None:
        if self.module is None:
            emit.load_global(self.name)
        else:
            emit.source(self.module)
            emit.constant(self.name)
            emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        if self in tree.item_groups:
            return tree.item_groups[self].manager(self, tree)
        base = tree.globals_manager() if self.module is None else tree.manager(self.module)
        return base.dict_getitem_manager(self.name, self.text, tree.value(self), tree.manager_type)


# ---------------------------------------------------------------- parts of an object


@dataclass(frozen=True)
class PartSource(Source):
    """What is read of the value of another source, `base`."""

    base: Source

    @property
    def text(self) -> str:
        return self.written(self.base.text)

    @property
    def shown(self) -> str:
        return self.written(self.base.shown)

    def written(self, base: str) -> str:
        """Returns the path from that of `base`: for readers, and in the user's words where `shown` has no others."""
        raise NotImplementedError


@dataclass(frozen=True)
class AttrSource(PartSource):
    """``base.name``.

    `table` is the dict that holds it: ``__dict__``, or a table of an nn.Module such as ``_parameters``.  None stands
    for whatever ``getattr`` finds, such as a slot or an attribute of the class.
    """

    name: str
    table: str | None = None

    def written(self, base: str) -> str:
        return f"{base}.{self.name}"

    @property
    def shown(self) -> str:
        if self.name in ("__code__", "_modules") or self.is_environment:  # which function it is, which modules it has
            return self.base.shown
        if self.name == "__self__" and isinstance(self.base, LocalSource) and self.base.expression:
            return owner_of_method(self.base.expression) or super().shown
        is_item = self.table == "_modules" and self.name.isdecimal()  # of a Sequential or ModuleList
        return f"{self.base.shown}[{self.name}]" if is_item else super().shown

    @property
    def is_environment(self) -> bool:
        """Whether it is the dict in which ``os.environ`` has the variables, as bytes."""
        return self.name == "_data" and self.base.shown.rpartition(".")[2] == "environ"

    def fetch(self, scope: Scope) -> Any:
        owner = self.base.fetch(scope)
        if self._bypasses_getattribute(owner):
            return object.__getattribute__(owner, self.name)
        return getattr(owner, self.name)

    def _bypasses_getattribute(self, owner: Any) -> bool:
        """Whether the attribute must be read without calling a ``__getattribute__`` that the class overrides."""
        getter: Any = type(owner).__getattribute__
        return self.table == "__dict__" and getter is not object.__getattribute__

    def load(self, emit: Emitter) -> None:
        if self._bypasses_getattribute(self.base.fetch(emit.capture.guards.scope)):
            loads = [lambda: emit.source(self.base), lambda: emit.constant(self.name)]
            emit.call_loaded(object.__getattribute__, loads)
        elif self.table in (None, "__dict__"):
            emit.source(self.base)
            emit.load_attr(self.name)
        else:  # without calling a __getattr__ of the user's
            emit.source(InstanceDictSource(self.base))
            for key in (self.table, self.name):
                emit.constant(key)
                emit.subscript()

    @property
    def is_read_by_getattr(self) -> bool:
        """Whether guards read it with ``getattr``."""
        return self.table is None or (self.table == "__dict__" and VERSIONS_ARE_STALE)

    def manager(self, tree: GuardTree) -> Any:
        if self in tree.item_groups:
            return tree.item_groups[self].manager(self, tree)
        value, base = tree.value(self), tree.manager(self.base)
        if self.is_read_by_getattr:
            return base.getattr_manager(self.name, self.text, value, tree.manager_type)
        if self.table == "__dict__" or self.table is None:
            found = tree.manager(InstanceDictSource(self.base))
        else:
            found = tree.table_manager(self.base, self.table)
        return found.dict_getitem_manager(self.name, self.text, value, tree.manager_type)


@dataclass(frozen=True)
class InstanceDictSource(PartSource):
    """``base.__dict__``"""

    def written(self, base: str) -> str:
        return f"{base}.__dict__"

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope).__dict__

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.load_attr("__dict__")

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).get_generic_dict_manager(self.text, tree.value(self), tree.manager_type)


MODULE_TABLES = ("_parameters", "_buffers", "_modules")
"""The dicts in which an ``nn.Module`` has what users read as its attributes."""


def _module_of_table(source: Source) -> Source | None:
    """Returns the module whose table a source is; None if it is none."""
    if isinstance(source, AttrSource) and source.name in MODULE_TABLES:
        return source.base
    if not isinstance(source, GetItemSource) or not isinstance(source.base, InstanceDictSource):
        return None
    return source.base.base if source.key in MODULE_TABLES else None


@dataclass(frozen=True)
class GetItemSource(PartSource):
    """``base[key]`` of a list, tuple or dict; `key` is a Python constant."""

    key: Any
    field: str = ""
    """Its name if `base` is a named tuple."""

    def written(self, base: str) -> str:
        return f"{base}[{safe_repr(self.key)}]"

    @property
    def shown(self) -> str:
        if isinstance(self.base, LocalSource) and self.base.parameters is not None:
            parameters = dict(enumerate(self.base.parameters))
            return parameters.get(self.key, f"{self.base.shown}[{self.key}]") if isinstance(self.key, int) else self.key
        owner = self.base.shown
        if (owner, self.key) == (f"{EXCEPTION}.args", 0):
            return MESSAGE
        if self.field:
            return f"{owner}.{self.field}"
        if (module := _module_of_table(self.base)) and isinstance(self.key, str):
            return f"{module.shown}[{self.key}]" if self.key.isdecimal() else f"{module.shown}.{self.key}"
        if isinstance(self.key, str) and owner.endswith(".__dict__"):
            of = owner.removesuffix(".__dict__")
            return of if self.key == "_modules" else f"{of}.{self.key}"
        key = safe_repr(self.key)
        return f"{owner}[{key.removeprefix('b') if is_of_environment(self) else key}]"

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope)[self.key]

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.constant(self.key)
        emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        container = tree.value(self.base)
        builtin = type(container) if type(container) in (dict, list, tuple) else None
        if self in tree.item_groups and builtin is not None:
            return tree.item_groups[self].manager(self, tree)
        return _item_manager(tree, self, builtin)


def _item_manager(tree: GuardTree, source: GetItemSource | BuiltinItemSource, builtin: type | None) -> Any:
    """Makes the manager of an item, which reads it as `builtin` does: it calls no method of the object's class."""
    base = tree.manager(source.base)
    if builtin is None:
        get = base.getitem_manager
    elif issubclass(builtin, dict):
        get = base.dict_getitem_manager
    else:
        get = base.list_getitem_manager if builtin is list else base.tuple_getitem_manager
    return get(source.key, source.text, tree.value(source), tree.manager_type)


@dataclass(frozen=True)
class ClosureCellSource(PartSource):
    """Cell `index` of a function's closure.  `variable`: the name that the function has for it."""

    index: int
    variable: str = field(default="", compare=False)

    def written(self, base: str) -> str:
        return f"{base}.__closure__[{self.index}]"

    @property
    def shown(self) -> str:
        return f"{self.variable} of {self.base.shown}" if self.variable else self.text

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope).__closure__[self.index]

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.load_attr("__closure__")
        emit.constant(self.index)
        emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        closure = tree.value(self.base).__closure__
        name = f"{self.base.text}.__closure__"
        whole = tree.manager(self.base).getattr_manager("__closure__", name, closure, tree.manager_type)
        return whole.tuple_getitem_manager(self.index, self.text, tree.value(self), tree.manager_type)


@dataclass(frozen=True)
class CellContentsSource(PartSource):
    """The contents of a cell that was reached through a function's closure."""

    def written(self, base: str) -> str:
        return f"{base}.cell_contents"

    @property
    def shown(self) -> str:
        return self.base.shown

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope).cell_contents

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.load_attr("cell_contents")

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).getattr_manager("cell_contents", self.text, tree.value(self), tree.manager_type)


def call_weakref(ref: weakref.ref[Any]) -> Any:
    """Returns the object that a weak reference refers to, or None.  Generated code calls it, too."""
    return ref()


@dataclass(frozen=True)
class WeakRefCallSource(PartSource):
    """``base()``: the object that a weak reference refers to, or None."""

    def written(self, base: str) -> str:
        return f"{base}()"

    def fetch(self, scope: Scope) -> Any:
        return call_weakref(self.base.fetch(scope))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(call_weakref, [lambda: self.base.load(emit)])

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).weakref_call_manager(self.text, tree.value(self), tree.manager_type)


@dataclass(frozen=True)
class TensorPropertySource(PartSource):
    """``base.size()[index]`` or ``base.stride()[index]`` of a tensor; `method` is ``size`` or ``stride``."""

    method: str
    index: int

    def written(self, base: str) -> str:
        return f"{base}.{self.method}()[{self.index}]"

    @property
    def shown(self) -> str:
        return f"{self.base.shown}.{self.method}({self.index})"

    def fetch(self, scope: Scope) -> Any:
        return getattr(self.base.fetch(scope), self.method)()[self.index]

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.call_method(self.method, [])
        emit.constant(self.index)
        emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        method, index = self.method, self.index
        read = lambda tensor: getattr(tensor, method)()[index]  # noqa: E731
        return tree.manager(self.base).lambda_manager(read, self.text, tree.value(self), tree.manager_type)


# ---------------------------------------------------------------- what a function returns


@dataclass(frozen=True)
class CallSource(PartSource):
    """``function(base, *constants)``"""

    function: Any
    constants: tuple[Any, ...] = ()
    form: str = "{}"
    """How it is written, with ``{}`` for `base`."""
    shown_form: str = ""
    """How the user would write it, if not so."""
    loads_new_object: bool = False

    def written(self, base: str) -> str:
        return self.form.replace("{}", base, 1)

    @property
    def shown(self) -> str:
        return (self.shown_form or self.form).replace("{}", self.base.shown, 1)

    def fetch(self, scope: Scope) -> Any:
        return self.function(self.base.fetch(scope), *self.constants)

    def load(self, emit: Emitter) -> None:
        constants = [functools.partial(emit.constant, constant) for constant in self.constants]
        emit.call_loaded(self.function, [lambda: emit.source(self.base), *constants])

    def manager(self, tree: GuardTree) -> Any:
        name = self.text if self.text != self.base.text else f"plain {self.text}"
        return _call_manager(tree, self, name, self.function, self.base, self.constants)


def _call_manager(
    tree: GuardTree, source: Source, name: str, function: Any, base: Source, constants: Sequence[Any]
) -> Any:
    read = (lambda first: function(first, *constants)) if constants else function
    return tree.manager(base).lambda_manager(read, name, tree.value(source), tree.manager_type)


def numpy_tensor(base: Source) -> Source:
    """``torch.from_numpy(base)``"""
    return CallSource(base, torch.from_numpy, (), "torch.from_numpy({})", "{}", loads_new_object=True)


def plain_tensor(base: Source) -> Source:
    """The tensor of a subclass at `base` as a plain one: reading its sizes calls no ``__torch_function__``."""
    return CallSource(base, without_class, loads_new_object=True)


def call_item(number: Any) -> Any:
    """Returns a number of NumPy as one of Python.  Generated code calls it, too."""
    return number.item()


def numpy_number(base: Source) -> Source:
    """The number of NumPy at `base` as one of Python."""
    return CallSource(base, call_item, (), "{}.item()")


UNSET: Any = object()
"""Stands for the value of a context variable that has none."""


def read_context_var(var: contextvars.ContextVar[Any]) -> Any:
    """Returns the value of a context variable, or `UNSET`.  Generated code calls it, too."""
    return var.get(UNSET)


def context_var(base: Source) -> Source:
    """The value of a `contextvars.ContextVar` in the current context, or `UNSET`."""
    return CallSource(base, read_context_var, (), "{}.get()")


def class_entry(cls: type, name: str, default: Any = None) -> Any:
    """Returns the entry `name` of `cls` or of the first of its bases that has it, without calling a descriptor."""
    for each in cls.__mro__ or ():  # None while Python makes the class
        if name in each.__dict__:
            return each.__dict__[name]
    return default


def entry_of_class(base: Source, name: str) -> Source:
    """The entry `name` of a class or of the first of its bases that has it: a descriptor is not called."""
    return CallSource(base, class_entry, (name,), f"class_entry({{}}, {name!r})", f"{{}}.{name}")


def keys_of_dict(base: Source) -> Source:
    """The keys of a dict, as a tuple."""
    return CallSource(base, tuple, (), "tuple({})", "the keys of {}")


def contents_of_set(base: Source, cls: Any) -> Source:
    """The members of an instance of a subclass of `cls`, as one of `cls`."""
    return CallSource(base, cls.copy, (), f"{cls.__name__}.copy({{}})", "{}", loads_new_object=True)


def _values_of_dict(obj: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple(obj.values())


END: Any = object()
"""Stands for the value of an iterator that has ended."""


def coming_value(iterator: Iterator[Any], index: int) -> Any:
    """Returns a value that an iterator has not given yet, or `END`; it stays where it is.  `index`: 0 for the next.

    It is an iterator of a list, tuple or range, or an ``itertools.count`` of numbers.
    """
    if type(iterator) is itertools.count:
        return next(itertools.islice(itertools.count(*count_state(iterator)), index, None))
    sequence, at = sequence_of(iterator)
    return sequence[at + index] if at + index < len(sequence) else END


def sequence_of(iterator: Any) -> tuple[Sequence[Any], int]:
    """Returns what an iterator goes over, and the index of its next value."""
    _, (sequence,), *at = iterator.__reduce__()
    return sequence, at[0] or 0 if at else 0


def count_state(iterator: itertools.count[Any]) -> tuple[Any, ...]:
    """Returns the arguments that make an ``itertools.count`` as it is; raises ValueError or SyntaxError if it has
    no plain numbers."""
    state = ast.literal_eval(repr(iterator).removeprefix("count"))  # newer versions of Python have no __reduce__
    return state if isinstance(state, tuple) else (state,)


@dataclass(frozen=True)
class BuiltinItemSource(PartSource):
    """An item of an object whose class overrides the ``__getitem__`` of `builtin`, read by that of `builtin`."""

    key: Any
    builtin: Any

    def written(self, base: str) -> str:
        return f"{self.builtin.__name__}.__getitem__({base}, {safe_repr(self.key)})"

    @property
    def shown(self) -> str:
        return f"{self.base.shown}[{safe_repr(self.key)}]"

    def fetch(self, scope: Scope) -> Any:
        return self.builtin.__getitem__(self.base.fetch(scope), self.key)

    def load(self, emit: Emitter) -> None:
        loads = [lambda: emit.source(self.base), lambda: emit.constant(self.key)]
        emit.call_loaded(self.builtin.__getitem__, loads)

    def manager(self, tree: GuardTree) -> Any:
        return _item_manager(tree, self, self.builtin)


@dataclass(frozen=True)
class KeyedItemSource(PartSource):
    """``base[key]`` of a dict whose keys are objects that compare by identity, such as the state of an optimizer."""

    key: Source
    index: int
    """Its place among the items."""

    def written(self, base: str) -> str:
        return f"{base}[{self.key.text}]"

    @property
    def shown(self) -> str:
        return f"{self.base.shown}[{self.key.shown}]"

    def fetch(self, scope: Scope) -> Any:
        items, key = self.base.fetch(scope), self.key.fetch(scope)
        if key not in items:  # a defaultdict would make the item
            raise KeyError(self.key.shown)
        return items[key]

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.source(self.key)
        emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        # by its place, since a manager by the key would keep the key alive; the keys have guards
        values = tree.manager(CallSource(self.base, _values_of_dict, (), "tuple({}.values())"))
        return values.tuple_getitem_manager(self.index, self.text, tree.value(self), tree.manager_type)


@dataclass(frozen=True)
class ComputedSource(Source):
    """``function(*args)`` of sources and constants: a number that Python computes from other numbers, or what it reads
    of an object."""

    name: str
    function: Any
    args: tuple[Any, ...]
    operation: str = ""
    """How it is written, if not as a call: an expression with ``{0}`` and so on for its arguments."""

    @property
    def text(self) -> str:
        return self._written([arg.text if isinstance(arg, Source) else safe_repr(arg) for arg in self.args])

    @property
    def shown(self) -> str:
        return self._written([arg.shown if isinstance(arg, Source) else safe_repr(arg) for arg in self.args])

    def _written(self, args: Sequence[str]) -> str:
        return self.operation.format(*args) if self.operation else f"{self.name}({', '.join(args)})"

    def fetch(self, scope: Scope) -> Any:
        return self.function(*(arg.fetch(scope) if isinstance(arg, Source) else arg for arg in self.args))

    def load(self, emit: Emitter) -> None:
        loads: list[Callable[[], None]] = []
        for arg in self.args:
            is_source = isinstance(arg, Source)
            loads.append(functools.partial(arg.load, emit) if is_source else functools.partial(emit.constant, arg))
        emit.call_loaded(self.function, loads)

    def manager(self, tree: GuardTree) -> Any:
        base, *constants = self.args
        if not isinstance(base, Source) or any(isinstance(arg, Source) for arg in constants):
            raise NotImplementedError("conditions on computed numbers are checked in Python")
        return _call_manager(tree, self, self.text, self.function, base, constants)


def is_of_environment(source: Source) -> bool:
    """Whether a source is the dict of ``os.environ``, which has bytes for the texts that a user sees, or is in it."""
    return any(isinstance(each, AttrSource) and each.is_environment for each in path(source))
