"""Runs the programs of the golden book in a process that cannot import `compiler_core.tools`, and prints each that
differs from eager PyTorch, raises, or is not compiled for a failure of the compiler.

    python -m tests.tools.without_tools [STEP]

With a step, each one of so many programs runs.
"""

# ruff: noqa: E402 - what is imported must not find the tools

from __future__ import annotations

import contextlib
import io
import random
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.modules["compiler_core.tools"] = types.ModuleType("compiler_core.tools")  # no package: what is below is not found

import torch
from torch.utils._pytree import tree_leaves

from compiler_core import instruments
from compiler_core.api.compile import compile as compile_
from compiler_core.api.compiled import new_record, recording
from tests.cases.scripts import namespace_of

PROGRAMS = sorted(
    file
    for file in (Path(__file__).parents[1] / "golden" / "programs").iterdir()
    if file.stem != "break_clock"  # what it returns differs from call to call
)


def observed(text: str, compiled: bool) -> list[Any]:
    """Runs a program, compiled or not; returns the leaves of each result and the gradients, or the
    exception."""
    sys.modules["compiler_core"].compile = compile_  # type: ignore[attr-defined]  # without looking for the tools
    space = namespace_of(text, "program.py", "program", compiler_core=sys.modules["compiler_core"])
    fn = compile_(space["program"], **space.get("OPTIONS", {})) if compiled else space["program"]
    seen: list[Any] = []
    random.seed(0)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        seen.extend(leaf.detach().clone() for leaf in results)
        seen.extend(leaf for leaf in tree_leaves(result) if isinstance(leaf, (bool, int, float, str)))
        losses = [leaf.sum() for leaf in results if leaf.requires_grad and leaf.is_floating_point()]
        if losses:
            torch.stack(losses).sum().backward(retain_graph=True)
        seen.extend(
            leaf.grad for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.is_leaf
        )
        return result

    try:
        space["run"](call)
    except Exception as error:
        seen.append((type(error).__name__, str(error)))
    return seen


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and torch.allclose(one, other, atol=1e-6, equal_nan=True)
        )
    return type(one) is type(other) and bool(one == other)


def differences(programs: Sequence[Path]) -> Iterator[str]:
    """Yields a line for each program that is not right."""
    for file in programs:
        text = file.read_text().partition("---- program\n")[2].partition("\n---- ")[0]
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
            expected = observed(text, compiled=False)
            with recording(new_record()) as record:
                found = observed(text, compiled=True)
        if len(expected) != len(found) or not all(map(equal, expected, found)):
            yield f"{file.stem}: {found} where eager has {expected}"
        yield from (f"{file.stem}: {failure.message}" for each in record.compiles for failure in each.failures)
        if not record.compiles and not record.frames:
            yield f"{file.stem}: nothing was compiled"


def main() -> int:
    assert not instruments.TOOLS
    with contextlib.suppress(ModuleNotFoundError):
        import compiler_core.tools.explain

        raise AssertionError(f"a tool was imported: {compiler_core.tools.explain}")
    programs = PROGRAMS[:: int(sys.argv[1]) if sys.argv[1:] else 1]
    found = list(differences(programs))
    print(*found, f"{len(found)} of {len(programs)} programs differ", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
