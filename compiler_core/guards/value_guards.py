"""Kinds of guards on one object: its value, identity, type, length, keys and attributes, and facts about a tensor."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import operator
import pathlib
import re
import sys
import types
import uuid
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.torch_version import TorchVersion

from compiler_core.guards.kinds import ABSENT, KINDS, MISSING, NOTHING, PRESENT, Found, GuardKind, GuardSpec
from compiler_core.guards.lifetimes import WeakBox, identity_box, make_box
from compiler_core.guards.sources import Box, Scope
from compiler_core.records.recompiles import LEAF, Mismatch, keys_mismatch, layout_differences, with_article
from compiler_core.support.interrupts import guard_function
from compiler_core.support.tensors import context_text, is_wrapper
from compiler_core.support.texts import safe_repr
from compiler_core.torch_private import DisableTorchFunction, DisableTorchFunctionSubclass, dispatch_keys

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree
    from compiler_core.records import GuardAspect

# ---------------------------------------------------------------- constants: by type and value, NaN equal to NaN,
# ---------------------------------------------------------------- 0.0 unlike -0.0

NUMPY_NUMBERS: tuple[Any, ...] = ()
_CONTAINERS: tuple[type, ...] = (dict, list, tuple, set, frozenset, deque)
if (_numpy := sys.modules.get("numpy")) is not None:  # PyTorch imports numpy if it is installed
    NUMPY_NUMBERS = (_numpy.number, _numpy.bool_)
    _CONTAINERS += (_numpy.ndarray,)


def number_of_numpy(number: Any) -> Any:
    """Returns a number of NumPy as the number of Python for which operations on tensors take it.

    Returns it unchanged if there is none: operations read the real part of a complex64 only, and NumPy itself computes
    with a timedelta64, or with an int of more than 64 bits.
    """
    found = number.item()
    is_int = number.dtype.kind in "iu" and abs(found) < 2**63
    is_float = number.dtype.kind == "f" and type(found) is float
    return found if is_int or is_float or isinstance(number, complex) else number


LIBRARY_CONSTANTS: tuple[Any, ...] = (
    decimal.Decimal, fractions.Fraction, datetime.timedelta, datetime.date, datetime.time, datetime.datetime, uuid.UUID,
    re.Pattern, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath,
    TorchVersion,
)  # fmt: skip
"""Types of immutable objects of the standard library and PyTorch, which are constants, too."""


def dict_keys(obj: Mapping[Any, Any]) -> Iterable[Any]:
    """Returns the keys of a dict, or of a class's ``__dict__``, without calling methods that its class overrides."""
    if type(obj) is types.MappingProxyType:
        return obj.keys()
    return (OrderedDict if isinstance(obj, OrderedDict) else dict).keys(obj)  # type: ignore[arg-type]


def same_keys(found: Iterable[Any], wanted: Sequence[Any]) -> bool:
    """Whether the keys are the same, in the same order.  1, True and 1.0 are different keys."""
    keys = list(found)
    if len(keys) != len(wanted):
        return False
    return all(a is b or same_constant(a, b) for a, b in zip(keys, wanted, strict=True))


_DICTS = (dict, defaultdict, OrderedDict)
"""Classes of dicts that iterate over their keys."""


def has_keys(wanted: Sequence[Any]) -> Callable[[Any], bool]:
    """Returns a check of a dict's keys, which is faster where they are the same objects, as they are in most dicts."""
    count = len(wanted)

    def check(obj: Any) -> bool:
        if type(obj) in _DICTS and len(obj) == count and all(map(operator.is_, obj, wanted)):
            return True
        return same_keys(dict_keys(obj), wanted)

    return check


def may_be_distinct_objects(a: Any, b: Any) -> bool:
    """Whether two constants that are equal may be two objects.  CPython interns short strings and small ints."""
    if (type(a) in (str, bytes) and len(a) < 2) or (type(a) is int and -5 <= a <= 256):
        return False
    kinds = (str, bytes, int, float, complex)
    return (type(a) in kinds or type(a) in LIBRARY_CONSTANTS) and same_constant(a, b)


