"""The kinds of guards: how each prints, is checked in Python, and is installed in the C++ tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._C._dynamo import guards as cpp

from compiler_core.guards import library
from compiler_core.guards.conditions import Condition, checker
from compiler_core.guards.constants import NUMPY_NUMBERS, keys_of, same_constant, same_keys
from compiler_core.guards.lifetimes import Mortal, boxed
from compiler_core.guards.sources import Constant, Scope, Source
from compiler_core.records import ItemId
from compiler_core.support.interrupts import DOES_NOT_HOLD, guard_function
from compiler_core.support.safe_repr import shown
from compiler_core.support.torch_state import default_devices, function_modes, is_dispatched_or_traced

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree

_MISSING = object()


@dataclass(frozen=True)
class GuardSpec:
    """One condition: `kind`, on the value at `source`, which was `value` at capture.  `line` is the
    user's line that looked."""

    kind: str
    source: Source
    value: Any
    line: ItemId | None = None

    @property
    def text(self) -> str:
        """The condition as a Python expression."""
        return KINDS[self.kind].text(self.source.text, self.value)

    def check(self, scope: Scope) -> Mismatch | None:
        """None when it holds, else what was expected and what was seen."""
        try:
            obj = self.source.fetch(scope)
        except DOES_NOT_HOLD:
            obj = _MISSING
        if self.kind in _FROM_SCOPE:
            got = _FROM_SCOPE[self.kind](self, obj, scope)
        else:
            got = "nothing there" if obj is _MISSING else KINDS[self.kind].check(obj, self.value)
        return Mismatch(self.expected, got) if isinstance(got, str) else got

    @property
    def expected(self) -> str:
        return KINDS[self.kind].show(self.value)


class Mismatch(NamedTuple):
    """Why a guard does not hold."""

    expected: str
    got: str


# ---------------------------------------------------------------- the kinds


@dataclass(frozen=True)
class Kind:
    """How one kind of guard prints, is checked in Python, and is installed in the C++ tree."""

    text: Callable[[str, Any], str]
    check: Callable[[Any, Any], str | Mismatch | None]
    install: Callable[[GuardTree, GuardSpec, list[str]], None]
    show: Callable[[Any], str] = shown


def _differs(ok: bool, got: Any) -> str | None:
    return None if ok else (got if isinstance(got, str) else shown(got))


def _named(obj: Any) -> str:
    of_users = not isinstance(obj, type) and hasattr(type(obj), "__getattr__")  # which would run
    name = None if of_users else getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    return name if name and "<" in name else f"<{name or type(obj).__name__}>"


def _named_in(box: Constant) -> str:
    return f"<{box.name}>" if isinstance(box, Mortal) else _named(box.value)


TENSOR_FIELDS: tuple[tuple[str, Callable[[torch.Tensor], Any]], ...] = (
    ("type", lambda t: type(t).__name__),
    ("dtype", lambda t: t.dtype),
    ("device", lambda t: str(t.device)),
    ("requires_grad", lambda t: t.requires_grad),
    ("shape", lambda t: tuple(t.shape)),
    ("stride", lambda t: t.stride()),
    ("dispatch keys", lambda t: str(torch._C._dispatch_keys(t))),
)
_FIELD = {name: i for i, (name, _) in enumerate(TENSOR_FIELDS)}


@dataclass(frozen=True)
class TensorFacts:
    """What a TENSOR_MATCH keeps of the tensor (never the tensor itself)."""

    fields: tuple[Any, ...]
    example: Any  # a weak reference

    @classmethod
    def of(cls, tensor: torch.Tensor, fake: torch.Tensor) -> TensorFacts:
        """Sizes and strides that are symbolic in `fake` are None: conditions of their own say what they may be."""
        import weakref

        fields = {name: read(tensor) for name, read in TENSOR_FIELDS}
        fields["shape"], fields["stride"] = _plain(fake.shape), _plain(fake.stride())
        return cls(tuple(fields.values()), weakref.ref(tensor))

    @property
    def sizes(self) -> tuple[int | None, ...]:
        found: tuple[int | None, ...] = self.fields[_FIELD["shape"]]
        return found

    def __repr__(self) -> str:
        shown = [f"{n}={v!r}" for (n, _), v in zip(TENSOR_FIELDS, self.fields, strict=True) if n != "dispatch keys"]
        return ", ".join(shown)


