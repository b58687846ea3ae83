"""TENSOR_MATCH, the guard on a tensor: type, dtype, device, requires_grad, shape, strides and dispatch keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.kinds import GuardKind, GuardSpec, Mismatch, guard_kind

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree

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


def _same_field(got: Any, expected: Any) -> bool:
    """Whether a field is as expected.  None in an expected shape or stride matches any number."""
    if not isinstance(expected, tuple) or None not in expected:
        return bool(got == expected)
    return len(got) == len(expected) and all(b in (None, a) for a, b in zip(got, expected, strict=True))


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

    def difference(self, obj: Any, value: TensorFacts) -> str | Mismatch | None:
        if not isinstance(obj, torch.Tensor):
            return f"a {type(obj).__name__}"
        for (name, read), expected in zip(TENSOR_FIELDS, value.fields, strict=True):
            if name == "stride" and obj.numel() <= 1:
                continue
            got = read(obj)
            if not _same_field(got, expected):
                return Mismatch(f"{name} {expected!r}", f"{name} {got!r}")
        return None

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        tensor = tree.value(guard.source)
        manager, keys = tree.manager(guard.source), torch._C._dispatch_keys(tensor)
        sizes, strides = (list(guard.value.fields[_FIELD[name]]) for name in ("shape", "stride"))
        manager.add_tensor_match_guard(tensor, sizes, strides, guard.source.text, code_parts, None, type(tensor), keys)