def same_constant(a: Any, b: Any) -> bool:
    """Whether two constants are equal for a guard: of the same type, with NaN equal to NaN and 0.0 unlike -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return same_keys(a, b)
    if isinstance(a, NUMPY_NUMBERS):
        return bool(a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if type(a) in LIBRARY_CONSTANTS and type(a) is not re.Pattern:  # 1.0 and 1.00 are equal decimals
        return repr(a) == repr(b)
    return bool(a == b)


def _needs_same_constant(value: Any) -> bool:
    """Whether ``==`` is not enough: it holds of 0.0 and -0.0, and of the decimals 1.0 and 1.00, but not of one NaN."""
    if type(value) is float:
        return value == 0 or value != value
    return isinstance(value, (float, complex, *NUMPY_NUMBERS)) or type(value) in LIBRARY_CONSTANTS


def _constant_code(source: str, value: Any) -> str:
    return f"{source} {'is' if value is None or isinstance(value, bool) else '=='} {safe_repr(value)}"


def _constant_difference(obj: Any, value: Any) -> Found:
    if same_constant(obj, value):
        return None
    if type(obj) is type(value) or obj is None:
        return safe_repr(obj)
    found = type(obj).__qualname__
    if value is None:
        shown = safe_repr(obj) if _is_of_constants(obj) else "<>"
        return with_article(found) if shown.startswith("<") else shown
    return Mismatch("class", type(value).__qualname__, found)


def _is_of_constants(obj: Any) -> bool:
    """Whether an object is no container, or one of constants alone: the text of others may be long, or read tensors."""
    if type(obj) not in (dict, list, tuple, set, frozenset):
        return not issubclass(type(obj), _CONTAINERS)
    items = [*obj.keys(), *obj.values()] if type(obj) is dict else obj
    return all(type(each) in (int, float, str, bool, type(None)) for each in items)


def _add_constant(manager: Any, value: Any, code_parts: list[str]) -> None:
    if value is None:
        manager.add_none_match_guard(code_parts, None)
    elif value is True:
        manager.add_true_match_guard(code_parts, None)
    elif value is False:
        manager.add_false_match_guard(code_parts, None)
    elif _needs_same_constant(value):
        manager.add_lambda_guard(guard_function(lambda obj: same_constant(obj, value)), code_parts, None)
    else:
        manager.add_equals_match_guard(value, code_parts, None)  # it compares the type too


# ---------------------------------------------------------------- identity


def _name_in_box(box: Box) -> str:
    return f"<{box.name}>" if isinstance(box, WeakBox) else _name_of(box.value)


def _name_of(obj: Any) -> str:
    """Returns the name of an object, or that of its type, without calling a ``__getattr__`` of the user's."""
    if isinstance(obj, types.CodeType):
        return obj.co_name if "<" in obj.co_name else f"<{obj.co_name}>"
    name = None
    if isinstance(obj, type) or not hasattr(type(obj), "__getattr__"):
        name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if name and name.startswith(_OF_TORCH):
        return f"torch.{name.removeprefix(_OF_TORCH)}"
    return name if name and "<" in name else f"<{name or type(obj).__name__}>"


_OF_TORCH = "_VariableFunctionsClass."
"""How the qualified names of the C functions of `torch` start."""


def _identity_difference(obj: Any, value: Box) -> Found:
    if obj is value.value:
        return None
    found = _name_of(obj)
    return f"another {found}" if found == _name_in_box(value) else found


# ---------------------------------------------------------------- tensors


TENSOR_FIELDS: tuple[tuple[str, Callable[[torch.Tensor], Any]], ...] = (
    ("type", lambda t: type(t).__name__),
    ("dtype", lambda t: t.dtype),
    ("device", lambda t: str(t.device)),
    ("requires_grad", lambda t: t.requires_grad),
    ("shape", lambda t: tuple(t.shape)),
    ("stride", lambda t: t.stride()),
    ("dispatch keys", lambda t: str(dispatch_keys(t))),
)
_FIELD = {name: i for i, (name, _) in enumerate(TENSOR_FIELDS)}


@dataclass(frozen=True)
class TensorFacts:
    """What a TENSOR_MATCH compares a tensor with: one value for each of `TENSOR_FIELDS`, and not the tensor itself."""

    fields: tuple[Any, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor, fake: torch.Tensor) -> TensorFacts:
        """Sizes and strides that are symbolic in `fake` become None: separate conditions limit them."""
        fields = {name: read(tensor) for name, read in TENSOR_FIELDS}
        fields["shape"], fields["stride"] = _static_extents(fake.shape), _static_extents(fake.stride())
        return cls(tuple(fields.values()))

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """The shape, with None for each symbolic size."""
        found: tuple[int | None, ...] = self.fields[_FIELD["shape"]]
        return found

    def __repr__(self) -> str:
        shown = [f"{n}={v!r}" for (n, _), v in zip(TENSOR_FIELDS, self.fields, strict=True) if n != "dispatch keys"]
        return ", ".join(shown)