def _plain(extents: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(extent if isinstance(extent, int) else None for extent in extents)


def _check_tensor(obj: Any, facts: TensorFacts) -> str | Mismatch | None:
    if not isinstance(obj, torch.Tensor):
        return f"a {type(obj).__name__}"
    for (name, read), expected in zip(TENSOR_FIELDS, facts.fields, strict=True):
        if name == "stride" and obj.numel() <= 1:
            continue
        if not _same(got := read(obj), expected):
            return Mismatch(f"{name} {expected!r}", f"{name} {got!r}")
    return None


def _same(got: Any, expected: Any) -> bool:
    if not isinstance(expected, tuple) or None not in expected:
        return bool(got == expected)
    return len(got) == len(expected) and all(b in (None, a) for a, b in zip(got, expected, strict=True))


def _install_tensor(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    tensor = tree.value(spec.source)
    manager, keys = tree.manager(spec.source), torch._C._dispatch_keys(tensor)
    sizes, strides = (list(spec.value.fields[_FIELD[name]]) for name in ("shape", "stride"))
    manager.add_tensor_match_guard(tensor, sizes, strides, spec.source.text, parts, None, type(tensor), keys)


def _install_equals(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    manager, value = tree.manager(spec.source), spec.value
    if value is None:
        manager.add_none_match_guard(parts, None)
    elif value is True:
        manager.add_true_match_guard(parts, None)
    elif value is False:
        manager.add_false_match_guard(parts, None)
    elif type(value) is float and value != value:
        manager.add_float_is_nan_guard(parts, None)
    elif isinstance(value, (float, complex, *NUMPY_NUMBERS)) and not (type(value) is float and value != 0):
        # 0.0 equals -0.0
        manager.add_lambda_guard(guard_function(lambda obj: same_constant(obj, value)), parts, None)
    else:
        # the C++ guard compares the type too
        manager.add_equals_match_guard(value, parts, None)


def _in_python(holds: Callable[[Any, Any], bool]) -> Callable[[GuardTree, GuardSpec, list[str]], None]:
    """Installs a guard for which the tree has no check of its own: ``holds(the object, the value at capture)``."""

    def install(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
        check = guard_function(lambda obj: holds(obj, spec.value))
        tree.manager(spec.source).add_lambda_guard(check, parts, None)

    return install


def _with(add: Callable[[Any, Any, list[str]], None]) -> Callable[[GuardTree, GuardSpec, list[str]], None]:
    return lambda tree, spec, parts: add(tree.manager(spec.source), spec.value, parts)


def _install_same(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    cpp.install_object_aliasing_guard(tree.manager(spec.source), tree.manager(spec.value), parts, None)


def _install_different(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    sources = [spec.source, *spec.value]
    # named for tensors, it compares the identity of any objects
    cpp.install_no_tensor_aliasing_guard([tree.manager(s) for s in sources], [s.text for s in sources], parts, None)


def _check_different(spec: GuardSpec, obj: Any, scope: Scope) -> str | None:
    found = [id(obj), *(id(source.fetch(scope)) for source in spec.value)]
    return _differs(len(set(found)) == len(found), "the same object twice")


def _install_in_python(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    def holds(f_locals: dict[str, Any]) -> bool:
        return spec.check(tree.scope_of(f_locals)) is None

    root: Any = tree.root
    root.add_epilogue_lambda_guard(guard_function(holds), parts, None)


def install_conditions(tree: GuardTree, specs: Sequence[GuardSpec]) -> None:
    """All of them as one function of Python's."""
    root: Any = tree.root
    holds = checker([spec.value for spec in specs], tree.scope)
    root.add_epilogue_lambda_guard(guard_function(holds), [spec.text for spec in specs], None)


def _check_condition(condition: Condition, scope: Scope) -> str | None:
    try:
        return None if condition.holds(scope) else condition.seen(scope)
    except DOES_NOT_HOLD:
        return "nothing there"


def _install_absent(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    tree.frame_globals().add_dict_contains_guard(False, spec.value, parts, None)


@dataclass(frozen=True)
class GlobalState:
    """PyTorch's global state, and the default devices that are set by modes."""

    flags: Any
    modes: list[Any]
    devices: tuple[torch.device | None, ...]

    @classmethod
    def now(cls) -> GlobalState:
        return cls(cpp.GlobalStateGuard(), function_modes(), default_devices())

    def difference(self) -> str | None:
        if default_devices() != self.devices:
            return "another default device or torch function mode"
        return None if self.flags.check() else str(self.flags.reason())


def _install_state(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    state = spec.value
    tree.root.add_global_state_guard(state.flags, parts, None)
    tree.root.add_torch_function_mode_stack_guard(state.modes, parts, None)  # compares their types
    if state.devices:
        same_devices = guard_function(lambda _: default_devices() == state.devices)
        tree.root.add_lambda_guard(same_devices, parts, None)


def _dispatch_mode() -> str | None:
    return "a torch dispatch mode or torch.jit.trace" if is_dispatched_or_traced() else None


def _install_no_dispatch_mode(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    tree.root.add_lambda_guard(guard_function(lambda _: _dispatch_mode() is None), parts, None)


def _install_current_gpu(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    number, current = spec.value, getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
    tree.root.add_lambda_guard(guard_function(lambda _: current() == number), parts, None)


def _is_at(scope: Scope, source: Source, obj: Any) -> bool:
    try:
        return source.fetch(scope) is obj
    except DOES_NOT_HOLD:
        return False


def _absent(manager: Any, key: Any, parts: list[str]) -> None:
    manager.add_dict_contains_guard(False, key, parts, None)


KINDS: dict[str, Kind] = {
    "TENSOR_MATCH": Kind(lambda s, v: f"check_tensor({s}, {v!r})", _check_tensor, _install_tensor, repr),
    "CONDITION": Kind(
        lambda s, v: v.text,
        lambda obj, v: None,
        lambda tree, spec, parts: install_conditions(tree, [spec]),
        lambda v: str(v.text),
    ),
    "EQUALS_MATCH": Kind(
        lambda s, v: f"{s} is {shown(v)}" if v is None or isinstance(v, bool) else f"{s} == {shown(v)}",
        lambda obj, v: _differs(same_constant(obj, v), obj),
        _install_equals,
    ),
    "ID_MATCH": Kind(
        lambda s, v: f"id({s}) == {v.address}  # {_named_in(v)}",
        lambda obj, v: _differs(obj is v.value, f"another object, {_named(obj)}"),
        _with(lambda m, v, parts: m.add_id_match_guard(v.address, parts, None)),
        lambda v: _named_in(v),
    ),
    "TYPE_MATCH": Kind(
        lambda s, v: f"type({s}) is {v.name}",
        lambda obj, v: _differs(type(obj) is v.value, f"a {type(obj).__qualname__}"),
        _with(lambda m, v, parts: m.add_type_match_guard(v.address, parts, None)),
        lambda v: str(v.name),
    ),
    "LENGTH": Kind(
        lambda s, v: f"len({s}) == {v}",
        lambda obj, v: _differs(len(obj) == v, str(len(obj))),
        _with(lambda m, v, parts: m.add_length_check_guard(v, parts, None)),
    ),
    "DICT_LENGTH": Kind(
        lambda s, v: f"len({s}) == {v}",
        lambda obj, v: _differs(len(obj) == v, str(len(obj))),
        _with(lambda m, v, parts: m.add_dict_length_check_guard(v, parts, None)),
    ),
    "DICT_KEYS": Kind(
        lambda s, v: f"list({s}) == {shown(v)}",
        lambda obj, v: _differs(same_keys(keys_of(obj), v), list(keys_of(obj))),
        _in_python(lambda obj, v: same_keys(keys_of(obj), v)),
    ),
    "DICT_CONTAINS": Kind(
        lambda s, v: f"{shown(v)} not in {s}",
        lambda obj, v: _differs(v not in obj, "it is there"),
        _with(_absent),
        lambda v: f"no {shown(v)}",
    ),
    "DICT_HAS": Kind(
        lambda s, v: f"{shown(v)} in {s}",
        lambda obj, v: _differs(v in obj, "it is not there"),
        _with(lambda m, v, parts: m.add_dict_contains_guard(True, v, parts, None)),
    ),
    "SET_EQUALS": Kind(
        lambda s, v: f"{s} == {{{', '.join(map(shown, v))}}}" if v else f"{s} == set()",
        lambda obj, v: _differs(type(obj) is type(v) and obj == v, obj),
        _in_python(lambda obj, v: type(obj) is type(v) and obj == v),
    ),
    "SET_ORDER": Kind(
        lambda s, v: f"list({s}) == {shown(v)}",
        lambda obj, v: _differs(same_keys(obj, v), list(obj)),
        _in_python(same_keys),
    ),
    "NO_ATTRIBUTE": Kind(
        lambda s, v: f"not hasattr({s}, {v!r})",
        lambda obj, v: _differs(not hasattr(obj, v), "it is there"),
        _with(lambda m, v, parts: m.add_no_hasattr_guard(v, parts, None)),
        lambda v: f"no attribute {v!r}",
    ),
    "RETURNS": Kind(
        lambda s, v: f"{s}() == {shown(v)}",
        lambda obj, v: _differs((got := obj()) == v, got),
        _in_python(lambda obj, v: bool(obj() == v)),
    ),
    "SAME_OBJECT": Kind(
        lambda s, v: f"{s} is {v.text}", lambda obj, v: None, _install_same, lambda v: f"the object at {v.text}"
    ),
    "NOT_SAME_OBJECT": Kind(
        lambda s, v: f"{s} is not {v.text}",
        lambda obj, v: None,
        _install_in_python,
        lambda v: f"not the object at {v.text}",
    ),
    "ALL_DIFFERENT": Kind(
        lambda s, v: f"all_different({', '.join([s, *(o.text for o in v)])})",
        lambda obj, v: None,
        _install_different,
        lambda v: "objects that are not one and the same",
    ),
    "GLOBAL_ABSENT": Kind(
        lambda s, v: f"{v!r} not in G", lambda obj, v: None, _install_absent, lambda v: f"no global {v!r}"
    ),
    "GLOBAL_STATE": Kind(
        lambda s, v: "check_global_state()  # grad mode, autocast, default dtype, threads, determinism, modes",
        lambda obj, v: v.difference(),
        _install_state,
        lambda v: "the state at capture",
    ),
    "LIBRARY": Kind(
        lambda s, v: f"{library.beginning(s)}{', '.join(v)})",
        lambda obj, v: library.difference(obj, v),
        library.install,
        lambda v: f"{', '.join(v)} as they were",
    ),
    "NO_DISPATCH_MODE": Kind(
        lambda s, v: "no_dispatch_mode()  # the guards of tensors see it too",
        lambda obj, v: _dispatch_mode(),
        _install_no_dispatch_mode,
        lambda v: "no torch dispatch mode",
    ),
    "CURRENT_GPU": Kind(
        lambda s, v: f"torch.cuda.current_device() == {v}  # tensors are made there",
        lambda obj, v: _differs((now := torch.cuda.current_device()) == v, f"GPU {now}"),
        _install_current_gpu,
        lambda v: f"GPU {v}",
    ),
}
_FROM_SCOPE: dict[str, Callable[[GuardSpec, Any, Scope], str | Mismatch | None]] = {
    "SAME_OBJECT": lambda g, obj, scope: _differs(_is_at(scope, g.value, obj), "another object"),
    "NOT_SAME_OBJECT": lambda g, obj, scope: _differs(not _is_at(scope, g.value, obj), "the same object"),
    "ALL_DIFFERENT": _check_different,
    "CONDITION": lambda g, obj, scope: _check_condition(g.value, scope),
    "GLOBAL_ABSENT": lambda g, obj, scope: _differs(obj is _MISSING, "it is there"),
    "GLOBAL_STATE": lambda g, obj, scope: KINDS["GLOBAL_STATE"].check(None, g.value),
}


@dataclass(frozen=True)
class State(Source):
    """PyTorch's global state, as the source of one guard."""

    @property
    def text(self) -> str:
        return "torch's global state"

    def fetch(self, scope: Scope) -> Any:
        return None


def frozen(kind: str, value: Any) -> Any:
    """What a guard keeps of the value that it looked at: never the object itself where a fact will do.  Of an identity
    it is a box (`lifetimes.py`)."""
    if kind == "TENSOR_MATCH":
        return TensorFacts.of(*value)
    if kind == "SET_ORDER":
        return list(value)
    if kind == "SET_EQUALS":
        return value.copy()
    if kind in ("ID_MATCH", "TYPE_MATCH"):
        return boxed(type(value) if kind == "TYPE_MATCH" else value)
    return value


def state_guard() -> GuardSpec:
    return GuardSpec("GLOBAL_STATE", State(), GlobalState.now())


def current_gpu_guard(number: int) -> GuardSpec:
    """For compiled code that makes tensors on the current GPU."""
    return GuardSpec("CURRENT_GPU", State(), number)


def no_dispatch_mode_guard() -> GuardSpec:
    """For compiled code that no tensor comes into, whose guard would see a mode in its dispatch keys."""
    return GuardSpec("NO_DISPATCH_MODE", State(), None)
