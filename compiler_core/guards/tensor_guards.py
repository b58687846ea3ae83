"""TENSOR_MATCH, the guard on a tensor: type, dtype, device, requires_grad, shape, strides and dispatch keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.kinds import MISSING, NOTHING, GuardKind, GuardSpec, guard_kind
from compiler_core.guards.sources import Scope
from compiler_core.records.recompiles import Mismatch, keys_mismatch, layout_differences
from compiler_core.torch_private import dispatch_keys

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree
    from compiler_core.records import GuardAspect

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


def _static_extents(extents: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(extent if isinstance(extent, int) else None for extent in extents)


@guard_kind("TENSOR_MATCH")
class TensorMatch(GuardKind):
    """A tensor with the same `TensorFacts`."""

    def guarded_value(self, value: tuple[torch.Tensor, torch.Tensor]) -> TensorFacts:
        tensor, fake = value
        return TensorFacts.of(tensor, fake)

    def code(self, source: str, value: TensorFacts) -> str:
        return f"check_tensor({source}, {value!r})"

    def expected(self, value: TensorFacts) -> str:
        return repr(value)

    def difference(self, obj: Any, value: TensorFacts) -> Mismatch | None:
        return next(_differences(obj, value), None)

    def differences(self, guard: GuardSpec, obj: Any, scope: Scope) -> list[Mismatch]:
        if obj is MISSING:
            return [Mismatch("class", "Tensor", NOTHING)]
        return list(_differences(obj, guard.value))

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        tensor = tree.value(guard.source)
        manager, keys = tree.manager(guard.source), dispatch_keys(tensor)
        sizes, strides = (list(guard.value.fields[_FIELD[name]]) for name in ("shape", "stride"))
        manager.add_tensor_match_guard(tensor, sizes, strides, guard.source.text, code_parts, None, type(tensor), keys)


def _differences(obj: Any, value: TensorFacts) -> Iterator[Mismatch]:
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
            yield Mismatch(name, str(expected[name]), str(got))
    found = list(layout_differences(expected["shape"], expected["stride"], tuple(obj.shape), obj.stride()))
    yield from found
    keys = str(dispatch_keys(obj))
    if keys != expected["dispatch keys"] and not is_different and not found:
        yield keys_mismatch(expected["dispatch keys"], keys)