@dataclass(frozen=True)
class WrapperFacts:
    """What a WRAPPER_MATCH compares a tensor of a wrapper subclass with, besides its class and its inner tensors."""

    flattened: str
    """The names of its inner tensors, and what else ``__tensor_flatten__`` says."""
    dtype: str
    device: str
    requires_grad: str
    shape: tuple[int | None, ...]
    stride: tuple[int | None, ...]

    @classmethod
    def of(cls, tensor: Any, fake: torch.Tensor) -> WrapperFacts:
        """Sizes and strides that are not numbers in `fake` become None."""
        with DisableTorchFunctionSubclass():
            flattened = f"{list(tensor.__tensor_flatten__()[0])}, {context_text(tensor)}"
            plain = str(tensor.dtype), str(tensor.device), str(tensor.requires_grad)
            return cls(flattened, *plain, _static_extents(fake.size()), _static_extents(fake.stride()))

    def differences(self, tensor: torch.Tensor) -> Iterator[Mismatch]:
        """Yields what differs in another tensor; nothing of another class, which a TYPE_MATCH compares."""
        if not is_wrapper(tensor):
            return
        got = WrapperFacts.of(tensor, tensor)
        if got.flattened != self.flattened:
            yield Mismatch("other", self.flattened, got.flattened)
        compared: tuple[GuardAspect, ...] = ("dtype", "device", "requires_grad")
        for name in compared:
            if getattr(got, name) != getattr(self, name):
                yield Mismatch(name, getattr(self, name), getattr(got, name))
        shape, stride = (tuple(1 if n is None else n for n in extents) for extents in (got.shape, got.stride))
        yield from layout_differences(self.shape, self.stride, shape, stride)


