"""Why a frame was compiled again: what differs from what each compile expects, as facts."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from compiler_core.instruments import tool
from compiler_core.records.artifacts import ItemId

ENTRY_OF_OURS = "this entry is Cutaway's, so stock torch.compile does not use it"
"""The reason that stock gives, in its logs, for not using an entry of ours."""
AT_CAPTURE, ONE_AT_CAPTURE = "the object at capture", "the one at capture"
"""What is expected where only the identity of an object is known; the latter if its class is known, too."""
INTERMEDIATE = "an intermediate value"
NONE_TYPE = "NoneType"
PARAMETERS = "ParameterList"
"""The class that keeps its length in an attribute."""
WEAK_KEYS = "WeakKeyDictionary"
"""The class of caches that Python's library keeps by class or object, such as that of `functools.singledispatch`."""
OF_INFERENCE = "those of an inference tensor"
"""The dispatch keys of a tensor that was made in inference mode, or is used there."""
LEAF = "a leaf"
"""The item of a tensor that requires a gradient and is not computed from others."""
EXCEPTION, MESSAGE = "the exception", "the message of the exception"
_GENERATED = re.compile(r"\b_{2,3}((?:stack|callee)\d*|error)\b")
_OWNER = re.compile(rf"{_GENERATED.pattern}\.__self__\b")
_METHOD = re.compile(r"(.+)\.\w+$")
_ROOT = re.compile(r"\b[LG]\[(['\"])(\w+)\1\]")

GuardAspect = Literal[
    "class", "dtype", "device", "requires_grad", "rank", "size", "stride", "storage offset", "dispatch keys", "value",
    "length", "key", "keys", "items", "order", "identity", "aliasing", "attribute", "relation", "setting", "function",
    "result", "other",
]  # fmt: skip
"""What of an object a guard compares."""

_WHETHER_THERE = frozenset[GuardAspect]({"key", "keys", "attribute"})
"""Aspects of what is in an object, or is not."""

NOTHING_YET = ("None", "[]", "0")
"""What a guard expects of a value that is still to be made: of a gradient, of a dict's keys, of their number."""


@dataclass(slots=True)
class FailedGuard:
    """One fact of a guard that did not hold for a call: what was compared, what was expected, and what was found."""

    kind: str
    """The guard's kind; empty if it is not known."""
    guard: str
    """The whole check as a Python expression."""
    source: str
    """Python expression of the value that was checked, e.g. ``L['self'].calls``."""
    name: str
    """The object in the user's words: ``self.calls``."""
    aspect: GuardAspect
    expected: str
    got: str
    """Empty if it is not known."""
    line: ItemId | None = None
    """The user's line for which the value was read."""
    dims: list[int] = field(default_factory=list)
    """The dimensions whose size or stride differs."""
    item: str = ""
    """The key, attribute, function or setting; the other object of two that are compared; `LEAF`."""
    is_specialised: bool = False
    """Whether the program needs the number itself, so that no symbol can stand for it."""
    is_broadcast: bool = False
    """Whether a size was or is 0 or 1, which are compiled separately, since they broadcast."""
    place: Literal["argument", "global", "attribute"] = "argument"
    """Where the value is: an argument or an item of one, a global, or an attribute of an object."""
    type: str = ""
    """The type of the object that was found; empty if it is not known."""
    subject: str = ""
    """What differs, as a noun: ``the dtype of x``."""
    caller: ItemId | None = None
    """If `line` is a library's: the user's line that calls it."""
    member: str = ""
    """The attribute that holds the value, if an object does: ``_modules`` of the dict of a module's modules."""
    is_of_first_step: bool = False
    """Whether the compile whose guard failed makes the value itself, as the first step of a training makes gradients
    and the state of the optimizer."""

    def __post_init__(self) -> None:
        if self.aspect == "class" and NONE_TYPE in (
            self.expected,
            self.got,
        ):  # None is a value, and not one of its type
            self.aspect, self.subject = "value", ""
            self.expected, self.got = (_value_of_class(each) for each in (self.expected, self.got))
        self.subject = self.subject or _subject(self)

    @property
    def is_another_object(self) -> bool:
        """Whether another object is found, so that nothing in it is what was expected."""
        return self.aspect in ("class", "identity") or (self.aspect == "value" and self.got == "None")


def _value_of_class(name: str) -> str:
    return "None" if name == NONE_TYPE else with_article(name) if name else ""


def with_article(noun: str) -> str:
    """Returns a noun, such as the name of a class, with its article: ``a Tensor``, ``an Adam``."""
    return f"{'an' if noun[:1] in 'AEIOUaeiou' else 'a'} {noun}"


def _subject(failed: FailedGuard) -> str:
    name, aspect = failed.name, failed.aspect
    if aspect == "key":
        return f"the key {failed.item} of {name}"
    if aspect == "attribute":
        return f"the attribute {failed.item} of {name}"
    if aspect == "setting":
        return f"the {failed.item}"
    if aspect == "requires_grad":
        return f"requires_grad of {name}"
    if aspect == "aliasing":
        return f"the identity of {name} and {failed.item}"
    if aspect == "result":
        return f"the result of {name}{'' if name.endswith(')') else '()'}"
    if aspect == "relation":
        return f"the condition {failed.item}"
    if aspect == "function":
        return f"{name}.{failed.item}"
    if aspect in ("value", "other"):
        return name
    if aspect == "identity":
        return f"the object {name}"
    return f"the {'type' if aspect == 'class' else aspect} of {name}"