def _static_extents(extents: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(extent if isinstance(extent, int) else None for extent in extents)


def _add_tensor(tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
    tensor = tree.value(guard.source)
    manager, keys = tree.manager(guard.source), dispatch_keys(tensor)
    sizes, strides = (list(guard.value.fields[_FIELD[name]]) for name in ("shape", "stride"))
    manager.add_tensor_match_guard(tensor, sizes, strides, guard.source.text, code_parts, None, type(tensor), keys)


def _failed_facts(guard: GuardSpec, obj: Any, scope: Scope) -> Iterable[Mismatch]:
    return [Mismatch("class", "Tensor", NOTHING)] if obj is MISSING else _tensor_differences(obj, guard.value)


def _tensor_differences(obj: Any, value: TensorFacts) -> Iterator[Mismatch]:
    """Yields what differs.  Strides that follow from the sizes, and dispatch keys that follow from what else differs,
    do not count."""
    expected = dict(zip(_FIELD, value.fields, strict=True))
    if not isinstance(obj, torch.Tensor):
        yield Mismatch("class", expected["type"], type(obj).__qualname__)
        return
    if type(obj).__name__ != expected["type"]:
        yield Mismatch("class", expected["type"], type(obj).__name__)
        return
    is_different = False
    compared: tuple[GuardAspect, ...] = ("dtype", "device", "requires_grad")
    for name in compared:
        got = dict(TENSOR_FIELDS)[name](obj)
        if got != expected[name]:
            is_different = True
            is_leaf = name == "requires_grad" and got and obj.is_leaf
            yield Mismatch(name, str(expected[name]), str(got), item=LEAF if is_leaf else "")
    found = list(layout_differences(expected["shape"], expected["stride"], tuple(obj.shape), obj.stride()))
    yield from found
    keys = str(dispatch_keys(obj))
    if keys != expected["dispatch keys"] and not is_different and not found:
        yield keys_mismatch(expected["dispatch keys"], keys)


# ---------------------------------------------------------------- the kinds


def _set_code(source: str, value: Any) -> str:
    return f"{source} == {{{', '.join(map(safe_repr, value))}}}" if value else f"{source} == set()"


def _order_difference(obj: Any, items: list[Any]) -> Found:
    if getattr(type(obj), "__iter__", None) not in (set.__iter__, frozenset.__iter__):
        return _as_text(obj)
    return None if same_keys(obj, items) else safe_repr(list(obj))


def _length_difference(obj: Any, value: int) -> Found:
    return None if len(obj) == value else str(len(obj))


def _result_difference(obj: Any, value: Any) -> Found:
    returned = obj()
    return None if returned == value else _as_text(returned)


def _offset_difference(obj: Any, value: int) -> Found:
    if not isinstance(obj, torch.Tensor):
        return safe_repr(obj)
    with DisableTorchFunction():
        offset = torch.Tensor.storage_offset(obj)  # and not a method of the class's own, or an attribute of the tensor
    return None if offset == value else str(offset)


def _as_text(found: Any) -> str:
    return found if isinstance(found, str) else safe_repr(found)


KINDS |= {
    # a constant of the same type and value (`same_constant`)
    "EQUALS_MATCH": GuardKind(_constant_code, _constant_difference, _add_constant, "value"),
    # this object
    "ID_MATCH": GuardKind(
        lambda source, box: f"id({source}) == {box.address}  # {_name_in_box(box)}",
        _identity_difference,
        lambda manager, box, code_parts: manager.add_id_match_guard(box.address, code_parts, None),
        "identity",
        expected=_name_in_box,
        keeps=identity_box,
    ),
    # an object whose ``type(obj)`` is this class
    "TYPE_MATCH": GuardKind(
        lambda source, box: f"type({source}) is {box.name}",
        lambda obj, box: None if type(obj) is box.value else type(obj).__qualname__,
        lambda manager, box, code_parts: manager.add_type_match_guard(box.address, code_parts, None),
        "class",
        expected=lambda box: str(box.name),
        keeps=lambda value: make_box(type(value)),
    ),
    # ``len(obj)`` of a sequence
    "LENGTH": GuardKind(
        lambda source, length: f"len({source}) == {length}",
        _length_difference,
        lambda manager, length, code_parts: manager.add_length_check_guard(length, code_parts, None),
        "length",
    ),
    # ``len(obj)`` of a dict
    "DICT_LENGTH": GuardKind(
        lambda source, length: f"len({source}) == {length}",
        _length_difference,
        lambda manager, length, code_parts: manager.add_dict_length_check_guard(length, code_parts, None),
        "length",
    ),
    # the keys of a dict, in their order
    "DICT_KEYS": GuardKind(
        lambda source, keys: f"list({source}) == {safe_repr(keys)}",
        lambda obj, keys: None if same_keys(dict_keys(obj), keys) else safe_repr(list(dict_keys(obj))),
        lambda manager, keys, code_parts: manager.add_lambda_guard(guard_function(has_keys(keys)), code_parts, None),
        "keys",
    ),
    # a dict that does not have this key (the name is PyTorch's for both cases)
    "DICT_CONTAINS": GuardKind(
        lambda source, key: f"{safe_repr(key)} not in {source}",
        lambda obj, key: Mismatch("key", ABSENT, PRESENT, item=safe_repr(key)) if key in obj else None,
        lambda manager, key, code_parts: manager.add_dict_contains_guard(False, key, code_parts, None),
        expected=lambda key: f"no {safe_repr(key)}",
    ),
    # a dict that has this key
    "DICT_HAS": GuardKind(
        lambda source, key: f"{safe_repr(key)} in {source}",
        lambda obj, key: None if key in obj else Mismatch("key", PRESENT, ABSENT, item=safe_repr(key)),
        lambda manager, key, code_parts: manager.add_dict_contains_guard(True, key, code_parts, None),
    ),
    # a set of the same type and contents
    "SET_EQUALS": GuardKind(
        _set_code,
        lambda obj, value: None if type(obj) is type(value) and obj == value else _as_text(obj),
        aspect="items",
        keeps=lambda value: value.copy(),
    ),
    # the order in which a set is iterated over
    "SET_ORDER": GuardKind(
        lambda source, items: f"list({source}) == {safe_repr(items)}",
        _order_difference,
        aspect="order",
        keeps=list,
    ),
    # an object that has no attribute of this name
    "NO_ATTRIBUTE": GuardKind(
        lambda source, name: f"not hasattr({source}, {name!r})",
        lambda obj, name: Mismatch("attribute", ABSENT, PRESENT, item=name) if hasattr(obj, name) else None,
        lambda manager, name, code_parts: manager.add_no_hasattr_guard(name, code_parts, None),
        expected=lambda name: f"no attribute {name!r}",
    ),
    # an object that returns this when it is called without arguments
    "RETURNS": GuardKind(
        lambda source, value: f"{source}() == {safe_repr(value)}",
        _result_difference,
        aspect="result",
    ),
    # a tensor that begins at this element of its memory
    "STORAGE_OFFSET": GuardKind(
        lambda source, value: f"{source}.storage_offset() == {value}",
        _offset_difference,
        aspect="storage offset",
    ),
    # a tensor of the same wrapper subclass with the same `WrapperFacts`; kept of the tensor and its fake tensor
    "WRAPPER_MATCH": GuardKind(
        lambda source, facts: f"check_wrapper({source}, {facts!r})",
        lambda obj, facts: next(facts.differences(obj), None),
        expected=repr,
        keeps=lambda tensors: WrapperFacts.of(*tensors),
        differences=lambda guard, obj, scope: [] if obj is MISSING else guard.value.differences(obj),
    ),
    # a tensor with the same `TensorFacts`; kept of the tensor and its fake tensor
    "TENSOR_MATCH": GuardKind(
        lambda source, facts: f"check_tensor({source}, {facts!r})",
        lambda obj, facts: next(_tensor_differences(obj, facts), None),
        expected=repr,
        keeps=lambda tensors: TensorFacts.of(*tensors),
        differences=_failed_facts,
        install=_add_tensor,
    ),
}