@dataclass(slots=True)
class MissedEntry:
    """A compile that did not serve a call, and the guards of it that failed: all of them, or for stock those known."""

    compile: str
    failed: list[FailedGuard]

    @property
    def distance(self) -> tuple[int, int]:
        """How far the call is from what the compile was made for: another object, or one that is there in one of both
        only, is farther than other facts of an object, and all conditions on one number are one fact."""
        objects = (f.is_another_object or f.expected == "None" or f.aspect in _WHETHER_THERE for f in self.failed)
        facts = {each.name if each.aspect == "relation" else id(each) for each in self.failed}
        return sum(objects), len(facts)


@dataclass(slots=True)
class Recompile(FailedGuard):
    """Why a call compiled its frame again: a guard of the nearest compile, the one with the fewest that failed,
    of which those on an object as a whole count most."""

    of: str = ""
    """The nearest compile."""
    besides: list[FailedGuard] = field(default_factory=list)
    """What else differs from what the nearest compile expects."""
    others: list[MissedEntry] = field(default_factory=list)
    """The other compiles of the frame, the nearest first."""
    text: str = ""
    """What happened, in sentences that follow from the facts (`recompile`)."""
    is_confirmed: bool = False
    """Whether all other guards of the nearest compile were checked and hold, so that the call would have used it if
    this one had held."""


class Mismatch(NamedTuple):
    """One fact for which a guard does not hold; the fields are those of `records.FailedGuard`."""

    aspect: GuardAspect
    expected: str
    got: str
    dims: Sequence[int] = ()
    item: str = ""
    is_specialised: bool = False
    is_broadcast: bool = False
    of: Any = None
    """The source of the object, where it is not the guard's."""


Extents = Sequence[int | None]
"""Sizes or strides; None for any."""


def layout_differences(shape: Extents, stride: Extents, got_shape: Extents, got_stride: Extents) -> Iterator[Mismatch]:
    """Yields how the rank, the sizes and the strides of a tensor differ from what is expected; None allows any."""
    if len(shape) != len(got_shape):
        yield Mismatch("rank", str(len(shape)), str(len(got_shape)))
        return
    sizes = _different(shape, got_shape)
    if sizes:
        is_broadcast = any(each in (0, 1) for i in sizes for each in (shape[i], got_shape[i]))
        yield Mismatch("size", _shown(shape, sizes), _shown(got_shape, sizes), sizes, is_broadcast=is_broadcast)
    strides = _different(stride, got_stride) if math.prod(size or 2 for size in got_shape) > 1 else []
    if strides and not (sizes and _order(shape, stride) == _order(got_shape, got_stride)):
        yield Mismatch("stride", _shown_tuple(stride), _shown_tuple(got_stride), strides)


def keys_mismatch(expected: str, got: str) -> Mismatch:
    """Returns how the dispatch keys of a tensor differ.  A tensor without keys of autograd was made in inference
    mode, or is used there."""
    known = {True: "those of a tensor that autograd tracks", False: OF_INFERENCE}
    is_tracked = "Autograd" in expected, "Autograd" in got
    if is_tracked[0] != is_tracked[1]:
        expected, got = (known[each] for each in is_tracked)
    return Mismatch("dispatch keys", expected, got)


def _different(expected: Extents, got: Extents) -> list[int]:
    return [i for i, (a, b) in enumerate(zip(expected, got, strict=True)) if a is not None and a != b]


def _shown(extents: Extents, dims: Sequence[int]) -> str:
    """Returns the one size that differs, or the whole shape."""
    return str(extents[dims[0]]) if len(dims) == 1 else _shown_tuple(extents)


def _shown_tuple(extents: Extents) -> str:
    return str(tuple(extents)).replace("None", "any")


def _order(shape: Extents, stride: Extents) -> list[int] | None:
    """Returns the dimensions in the order of their strides if the tensor has no gaps, else None."""
    order = sorted(range(len(shape)), key=lambda i: (-(stride[i] or 0), i))
    step: int | None = 1
    for i in reversed(order):
        if shape[i] != 1 and None not in (step, stride[i]) and stride[i] != step:
            return None
        step = None if step is None or shape[i] is None else step * max(shape[i] or 1, 1)
    return order


def readable(source: str) -> str:
    """Returns a source as the user would write it: ``self.calls`` for ``L['self'].calls``."""
    return named(_ROOT.sub(r"\2", source), {})


def named(text: str, names: Mapping[str, str]) -> str:
    """Returns a text with the user's expressions for the parameters that a resume function has for values of the stack.

    `names`: the expressions that are known, by ``stack0``.
    """
    text = _OWNER.sub(lambda found: owner_of_method(names.get(found[1], "")) or found[0], text)
    return _GENERATED.sub(lambda found: names.get(found[1], INTERMEDIATE), text)


def owner_of_method(expression: str) -> str:
    """Returns the object of a bound method that is on the stack: ``log`` for ``log.add``; empty if it is not there."""
    found = _METHOD.match(expression)
    return found[1] if found else ""


def has_generated_name(text: str) -> bool:
    """Returns whether a text names a parameter of a resume function, which the user has not written.

    Sources and guards are expressions, in which these names are reserved: ours and Dynamo's.
    """
    return _GENERATED.search(text) is not None


def recompile(entries: Sequence[MissedEntry], checked: Collection[str]) -> Recompile:
    """Returns the cause of a recompile.

    Args:
        entries: the compiles that did not fit; of those that are equally near, the first one counts.
        checked: the compiles all of whose guards were checked.
    """
    nearest, *others = sorted(entries, key=lambda each: each.distance)
    failed, *besides = nearest.failed
    facts = {each.name: getattr(failed, each.name) for each in fields(failed)}
    is_confirmed = nearest.compile in checked and not besides
    cause = Recompile(**facts, of=nearest.compile, besides=besides, others=others, is_confirmed=is_confirmed)
    if what_failed := tool("what_failed"):
        cause.text = what_failed(cause)
    return cause
